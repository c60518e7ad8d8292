"""Processes forked from one that has imported the training core: each costs what it computes, not its imports."""

from multiprocessing import get_context
from multiprocessing.context import ForkServerContext

IMPORTED = ["pytest", "harness.cli.run", "tests.fake_matrix", "tests.observe"]


def forkserver() -> ForkServerContext:
    """The context whose processes are such forks: of one server, which the first who asks starts for all."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context
