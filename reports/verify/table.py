"""One metric of a page's rows as the second path reads it, and what a printed value may stand for.

Losses are in nats, metrics of a script's own in their unit, times enter as logarithms.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from reports.stats.digits import room, same_number, unit
from reports.verify.page import Embedded, Printed, Row

LOG_SCALE = ("step_ms", "train_time_s", "time_to_target")  # compared as logarithms
ALPHA = 0.05  # simultaneous over the arms of a table
WITHIN = 2e-3  # of a probability: what integration on a grid may be off


@dataclass(frozen=True, kw_only=True)
class Table:
    """One metric: every arm's values in blocks, of no block, and its divergences.

    The baseline stands apart.
    """

    metric: str
    baseline: str
    blocks: Mapping[str, Mapping[Any, float]]
    loose: Mapping[str, Sequence[float]]
    diverged: Mapping[str, int]

    @classmethod
    def of(cls, metric: str, baseline: str, rows: Sequence[Row]) -> "Table":
        """The table of these rows, a block's mean where an arm has several runs in it.

        Of times, a block that several nodes made is a block of each of them; of several sessions
        the rows with a partner there count.
        """
        is_time = metric in LOG_SCALE
        shared: set[Any] = set()
        if is_time:
            rows = side_by_side(rows)
            shared = blocks_on_several_nodes(rows)
        blocks: dict[str, dict[Any, list[float]]] = {}
        loose: dict[str, list[float]] = {}
        diverged: dict[str, int] = {}
        for row in rows:
            arm = row["arm"]
            if not is_time and row["status"] == "diverged":
                diverged[arm] = diverged.get(arm, 0) + 1
                continue
            if row["status"] != "finished" or row[metric] is None:
                continue
            value = row[metric]
            if is_time:
                value = math.log(value)
            loose.setdefault(arm, []).append(value)
            block = row["block"]
            if not is_time and row.get("seed", 0) is None:
                block = None
            if block in shared:
                block = (block, row.get("node"))
            if block is not None:
                blocks.setdefault(arm, {}).setdefault(block, []).append(value)
        means: dict[str, dict[Any, float]] = {}
        for arm, in_blocks in blocks.items():
            means[arm] = {block: fmean(values) for block, values in in_blocks.items()}
        return cls(metric=metric, baseline=baseline, blocks=means, loose=loose, diverged=diverged)

    def n_blocks(self) -> int:
        """Blocks of the baseline."""
        return len(self.blocks.get(self.baseline, {}))

    def differences(self, arm: str) -> list[float]:
        """Arm minus baseline in each block that both have."""
        of_arm = self.blocks.get(arm, {})
        of_baseline = self.blocks.get(self.baseline, {})
        return [of_arm[block] - of_baseline[block] for block in of_baseline if block in of_arm]

    def no_divergence_beside(self, arm: str) -> bool:
        """Whether neither the arm nor the baseline has a run that diverged."""
        return not self.diverged.get(arm) and not self.diverged.get(self.baseline)

    def complete(self) -> bool:
        """Whether every arm has one run in each of the baseline's blocks, and none diverged."""
        if self.diverged or set(self.blocks) != set(self.loose):
            return False
        base = set(self.blocks.get(self.baseline, {}))
        for arm, in_blocks in self.blocks.items():
            if set(in_blocks) != base or len(self.loose[arm]) != len(base):
                return False
        return True

    def one_run_a_block(self) -> bool:
        """Whether no arm with blocks repeats one or has a run outside them."""
        return all(len(self.loose[arm]) == len(in_blocks) for arm, in_blocks in self.blocks.items())


