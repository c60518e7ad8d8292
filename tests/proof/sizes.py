"""How many seeds the same power takes: before the two-way model at every n, with it, and with a declared noise.

Read from the study's rows."""

from collections.abc import Sequence

from tests.proof.patterns import PAIRED_FROM
from tests.proof.row import POWER, POWER_ROWS, Row

SIZES_BEGIN, SIZES_END = "<!-- seeds: begin -->", "<!-- seeds: end -->"
CASES = (
    ("1 arm", 2.0),
    ("1 arm of public runs", 2.0),
    ("4 arms", 2.0),
    ("15 arms", 2.0),
    ("15 arms", 2.5),
)


def powers(rows: Sequence[Row], kind: str) -> dict[int, float]:
    """Blocks -> power."""
    return {int(row.n): row.power for row in rows if row.kind == kind and row.power is not None}


def needed(power_by_n: dict[int, float]) -> str:
    """The fewest blocks from which on the power is enough."""
    short = [n for n, power in power_by_n.items() if round(power, 3) < POWER]
    enough = [n for n in power_by_n if n > max(short, default=0)]
    return str(min(enough)) if enough else ""


def sizes_table(rows: Sequence[Row]) -> str:
    lines = [
        "| arms, effect | before | now | with `prior_noise` |",
        "|---|---|---|---|",
    ]
    for arms, effect in CASES:
        kind = f"{POWER_ROWS}{arms}, effect {effect:g} sd"
        now, paired = powers(rows, kind), powers(rows, f"{kind}, a paired t each")
        few = {n: power for n, power in now.items() if n < PAIRED_FROM}
        before = few | paired if paired else now
        moderated = powers(rows, f"{kind}, moderated variance")
        lines.append(
            f"| {arms}, {effect:g} sd | {needed(before)} | {needed(now)} | {needed(moderated)} |"
        )
    return "\n".join(lines)
