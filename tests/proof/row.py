"""One line of the study's table and the bars it is held to."""

import math
from dataclasses import dataclass

SIZES = (3, 5, 10, 20)
COVERAGE, FAMILY, WIDTH, POWER = 0.93, 0.05, 1.5, 0.80


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; None where a column does not apply. `held` is False for a row shown as a caution only."""

    kind: str
    n: str
    noise: str
    replications: int
    coverage: float | None = None  # of the single interval that covers least
    simultaneous: float | None = None  # of all intervals of a family at once
    family_error: float | None = None
    width: float | None = None  # median, over the oracle's
    unbounded: float | None = None
    power: float | None = None
    held: bool = True

    def misses(self) -> list[str]:
        """Bars this row misses by more than three standard errors of its own simulation."""

        def slack(p: float) -> float:
            return 3 * math.sqrt(p * (1 - p) / self.replications)

        out = []
        for name, value in (("coverage", self.coverage), ("simultaneous coverage", self.simultaneous)):
            if value is not None and value < COVERAGE:
                out.append(f"{name} {value:.3f}")
        if self.family_error is not None and self.family_error > FAMILY + slack(FAMILY):
            out.append(f"family error {self.family_error:.3f}")
        if self.width is not None and self.width > WIDTH:
            out.append(f"width {self.width:.2f}")
        if self.power is not None and self.power < POWER - slack(POWER):
            out.append(f"power {self.power:.3f}")
        return out if self.held else []
