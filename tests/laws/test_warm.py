"""A fork that went wrong is that of its own test alone."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.warm import forked


class LimitError(Exception):
    """Such as a test's own limit of time raises in it."""


def test_what_ended_badly_is_not_told_of_the_next_command(tmp_path: Path) -> None:
    def over(*_: Any) -> None:
        raise LimitError

    environment = {**os.environ, "PYTHONPATH": ""}
    before = signal.signal(signal.SIGUSR1, over)
    try:
        waits = f"import os, signal; os.kill({os.getpid()}, signal.SIGUSR1); signal.pause()"
        with pytest.raises(LimitError):
            forked(waits, cwd=tmp_path, environment=environment)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert forked("raise SystemExit(3)", cwd=tmp_path, environment=environment).returncode == 3
    ends = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    with pytest.raises(AssertionError, match="the fork's parent ended"):
        forked(ends, cwd=tmp_path, environment=environment)
    assert forked("print(4)", cwd=tmp_path, environment=environment).stdout == "4\n"
