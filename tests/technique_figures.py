"""What the published runs say of a record, for the technique cards."""

from dataclasses import dataclass, replace
from functools import cache
from math import hypot, sqrt

from scipy import stats

from reports.analysis.chain import ChainRow, Gain, chain_rows
from reports.inputs.history import ArmFigures, read_history
from reports.inputs.noise import PUBLISHED, TRACK, BenchmarkNoise, benchmark_noise
from reports.inputs.published import era_sd, read_table
from reports.page.history import cells

Z = 1.96


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a record's logs say of it against its parent."""

    row: ChainRow
    by_era: bool  # too few runs: its intervals are those of the era's noise

    @property
    def shown(self) -> dict[str, str]:
        return cells(self.row)


@cache
def figures() -> dict[int, Figure]:
    """Record of the short track -> its figure; of one that was published again, the first."""
    links, arms = read_history()
    noise = benchmark_noise()
    found: dict[int, Figure] = {}
    for row in chain_rows(links[TRACK], arms[TRACK], noise):
        number = int(row.link.record)
        if number not in found:
            found[number] = with_intervals(row, noise)
    return found


def with_intervals(row: ChainRow, noise: BenchmarkNoise) -> Figure:
    """With intervals of the era's noise of one run, where an arm has too few runs of its own."""
    if row.arm is None or row.parent is None or row.loss is None or row.loss.low is not None:
        return Figure(row=row, by_era=False)
    slope = noise.slope
    half_loss = Z * hypot(error_of(row.arm, noise), error_of(row.parent, noise))
    of_slope = Z * slope.se / slope.nats_per_log_step * row.loss.value
    half_steps = hypot(half_loss, of_slope) / slope.nats_per_log_step
    half_time = node_difference(noise)
    filled = replace(
        row,
        loss=around(row.loss, half_loss),
        learning=around(row.learning, half_steps),
        systems=around(row.systems, half_time),
        total=around(row.total, hypot(half_steps, half_time)),
        time_s=None,
    )
    return Figure(row=filled, by_era=True)


def node_difference(noise: BenchmarkNoise) -> float:
    """What 95 % of the differences of two nodes are within, on the log of a time."""
    return float(stats.t.isf(0.025, noise.nodes.df)) * noise.nodes.of_two.se


def error_of(arm: ArmFigures, noise: BenchmarkNoise) -> float:
    """Standard error of an arm's mean loss by the era's sd of one run."""
    return noise.era_of(arm.track, arm.date).sd / sqrt(arm.n)


def around(gain: Gain | None, half: float) -> Gain | None:
    if gain is None:
        return None
    return Gain(value=gain.value, low=gain.value - half, high=gain.value + half)


def rung(name: str) -> str:
    """What a rung of record 9's own ladder says."""
    rows = read_table(PUBLISHED / "r09_ladder.csv")
    place = [row["change"] for row in rows].index(name)
    before, after = float(rows[place - 1]["val_loss"]), float(rows[place]["val_loss"])
    error = Z * sqrt(2) * era_sd("r09")
    ms = [float(rows[i]["step_ms"]) for i in (place - 1, place)]
    return (
        f"Record 9's own ladder, `{name}` at {rows[place]['steps']} steps: {before:.4f} to {after:.4f}, "
        f"{after - before:+.4f} ± {error:.4f} (one run an arm, 95 % by the era's sd of one run); "
        f"{ms[0]:.1f} to {ms[1]:.1f} ms a step."
    )


def optimizers() -> str:
    """What the comparison of optimizers on record 7 says."""
    rows = read_table(PUBLISHED / "optimizers_on_r07.csv")
    error = Z * sqrt(2) * era_sd("r07")
    of_arms = [f"{row['arm']} {row['val_loss']} ({row['step_ms']} ms a step)" for row in rows]
    return (
        f"Record 7's network with other optimizers, {rows[0]['steps']} steps: {', '.join(of_arms)}. "
        f"One run an arm: a difference is known to ±{error:.4f} (95 %, by the era's sd of one run)."
    )
