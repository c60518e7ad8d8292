"""Arms for synthetic experiments: a ladder like record 8's, names that try to break out of a page, and arms by the dozen."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm of a synthetic experiment: its effect on the final loss (nats), on the step time and on a step's tokens (factors)."""

    name: str
    loss_effect: float = 0.0
    step_factor: float = 1.0
    token_factor: float = 1.0
    changes: tuple[str, ...] = ()
    fields: tuple[tuple[str, Any], ...] = ()


LADDER = (
    Arm(name="r07"),
    Arm(
        name="untied_head",
        loss_effect=-0.012,
        step_factor=1.02,
        changes=("untied_head",),
        fields=(("model.untied_head", True),),
    ),
    Arm(
        name="untied_head + embed_norm",
        loss_effect=-0.021,
        step_factor=1.03,
        changes=("untied_head", "embed_norm"),
        fields=(("model.untied_head", True), ("model.embed_norm", True)),
    ),
    Arm(
        name="untied_head + embed_norm + zero_head",
        loss_effect=-0.035,
        step_factor=0.97,
        changes=("untied_head", "embed_norm", "zero_head"),
        fields=(("model.untied_head", True), ("model.embed_norm", True), ("model.zero_head", True)),
    ),
    Arm(
        name="r08",
        loss_effect=-0.034,
        step_factor=0.90,
        changes=("untied_head", "embed_norm", "zero_head", "optim_split"),
        fields=(
            ("model.untied_head", True),
            ("model.embed_norm", True),
            ("model.zero_head", True),
            ("optim.split", "three_way"),
        ),
    ),
)
PARTS = {
    "softcap": -0.01,
    "untied_head": -0.02,
    "value_residual": 0.006,
}  # and what the first two lose together:
LOST_TOGETHER = 0.012
FACTORIAL = tuple(
    Arm(
        name=" + ".join(chosen) or "base",
        loss_effect=sum(PARTS[c] for c in chosen)
        + LOST_TOGETHER * ({"softcap", "untied_head"} <= set(chosen)),
        step_factor=1 + 0.01 * n,
        changes=chosen,
        fields=tuple((f"model.{c}", True) for c in chosen),
    )
    for n in range(4)
    for chosen in itertools.combinations(PARTS, n)
)
HOSTILE = (
    Arm(name="base</script><script>alert(1)</script>"),
    Arm(
        name="<script>alert(1)</script>",
        loss_effect=-0.02,
        changes=("<b>bold</b>",),
        fields=(("model.<i>x</i>", "<!-- & \" '"),),
    ),
    Arm(
        name="]]>\u2028\u202e{{ 7*7 }} =HYPERLINK(1)",
        loss_effect=0.01,
        changes=('" onload="alert(1)',),
        fields=(("model.y", "`x`"),),
    ),
)


def many_arms(n_arms: int) -> tuple[Arm, ...]:
    """n_arms arms: a baseline and arms with effects from -0.03 to +0.03."""
    effects = np.linspace(-0.03, 0.03, n_arms - 1)
    changed = (
        Arm(
            name=f"change_{i:02d}",
            loss_effect=float(e),
            changes=(f"change_{i:02d}",),
            fields=((f"model.field_{i:02d}", True),),
        )
        for i, e in enumerate(effects)
    )
    return (Arm(name="base"), *changed)
