"""One line of the study's table and the bars it is held to."""

from collections.abc import Sequence
from dataclasses import dataclass

SIZES = (3, 5, 10, 20)
AT_MOST = 200_000  # replications where whole experiments are arrays: rates of 5 % then lie within 0.1 % of the truth
COVERAGE, FAMILY, WIDTH, POWER = 0.93, 0.05, 1.5, 0.80
FAR = "noise far from equal"  # kinds that show what is lost far outside of what is promised
FAR_FAMILY = {"3": 0.075}  # by blocks
FAR_FAMILY_ELSE = 0.06
BEYOND_CONDITION = "beyond the condition"  # is shown, with a bar of what it costs at most
BEYOND_FAMILY = {  # of kinds that begin so, the first that fits
    "the best of 16": 1.0,
    "difference, one experiment split": 0.17,
    "difference": 0.10,
    "anytime-valid, 1 arm": 0.15,
    "anytime-valid, 4 arms": 0.30,
    "false among the kept": 1.0,
    "lack of fit": 0.20,
}
BEYOND = f"no noise in the baseline: {BEYOND_CONDITION}"
POWER_ROWS = (
    "power, "  # kinds that begin so show how power grows with n, and have no bar but that it does
)


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

    def _family_bar(self) -> float:
        if BEYOND_CONDITION in self.noise:
            return next(bar for kind, bar in BEYOND_FAMILY.items() if self.kind.startswith(kind))
        return FAR_FAMILY.get(self.n, FAR_FAMILY_ELSE) if FAR in self.kind else FAMILY

    def misses(self) -> list[str]:
        """Bars this row misses, shares judged as they are printed, to a tenth of a percent."""
        bars = (
            ("coverage", self.coverage, COVERAGE, 1),
            ("simultaneous coverage", self.simultaneous, COVERAGE, 1),
            ("family error", self.family_error, self._family_bar(), -1),
            ("width", self.width, WIDTH, -1),
            ("power", self.power, 0.0 if self.kind.startswith(POWER_ROWS) else POWER, 1),
        )
        return [
            f"{name} {value:.3f}"
            for name, value, bar, sign in bars
            if value is not None and sign * (round(value, 3) - bar) < 0
        ]


def falls(rows: Sequence[Row]) -> list[str]:
    """Where power falls from a row to the next of its kind and noise, which has more blocks."""
    last: dict[tuple[str, str], Row] = {}
    found = []
    for row in rows:
        if not row.kind.startswith(POWER_ROWS) or row.power is None:
            continue
        before = last.get((row.kind, row.noise))
        if before is not None and before.power is not None and row.power < before.power:
            found.append(
                f"{row.kind}: {before.power:.3f} at {before.n}, {row.power:.3f} at {row.n}"
            )
        last[row.kind, row.noise] = row
    return found
