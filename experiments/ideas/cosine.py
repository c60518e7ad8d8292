"""cosine: the learning rates fall along half a wave from the first update on (arXiv 1608.03983)."""

import math
from dataclasses import dataclass

from harness.model.config import toggle


@dataclass(frozen=True, kw_only=True)
class Toggles:
    """Set as plugin.cosine.FIELD. While every field has its default, it is off."""

    floor: float | None = toggle(None, record="own", doc="where the wave ends", ge=0, lt=1)


def lr_factor(step: int, steps: int, factor: float, toggles: Toggles) -> float:
    """What multiplies every learning rate at update `step` of `steps`; the preset has `factor`."""
    assert toggles.floor is not None
    wave = (1 + math.cos(math.pi * step / steps)) / 2
    return toggles.floor + (1 - toggles.floor) * wave
