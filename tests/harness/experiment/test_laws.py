"""What the laws of an idea call a difference between two small trainings."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness.config.run import with_fields
from harness.experiment import laws
from harness.experiment.experiment import load_experiment
from harness.experiment.laws import SMALL, Subject, Trained


def trained(losses: list[float], **weights: list[float]) -> SimpleNamespace:
    after = {name: torch.tensor(values) for name, values in weights.items()}
    return SimpleNamespace(losses=torch.tensor(losses), after=after)


def test_trainings_differ_in_any_loss_or_weight() -> None:
    first = trained([3.0, 2.0], a=[1.0, 2.0], b=[0.0])
    assert not Trained.differs(first, trained([3.0, 2.0], a=[1.0, 2.0], b=[0.0]))
    for other in (
        trained([3.0, 2.5], a=[1.0, 2.0], b=[0.0]),
        trained([3.0, 2.0], a=[1.0, 2.5], b=[0.0]),
        trained([3.0, 2.0], a=[1.0, 2.0]),
    ):
        assert Trained.differs(first, other) and Trained.differs(other, first)


def test_the_baseline_is_held_to_the_laws_and_of_the_arms_those_with_a_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "Trained", lambda config, corpus: config)
    file = tmp_path / "exp.yaml"
    file.write_text("name: exp\nbase: r08\nscale: tiny\nchanges: {a: {model.attn_scale: 0.12}}\n")
    baseline = load_experiment(str(file), device="cpu").baseline.config
    subject = Subject(file, tmp_path)
    assert subject.baseline == subject.config == with_fields(baseline, SMALL)
    assert subject.arms == subject.configs == {}
