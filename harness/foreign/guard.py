"""`python -m harness.foreign.guard COMMAND...`: runs a command and leaves nothing of it behind.

When the command ends, or when standard input does (its owner is gone, however it went), every
process that came of it is killed, those with a session of their own too. Exits as the command
did: its code, or 128 and the signal that killed it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36  # orphans become children of the guard instead of the system's


def kill_all() -> None:
    """Kill every descendant until there is none."""
    me = psutil.Process()
    for _ in range(100):
        left = me.children(recursive=True)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not me.children(recursive=True):
            return
        time.sleep(0.02)


def _when_input_ends() -> None:
    while os.read(0, 4096):
        pass
    kill_all()
    os._exit(1)


def _go_on(number: int, frame: object) -> None:
    """A handler, unlike a signal that is ignored, is not handed on to the command."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner decides
    signal.signal(signal.SIGTERM, _go_on)  # a cluster tells all: what we guard ends first
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(127)
    threading.Thread(target=_when_input_ends, daemon=True).start()
    code = process.wait()
    kill_all()
    os._exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main()
