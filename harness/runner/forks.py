"""Fresh processes that do not import anew: a parent that has imported everything, and done nothing, is forked for each order.

Forks share what was imported before them and nothing else. The parent belongs to one slot, so variables and devices of the
environment are its runs' own; it starts no thread, makes no CUDA context, computes nothing.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

DONE = 64  # exit code of a fork that answered its order


def wait_for_end(*inputs: int) -> None:
    """End this process when one of these file descriptors hangs up."""
    poll = select.poll()
    for fd in inputs:
        poll.register(fd, 0)  # nothing but the hang-up
    poll.poll()
    os._exit(0)


def orders_in_forks(import_s: float, prepare: Callable[[str], None]) -> Iterator[tuple[str, dict[str, float]]]:
    """Lines of standard input with {"import_s", "idle_s"} since the last, each in a fork that ends when it asks for the next.

    However a fork dies, the parent dies of the same; it passes signals on. Both end with the input, a fork with its parent too.
    prepare: what the parent imports for a line before it forks.
    """
    child = 0

    def pass_on(number: int, frame: Any) -> None:
        if child == 0:
            os._exit(0)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    handlers = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    lives, held = os.pipe()  # hangs up when the parent is gone
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
        child = os.fork()
        if child == 0:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(held)
            threading.Thread(target=wait_for_end, args=(0, lives), daemon=True).start()
            yield line, wall
            sys.stderr.flush()
            os._exit(DONE)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != DONE:
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(abs(code))
        child, wall = 0, {}