def side_by_side(rows: Sequence[Row]) -> list[Row]:
    """Of several sessions the finished rows that have one of another arm in block and session."""
    if len({row.get("session") for row in rows}) < 2:
        return list(rows)
    arms: dict[Any, set[str]] = {}
    in_blocks = [row for row in rows if row["status"] == "finished" and row["block"] is not None]
    done = [row for row in in_blocks if row.get("session")]
    for row in done:
        arms.setdefault((row["block"], row["session"]), set()).add(row["arm"])
    cut: list[Row] = []
    for row in done:
        place = (row["block"], row["session"])
        if len(arms[place]) > 1:
            cut.append({**row, "block": place})
    return cut


def blocks_on_several_nodes(rows: Sequence[Row]) -> set[Any]:
    """The blocks whose rows name more than one node."""
    nodes_of: dict[Any, set[str]] = {}
    for row in rows:
        if row["block"] is not None and row.get("node"):
            nodes_of.setdefault(row["block"], set()).add(row["node"])
    return {block for block, nodes in nodes_of.items() if len(nodes) > 1}


def arms_elsewhere(rows: Sequence[Row], arms: Sequence[str], baseline: str) -> list[str]:
    """The arms that, with the baseline, ran on more nodes than one."""
    nodes: dict[str, set[str]] = {}
    for row in rows:
        if row.get("node"):
            nodes.setdefault(row["arm"], set()).add(row["node"])
    base = nodes.get(baseline, set())
    return [arm for arm in arms if len(nodes.get(arm, set()) | base) > 1]


def arms_nowhere(rows: Sequence[Row], arms: Sequence[str], baseline: str) -> list[str]:
    """The arms of which, or of whose baseline, no node is known, where logs of either came in."""
    somewhere = {row["arm"] for row in rows if row.get("node")}
    imported = {row["arm"] for row in rows if row.get("imported")}
    nowhere = []
    for arm in arms:
        pair = {arm, baseline}
        if pair & imported and pair - somewhere:
            nowhere.append(arm)
    return nowhere


def own_metrics(plan: Embedded) -> dict[str, str]:
    """Metrics of foreign scripts' own that the baseline's script is read for: name -> better."""
    side: Embedded = {}
    for arm in plan["arms"]:
        if arm["name"] == plan["baseline"]:
            side = arm.get("side") or {}
    metrics = (side.get("readings") or {}).get("metrics") or ()
    return {m["name"]: m["better"] for m in metrics if m["name"] != "val_loss"}


def on_scale(value: float | None, metric: str) -> float:
    """A printed value on the scale of the analysis.

    A difference as it is, the fraction of a time as a logarithm.
    """
    if value is None:
        value = math.nan
    if metric not in LOG_SCALE:
        return value
    if value > -1.0:
        return math.log1p(value)
    return -math.inf


def reach(end: float, metric: str) -> tuple[float, float]:
    """The least and the largest value that a page carries as this one, which is rounded."""
    half = unit(end) / 2 + room(end)
    return on_scale(end - half, metric), on_scale(end + half, metric)


def near(a: float, b: float | None, tolerance: float) -> bool:
    return b is not None and (a == b or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)))


def agree_p(printed: Mapping[str, Printed], metric: str, p: float, arm: str) -> Iterator[str]:
    """A sentence where the printed p value is not this one."""
    part = printed.get(f"{metric}.p")
    if part is not None and not near(part.values[0] or 0.0, p, WITHIN):
        yield f"arm {arm!r}: {metric}.p is printed as {part.text} but the rows give {p:.4g}"


def agree_scatter(
    printed: Mapping[str, Printed], metric: str, differences: Sequence[float], arm: str
) -> Iterator[str]:
    """A sentence where the printed sd of an arm's differences within blocks is not this one."""
    part = printed.get(f"{metric}.sd_paired")
    if part is None:
        return
    if len(differences) < 2:
        yield f"arm {arm!r}: {metric}.sd_paired is printed of fewer than two blocks"
        return
    expected = stdev(differences)
    if not same_number(part.values[0], expected):
        yield f"arm {arm!r}: {metric}.sd_paired is {part.text} but the rows give {expected:.4g}"
