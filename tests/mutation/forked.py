"""Tests run in a fork of a process that has imported what is not ours: a sabotage costs its tests, not the imports."""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.killers import MEASURED, file_of
from tests.mutation.tree import BUILD, TREE

OPTIONS = ["-p", "no:cacheprovider", "-x"]
WAITING = (
    10  # times the limit of processor time that the tests may take by the clock: machines are busy
)
UNREADABLE = "ImportError while loading conftest"  # which imports what is sabotaged
FILES_S = 300.0  # of processor time for whole test files
ENVIRONMENT = {
    "PYTHONPATH": str(TREE),
    "TMPDIR": str(BUILD / "tmp"),
    "OMP_NUM_THREADS": "1",
    "ABLATE_DATA": str(TREE / "data"),
}
OURS = ("harness", "model", "optim", "reports", "tests")
NOT_OURS = ("numpy", "pandas", "scipy.optimize", "scipy.stats", "torch", "typer.testing", "yaml")
FAILED = BUILD / "failed.json"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    passed: bool
    timeout: bool = False
    failed: str | None = None  # the first test that did; None: the tests could not be collected
    said: str = ""  # the end of what pytest said


class FirstFailure:
    """A plug-in of pytest: the first test that fails, or that there were none to collect, is written down."""

    def note(self, test: str | None) -> None:
        if not FAILED.exists():
            FAILED.write_text(json.dumps(test))

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.note(report.nodeid)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.note(None)


def import_what_is_not_ours() -> None:
    """Before the first fork; nothing of ours may be imported with it."""
    for name in NOT_OURS:
        import_module(name)


def run_forked(tests: Sequence[str], options: Sequence[str], limit_s: float) -> Outcome:
    """The tests in the clone up to the first that fails; what they started ends with them.

    limit_s: of processor time for each process.
    """
    shutil.rmtree(BUILD / "tmp", ignore_errors=True)
    (BUILD / "tmp").mkdir(parents=True)
    FAILED.unlink(missing_ok=True)
    said = BUILD / "said.txt"
    child = os.fork()
    if child == 0:
        slow = f"--timeout={int(WAITING * limit_s)}"
        in_child([slow, *options, *tests], said, int(limit_s))
    code = wait(child, WAITING * limit_s)
    if code is None or code == -signal.SIGXCPU:
        return Outcome(passed=False, timeout=True)
    if code == 0:
        return Outcome(passed=True)
    end = said.read_text(errors="replace")[-4000:]
    if not FAILED.exists() and code > 0:
        if UNREADABLE in end:
            return Outcome(passed=False, said=end)
        files = list(dict.fromkeys(map(file_of, tests)))
        if code == pytest.ExitCode.USAGE_ERROR and files != list(tests):
            # the sabotage changes which tests there are: their parameters come from the code
            return run_forked(files, [*options, f"-m={MEASURED}"], FILES_S)
        raise SystemExit(f"the tests could not be run (exit {code}):\n{end}")
    failed = json.loads(FAILED.read_text()) if FAILED.exists() else tests[0]
    return Outcome(passed=False, failed=failed, said=end)


def wait(child: int, limit_s: float) -> int | None:
    """The exit code, negative for a signal; None when it ran past the limit."""
    end, code = time.monotonic() + limit_s, None
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def in_child(arguments: Sequence[str], said: Path, limit_s: int) -> None:
    """Become a pytest of the clone, and end with its exit code."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(TREE)
        os.environ.update(ENVIRONMENT)
        tempfile.tempdir = None
        for name in [n for n in sys.modules if n.partition(".")[0] in OURS]:
            del sys.modules[name]
        sys.path[:] = [str(TREE), *(p for p in sys.path if p and p != str(TREE.parents[2]))]
        sys.argv, sys.modules["__main__"] = ["pytest"], ModuleType("__main__")
        code = int(pytest.main([*OPTIONS, *arguments], plugins=[FirstFailure()]))
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
