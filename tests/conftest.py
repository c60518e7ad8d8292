"""One thread per process: the tests' tensors are tiny, and threads that wait for each other make a busy machine crawl."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
