"""A plug-in of pytest for the measuring run: which tests passed, how long each took, and what they start is measured."""

import json
import os
from collections import defaultdict
from pathlib import Path

SECONDS: dict[str, float] = defaultdict(float)
NOT_PASSED: set[str] = set()


def pytest_configure(config) -> None:
    """Processes that a test starts are measured too, with its name as their context: it is in their environment."""
    os.environ["COVERAGE_PROCESS_START"] = os.environ["MUTATION_COVERAGE"]


def pytest_runtest_logreport(report) -> None:
    SECONDS[report.nodeid] += report.duration
    if report.outcome != "passed":
        NOT_PASSED.add(report.nodeid)


def pytest_sessionfinish(session) -> None:
    if not hasattr(session.config, "workerinput"):  # the process that hears of every test
        passed = {test: s for test, s in SECONDS.items() if test not in NOT_PASSED}
        Path(os.environ["MUTATION_TOLD"]).write_text(json.dumps(passed))
