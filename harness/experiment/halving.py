"""The key `halving`: what it asks of the rest of a file. The rungs are made in rungs.py."""

from collections.abc import Sequence

from harness.experiment.arms import Arm
from harness.experiment.file import ExperimentFile
from harness.experiment.keys import is_whole
from harness.run.halving import Halving

MOST_IN = 100  # points of which one goes on
LEAST_SEEDS = 2  # whose spread tells how many seeds confirm


def read_halving(
    file: ExperimentFile, arms: Sequence[Arm], budgets: Sequence[int], seeds: Sequence[int]
) -> Halving | None:
    """The first rung; None without the key.

    Raises UserError for what is no sweep of the baseline over several budgets."""
    one_in = file.data.get("halving")
    if one_in is None:
        return None
    if not is_whole(one_in) or not 2 <= one_in <= MOST_IN:
        raise file.fail(
            f"halving is {one_in!r}, but must be a whole number from 2 to {MOST_IN}: of so many "
            "points one goes on to the next budget",
            "halving",
        )
    for key, why in _in_the_way(file).items():
        raise file.fail(f"halving: {why}", key if key in file.data else "halving")
    if len(budgets) < 2:
        raise file.fail(
            "halving: points go on from one of `budgets` to the next: give two or more, such as "
            "budgets: [x0.25, x0.5, x1]",
            "halving",
        )
    if len(arms) - 1 < one_in:
        raise file.fail(
            f"halving: one in {one_in} goes on, but there are {len(arms) - 1} points beside the "
            "baseline: give the axes more",
            "halving",
        )
    if len(seeds) < LEAST_SEEDS:
        raise file.fail(
            "halving: one seed tells no noise, by which the seeds that confirm are planned: give "
            f"`seeds` {LEAST_SEEDS} or more",
            "seeds",
        )
    return Halving(one_in=one_in, budgets=tuple(sorted(budgets)), n_points=len(arms) - 1)


def _in_the_way(file: ExperimentFile) -> dict[str, str]:
    """Key -> why it does not go with a halving."""
    data, refused = file.data, {}
    if data.get("changes") or not data.get("axes"):
        refused["changes"] = (
            "its points are those of `axes` without `changes`: leave one of them out"
        )
    if data.get("confirm"):
        refused["confirm"] = "it chooses and confirms nothing: `ablate confirm` writes what does"
    if data.get("primary", "val_loss") != "val_loss":
        refused["primary"] = "the loss chooses: leave `primary` out"
    if isinstance(data.get("seeds"), dict):
        refused["seeds"] = "all points of a rung have the same seeds: give a number of them"
    for key in ("phases", "branch_at", "target", "published"):
        if data.get(key) is not None:
            refused[key] = (
                f"its runs choose by their loss at the end of a budget: leave `{key}` out"
            )
    return refused
