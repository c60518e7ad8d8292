"""One line of the study's table and the bars it is held to."""

from dataclasses import dataclass

SIZES = (3, 5, 10, 20)
AT_MOST = 200_000  # replications where whole experiments are arrays: rates of 5 % then lie within 0.1 % of the truth
COVERAGE, FAMILY, WIDTH, POWER = 0.93, 0.05, 1.5, 0.80


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; None where a column does not apply."""

    kind: str
    n: str
    noise: str
    replications: int
    coverage: float | None = None  # of the single interval that covers least
    simultaneous: float | None = None  # of all intervals of a family at once
    family_error: float | None = None
    width: float | None = None  # median over the row's intervals and experiments, over the oracle's
    unbounded: float | None = None
    power: float | None = None

    def misses(self) -> list[str]:
        """Bars this row misses, shares judged as they are printed, to a tenth of a percent."""
        bars = (
            ("coverage", self.coverage, COVERAGE, 1),
            ("simultaneous coverage", self.simultaneous, COVERAGE, 1),
            ("family error", self.family_error, FAMILY, -1),
            ("width", self.width, WIDTH, -1),
            ("power", self.power, POWER, 1),
        )
        return [
            f"{name} {value:.3f}"
            for name, value, bar, sign in bars
            if value is not None and sign * (round(value, 3) - bar) < 0
        ]
