"""What an experiment can detect, and for what price: said before anything is spent."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.run.spec import PlannedRun
    from reports.analysis.assumptions import Known

RECORD_GPUS = 8  # of the public benchmark's machine
ALPHA = 0.05


def known_of(e: "Experiment", results: Path) -> "Known":
    """What is known of the experiment's noise, slope and step time: from its own runs, else from the nearest there are."""
    from harness.config.presets import load_scale
    from harness.config.run import plain
    from harness.store.plans import read_plan
    from reports.analysis.assumptions import (
        Noise,
        known,
        noise_at_scale,
        other_plans,
        same_baseline,
    )
    from reports.inputs.load import load
    from reports.stats.loss_model import Slope

    steps = max(e.budgets, default=e.baseline.config.schedule.steps)
    try:
        own = load(e.name, results=results) if read_plan(results, e.name) is not None else None
        others = other_plans(results, e.name)
        near, recorded = (
            same_baseline(results, others, plain(e.baseline.config)),
            load_scale(e.scale).noise,
        )
        return known(
            own,
            base=e.base,
            scale=e.scale,
            steps=steps,
            slope=None if e.slope is None else Slope(**e.slope),
            alike=load(near, results=results) if near is not None else None,
            noise=noise_at_scale(results, others, e.scale)
            or (Noise(**recorded) if recorded else None),
        )
    except ValueError as error:
        raise UserError(str(error)) from None


def power_of(
    e: "Experiment",
    planned: "list[PlannedRun]",
    cost: dict[str, Any],
    known: "Known",
    detect: float | None,
) -> dict[str, Any]:
    """What this many seeds can detect in loss, steps and seconds; how many a difference of `detect` needs, and what they cost."""
    from reports.stats.planning import plan_detectable, seeds_needed

    rule, k = e.seeds_rule, len(e.arms) - 1
    n, anytime = (rule["max"], True) if rule else (len(e.seeds), False)
    level = 1 - float(rule["stop"].get("decide", ALPHA)) if rule else 1 - ALPHA
    able = plan_detectable(
        sd=known.sd,
        n=n,
        n_arms=k,
        level=level,
        slope=known.slope,
        step_ms=known.step_ms,
        anytime=anytime,
    )
    needed = None
    if detect is not None:
        try:
            needed = seeds_needed(detect, sd=known.sd, n_arms=k, level=level, anytime=anytime)
        except ValueError as error:
            raise UserError(f"--detect: {error}") from None
    out = {
        "sd": known.sd,
        "source": known.sd_source,
        "n": n,
        "comparisons": k,
        "detectable": able.loss,
        "steps": able.steps,
        "seconds": able.seconds,
        "slope": known.slope.per_step,
        "slope_source": known.slope.source,
        "step_ms": known.step_ms,
        "step_source": known.step_source,
        "detect": detect,
        "seeds_needed": needed,
        "needed": _cost_of(needed, e, planned, cost),
        "budgets": _budgets(e, known),
    }
    return {**out, "words": _words(e, out, anytime)}


def _words(e: "Experiment", power: dict[str, Any], anytime: bool) -> list[str]:
    from reports.stats.verdicts import enough_for_sequence, enough_to_permute

    n, k, loss = power["n"], power["comparisons"], power["detectable"]
    words = [f"noise: sd {power['sd']:.4f} of one run's loss ({power['source']})"]
    if loss is None and n == 1:
        words.append("one seed: no difference can be tested")
    elif loss is None:
        words.append(
            f"{n} seeds: no difference can be decided, sequences over {k} arms are unbounded below "
            f"{enough_for_sequence(k, ALPHA)}"
        )
    else:
        seeds = f"at most {n} seeds decide" if anytime else f"{n} seeds detect"
        seconds = power["seconds"]
        words += [
            f"smallest difference that {seeds} (power 0.8, {k} comparison{'s' if k > 1 else ''}): {loss:.4f} in loss, "
            f"{power['steps']:.3g} steps, {'seconds ' + power['step_source'] if seconds is None else f'{seconds:.3g} s'}",
            f"  a step is worth {power['slope']:.3g} of loss ({power['slope_source']})",
        ]
        if seconds is not None:
            words.append(f"  a step takes {power['step_ms']:.4g} ms ({power['step_source']})")
        if not anytime and n < enough_to_permute(k, ALPHA):
            words.append(
                f"  should runs diverge, no verdict on the loss is possible below {enough_to_permute(k, ALPHA)} seeds"
            )
    if power["detect"] is not None:
        words.append(
            f"a difference of {power['detect']:g} needs {power['seeds_needed'] or 'more than 1000'} seeds per arm"
        )
        if needed := power["needed"]:
            amounts = [
                f"about {needed[k]:.2f} {unit}"
                for k, unit in (("hours", "h"), ("price", "in price"))
                if needed[k] is not None
            ]
            words[-1] += ": " + ", ".join([f"{needed['runs']} runs in all", *amounts])
    if power["budgets"]:
        words.append("budgets that would bracket the target: {}, {}".format(*power["budgets"]))
    return words


def _budgets(e: "Experiment", known: "Known") -> list[int] | None:
    """Budgets around every arm's N* where the experiment's do not bracket its target; before any run around the one it has."""
    from reports.stats.planning import bracketing_budgets

    if e.target is None or known.bracketed or (not known.n_star and len(e.budgets) > 1):
        return None
    guess = list(known.n_star) or [float(max(e.budgets, default=e.baseline.config.schedule.steps))]
    return list(bracketing_budgets(guess, multiple=10 if min(guess) > 100 else 1))


def price_of(
    e: "Experiment",
    planned: "list[PlannedRun]",
    done: Collection[str],
    cost: dict[str, Any],
    known: "Known",
    price: float | None,
) -> dict[str, Any]:
    """`cost` with its price at `price` per GPU-hour, or hour of a slot on a CPU; at the published step time before any run."""
    from harness.experiment.cost import hours_of, with_price

    if hours_of(cost) is None and known.step_ms is not None:
        hours = (
            sum(p.spec.budget for p in planned if p.spec.run_id not in done)
            * known.step_ms
            / 3.6e6
            * RECORD_GPUS
        )
        words = f"{cost['words']}; about {hours:.2f} GPU-hours of an H100 ({known.step_source})"
        cost = {**cost, "hours": hours, "words": words}
    return with_price(cost, price)


def _cost_of(
    seeds: int | None, e: "Experiment", planned: "list[PlannedRun]", cost: dict[str, Any]
) -> dict[str, Any] | None:
    """Runs, hours and price of so many seeds in all, from the mean cost of the runs that are missing."""
    if seeds is None:
        return None
    runs = seeds * len(planned) // len(e.seeds)
    per_run = {
        key: cost[key] / cost["runs"] if cost[key] is not None and cost["runs"] else None
        for key in ("hours", "price")
    }
    return {
        "runs": runs,
        **{key: v * runs if v is not None else None for key, v in per_run.items()},
    }
