"""The noise of a loss that a plan declares: what it says, whether in time, whether it fits."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import pandas as pd

from harness.run.plan import Plan, PriorNoise
from reports.analysis.cautions import Caution
from reports.analysis.types import Comparison
from reports.stats.contrasts import Method
from reports.stats.moderated import Prior


def prior_of(declared: PriorNoise | None) -> Prior | None:
    """As the statistics take it; None where none is declared."""
    return None if declared is None else Prior(sd=declared.sd, df=declared.df)


def prior_is_late(plan: Plan) -> bool:
    """Whether it was declared, changed or taken back after the first launch."""
    if not plan.locks:
        return plan.prior_noise is not None
    noise = None if plan.prior_noise is None else asdict(plan.prior_noise)
    return bool(plan.locks[0].plan.get("prior_noise") != noise)


def prior_cautions(plan: Plan, losses: pd.DataFrame, arms: Sequence[str]) -> list[Caution]:
    """What is doubtful about it; losses: of these arms, as they are compared.

    An arm that alters the noise is not moderated by it, and says nothing against it.
    """
    if prior_is_late(plan):
        return [Caution.PRIOR_DECLARED_LATE]
    prior = prior_of(plan.prior_noise)
    pooled = [arm for arm in arms if not plan.by_arm[arm].alters_noise]
    if prior is not None and prior.is_too_small(*sd_beside_blocks(losses, pooled)):
        return [Caution.PRIOR_TOO_SMALL]
    return []


def prior_note(plan: Plan, comparisons: Iterable[Comparison]) -> list[str]:
    """The analysis of losses by name where one is moderated, with what it adds to the runs."""
    prior = plan.prior_noise
    if prior is None or all(c.method != Method.MODERATED for c in comparisons):
        return []
    return [
        f"Validation loss by the {Method.MODERATED}: the runs' variance is averaged with that "
        f"of an sd of {prior.sd:.2g}, which counts for {prior.df:g} degrees of freedom "
        f"({prior.source})."
    ]


def sd_beside_blocks(runs: pd.DataFrame, arms: Sequence[str]) -> tuple[float, int]:
    """(one run's sd of the loss where its block and its arm are known, df); nan with 0 df.

    Over the blocks in which every arm finished, at every budget."""
    done = runs[(runs["status"] == "finished") & runs["val_loss"].notna() & runs["block"].notna()]
    squares, df = 0.0, 0
    for _, of_budget in done.groupby("budget"):
        table = of_budget.pivot_table(index="block", columns="arm", values="val_loss")
        y = table.reindex(columns=list(arms)).dropna().to_numpy(float)
        n, k = y.shape
        if n < 2 or k < 2:
            continue
        left = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
        squares += float((left**2).sum())
        df += (n - 1) * (k - 1)
    if not df or not squares > 0:
        return math.nan, 0
    return math.sqrt(squares / df), df
