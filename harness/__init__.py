"""For Python: `from harness import Experiment, run, ab` (docs/agents.md).

Read when it is asked for: a worker imports nothing of the command line. `run` is the package
harness.run, which can be called.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

from harness import run
from harness.run.document import Content

OF_API = ("Experiment", "ab")


class RunPackage(ModuleType):
    """The package harness.run, which can be called: `from harness import run`."""

    def __call__(self, experiment: object, /, **options: object) -> Content:
        """Run what is missing of an experiment; its verdicts (harness/api.py)."""
        verdicts: Content = import_module("harness.api").run(experiment, **options)
        return verdicts


run.__class__ = RunPackage


def __getattr__(name: str) -> Any:
    if name in OF_API:
        return getattr(import_module("harness.api"), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")
