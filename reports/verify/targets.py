"""A target that the baseline's first block set, by plain sums over the page's rows."""

from collections.abc import Iterator, Sequence

from reports.verify.page import Embedded, Row


def check_target(data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """The target against midway between that block's losses at the shortest and longest budget."""
    plan = data["plan"]
    target = plan.get("target") or {}
    if not target.get("from_baseline"):
        return
    first = [row for row in rows if row["arm"] == plan["baseline"] and row["role"] == "loss"]
    first = [row for row in first if row["seed"] == plan["seeds"][0]]
    budgets = sorted({row["budget"] for row in first})
    done = all(row["status"] == "finished" and row["val_loss"] is not None for row in first)
    fresh = data.get("accept_stale") or not any(row["stale"] for row in first)
    expected = None
    if budgets and done and fresh:
        ends = []
        for budget in (budgets[0], budgets[-1]):
            losses = [row["val_loss"] for row in first if row["budget"] == budget]
            ends.append(sum(losses) / len(losses))
        expected = (ends[0] + ends[1]) / 2
    said = target.get("val_loss")
    if (said is None) != (expected is None) or abs((said or 0) - (expected or 0)) > 0.00051:
        yield f"the target is {said}, but the baseline's first block sets {expected}"
