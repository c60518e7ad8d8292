"""One thread per process: the tests' tensors are tiny, and threads that wait for each other make a busy machine crawl."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    """The hundred kills first: a file is one process's, and its eight minutes at the end would leave the others idle."""
    items.sort(key=lambda item: item.path.name != "test_runner_kills.py")
