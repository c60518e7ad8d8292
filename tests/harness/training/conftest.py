"""A small run to be trained: its specification."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.corpora.index import prepare
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.run.spec import RunSpec
from tests.fake_matrix import EXPERIMENT, ROOT
from tests.one_training import STEPS


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def spec_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunSpec]:
    """The specification of the baseline, or of another arm, with some fields set."""
    monkeypatch.chdir(ROOT)
    prepare("stdlib")
    file = tmp_path / "fake.yaml"
    file.write_text(EXPERIMENT)

    def make(arm: str = "baseline", **fields: Any) -> RunSpec:
        overrides = {
            "schedule.steps": STEPS,
            **{k.replace("__", "."): v for k, v in fields.items()},
        }
        runs = plan_runs(load_experiment(str(file), device="cpu", overrides=overrides))
        return next(r.spec for r in runs if r.arm == arm)

    return make
