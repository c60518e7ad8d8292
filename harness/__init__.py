"""For Python: `from harness import Experiment, run, ab` (docs/agents.md).

Read when it is asked for: a worker imports nothing of the command line. `run` is the package
harness.run, which can be called.
"""

from importlib import import_module
from typing import Any

OF_API = ("Experiment", "ab")


def __getattr__(name: str) -> Any:
    if name in OF_API:
        return getattr(import_module("harness.api"), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")
