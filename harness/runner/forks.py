"""Fresh processes that do not import anew: a parent with every import is forked for each request.

Forks share what was imported before them and nothing else. The parent belongs to one slot, so
variables and devices of the environment are its runs' own; it starts no thread, makes no CUDA
context, computes nothing.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

DONE = 64  # exit code of a fork that answered its request


def wait_for_end(*inputs: int) -> None:
    """End this process when one of these file descriptors hangs up."""
    poll = select.poll()
    for fd in inputs:
        poll.register(fd, 0)  # nothing but the hang-up
    poll.poll()
    os._exit(0)


class _Parent:
    """The process that forks: it passes signals on to its fork, and dies of what that dies of."""

    def __init__(self) -> None:
        self.child = 0
        self.handlers = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            self.handlers[number] = signal.signal(number, self._pass_on)
        self.lives, self.held = os.pipe()  # hangs up when the parent is gone

    def _pass_on(self, number: int, frame: object) -> None:
        if self.child == 0:
            os._exit(0)
        with suppress(ProcessLookupError):
            os.kill(self.child, number)

    def fork(self) -> bool:
        """Whether this process is the fork, which ends with its input and with its parent."""
        self.child = os.fork()
        if self.child > 0:
            return False
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        os.close(self.held)
        threading.Thread(target=wait_for_end, args=(0, self.lives), daemon=True).start()
        return True

    def outlive(self) -> None:
        """Wait for the fork's end; one that did not answer ends this process as well."""
        _, status = os.waitpid(self.child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != DONE:
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(abs(code))
        self.child = 0


def requests_in_forks(
    import_s: float, prepare: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Lines of standard input with {"import_s", "idle_s"} since the last, each in a fresh fork.

    A fork ends when it asks for the next line. However it dies, the parent dies of the same; both
    end with the input.
    prepare: what the parent imports for a line before it forks.
    """
    parent = _Parent()
    wall = {"import_s": import_s}
    while True:
        began = time.perf_counter()
        line = sys.stdin.readline()
        wall["idle_s"] = time.perf_counter() - began
        if not line:
            os._exit(0)
        began = time.perf_counter()
        prepare(line)
        wall["import_s"] = wall.get("import_s", 0.0) + time.perf_counter() - began
        if parent.fork():
            yield line, wall
            sys.stderr.flush()
            os._exit(DONE)
        parent.outlive()
        wall = {}
