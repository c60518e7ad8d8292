"""What is trained on. Validation is plain cross-entropy, whatever stands here."""

from dataclasses import dataclass
from typing import Literal

from .toggle import ON, toggle


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The training loss: mean cross-entropy of the next token, unless more is said."""

    reduction: Literal["mean", "sum_per_rank"] = toggle(
        "mean",
        record="r02",
        choices={"sum_per_rank": "r22"},
        doc="gradients are those of a pass's mean loss, or of the sum over its tokens",
    )
    scale: float = toggle(
        1.0,
        record="r65",
        choices={2.0: "r65"},
        doc="factor on the training loss, for its gradients alone",
        gt=0,
        le=2**20,
    )
    next_tokens: tuple[float, ...] = toggle(
        (),
        record="r53",
        affects=("schedule", "loss"),
        example=(1.0, 0.5),
        doc=(
            "weights of the losses on the next token, the one after it, ..., by the same logits;"
            " the last falls to 0 over the first stage, the one before it over the second, ...;"
            " [1, 0.5, 0.25] in record 53"
        ),
        conflicts={"*": {"model.loss_rows": ON}},
    )
    prefix_weight: float = toggle(
        0.0,
        record="r88",
        affects=("schedule", "loss"),
        choices={0.25: "r88"},
        doc=(
            "weight of the loss on the longest token that the next one begins with, falling to 0"
            " over the second stage; tokens of several bytes are needed"
        ),
        ge=0,
        conflicts={"*": {"model.loss_rows": ON}},
    )
