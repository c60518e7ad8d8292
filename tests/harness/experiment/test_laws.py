"""What the laws of an idea call a difference between two small trainings."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.config.run import with_fields
from harness.data.shards import open_shard
from harness.experiment import laws
from harness.experiment.experiment import load_experiment
from harness.experiment.laws import SMALL, Subject, Trained, made_up


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


def test_the_text_of_the_laws_is_documents_of_5_to_99_tokens(tmp_path: Path) -> None:
    corpus = made_up(tmp_path)
    tokens = np.asarray(open_shard(tmp_path / "train.bin"))
    assert (np.asarray(open_shard(tmp_path / "val.bin")) == tokens).all()
    (starts,) = np.nonzero(tokens == 256)
    lengths = np.diff([*starts, len(tokens)])
    assert (len(starts), starts[0], tokens.max()) == (200, 0, 256)
    assert 5 <= lengths.min() < 10 and 90 < lengths.max() <= 99
    assert corpus.tokens == {"train": len(tokens), "val": len(tokens)}
    assert (corpus.vocab_size, corpus.separator, corpus.unit) == (257, 256, "nats per token")


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
