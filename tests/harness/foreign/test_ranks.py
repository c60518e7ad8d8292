"""A foreign trainer of several ranks, by the default command: every rank has its device, and what befalls one ends all."""

import os
import shutil
from pathlib import Path

import psutil
import pytest

from reports.inputs.load import load
from tests.foreign_bench import TRAINERS, ablate, bench, statuses, write

pytestmark = pytest.mark.slow


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script of several ranks, on a node whose driver shows two devices."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text('#!/bin/sh\n[ "$1" = -L ] && printf "GPU 0: fake\\nGPU 1: fake\\n"\nexit 0\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shutil.copy(TRAINERS / "ranks.py", tmp_path)
    return bench(tmp_path, monkeypatch)


def default(**more: object) -> dict[str, object]:
    """A trainer by the default command."""
    return {"command": None, "file": "ranks.py", "gpus": 2, **more}


def test_two_ranks_learn_by_the_default_command_and_the_death_of_one_is_the_runs(
    node: Path,
) -> None:
    path = write(
        node,
        trainer=default(env={"SEED": "{seed}"}),
        changes={"crash": {"env": {"RANK_KIND": "crash"}}},
    )
    assert ablate("run", path, "--no-report") == 1
    runs = load("foreign").runs.set_index("arm")
    ended = dict(runs["status"])
    assert ended == {"baseline": "finished", "crash": "failed"}, dict(runs["reason"])
    assert runs.loc["baseline", "val_loss"] < 2.0  # of log 16 = 2.77
    assert runs.loc["crash", "reason"] == "rank 1 was killed by signal 11"


def test_a_rank_that_hangs_is_ended_with_all_others(node: Path) -> None:
    # time is the subject; a rank that is silent so long before it hangs ends as one that hangs
    path = write(
        node,
        trainer=default(silence_limit=20, env={"RANK_KIND": "hang"}),
        changes={"x": {"args": ["--x"]}},
    )
    assert ablate("run", path, "--no-report") == 1
    assert set(statuses("foreign").values()) == {"timeout"}
    copies = str(node / "results")
    assert [
        p for p in psutil.process_iter(["cwd"]) if str(p.info["cwd"] or "").startswith(copies)
    ] == []
