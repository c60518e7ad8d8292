"""A minute of the loop of random faults: `python -m tests.fault_loop` makes hours of it."""

from pathlib import Path

import pytest

from tests.fault_loop import faults
from tests.fault_loop.__main__ import FaultLoop

ALONE = (
    "SIGSTOP of a process",
    "SIGTERM of another process",
    "disk full",
    "read-only folder",
    "file of an attempt deleted",
    "file of an attempt cut",
    "file of a finished run cut, changed, deleted",
    "cache cut, deleted",
)


@pytest.mark.slow
@pytest.mark.long
def test_rounds_of_random_faults_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of every kind that has no test of its own, with workers that need no torch."""
    quick = {name: (made, ("warm",)) for name, (made, _) in faults.FAULTS.items()}
    monkeypatch.setattr("tests.fault_loop.__main__.FAULTS", quick)
    loop = FaultLoop(tmp_path, seed=17, n_seeds=2)
    try:
        for name in quick:
            if name in ALONE and (loop.disk.own or name not in faults.OF_A_DISK):
                while loop.hits[name] == 0:  # a moment that is drawn may come when all is done
                    assert loop.round(name) == [], loop.table()
                    assert loop.rounds[name] < 6, loop.table()
    finally:
        loop.end()
