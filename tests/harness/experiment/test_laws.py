"""What the laws of an idea call a difference between two small trainings."""

from types import SimpleNamespace

import torch

from harness.experiment.laws import Trained


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
