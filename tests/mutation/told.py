"""A plug-in of pytest for the measuring run: which tests passed, and how long each took."""

import json
import os
from collections import defaultdict
from pathlib import Path

SECONDS: dict[str, float] = defaultdict(float)
NOT_PASSED: set[str] = set()


def pytest_runtest_logreport(report) -> None:
    SECONDS[report.nodeid] += report.duration
    if report.outcome != "passed":
        NOT_PASSED.add(report.nodeid)


def pytest_sessionfinish(session) -> None:
    if not hasattr(session.config, "workerinput"):  # the process that hears of every test
        passed = {test: s for test, s in SECONDS.items() if test not in NOT_PASSED}
        Path(os.environ["MUTATION_TOLD"]).write_text(json.dumps(passed))
