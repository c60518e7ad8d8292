"""What an experiment can detect, and for what price: said before anything is spent."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.machines import ASIDE
from harness.errors import UserError
from harness.run.document import Content

if TYPE_CHECKING:
    from harness.experiment.cost import PricedCost
    from harness.experiment.experiment import Experiment
    from harness.run.spec import PlannedRun
    from reports.analysis.assumptions import Known
    from reports.stats.moderated import Prior

ALPHA = 0.05
PUBLISHED_TEXT = "fineweb10B"  # as the benchmark's corpora begin


@dataclass(frozen=True, kw_only=True)
class Needed:
    """What so many seeds take in all."""

    runs: int
    hours: float | None
    price: float | None


@dataclass(frozen=True, kw_only=True)
class Power:
    """What the seeds of an experiment can tell apart, and what was assumed for that."""

    sd: float  # of one run's loss
    source: str
    n: int  # seeds, the most there can be
    comparisons: int
    detectable: float | None  # the smallest difference in loss; None: none can be tested
    steps: float | None  # the same in steps; None: the slope is of another scale
    tokens: float | None  # and in tokens, of the baseline's steps
    seconds: float | None  # and in seconds; None: the step time is not known
    slope: float  # loss per step
    slope_source: str
    step_ms: float | None
    step_source: str
    detect: float | None  # the difference that was asked for
    seeds_needed: int | None  # for it; None: more than are looked for
    needed: Needed | None  # what these seeds take
    budgets: list[int] | None  # that would bracket the target
    words: list[str]
    step_tokens: float  # of the baseline, on average over its schedule

    def to_mapping(self) -> Content:
        return asdict(self)


def known_of(e: "Experiment", results: Path) -> "Known":
    """What is known of the experiment's noise, slope and step time.

    From its own runs, else from the nearest there are.
    """
    from harness.config.run import plain
    from harness.config.scales import load_scale
    from harness.store.plans import read_plan
    from reports.analysis.assumptions import (
        Noise,
        nearest_known,
        noise_at_scale,
        plans_of_ours,
        same_baseline,
    )
    from reports.inputs.load import load
    from reports.stats.loss_model import Slope

    steps = e.longest
    slope = None
    if e.slope is not None:
        slope = Slope(**asdict(e.slope))
    try:
        launched = alike = None
        plan, baseline = read_plan(results, e.name), plain(e.baseline.config)
        others = plans_of_ours(results)
        if plan is not None and plan.baseline_config == baseline:
            others = [other for other in others if other.name != e.name]
            if plan.branch_at == e.branch_at:
                launched = load(e.name, results=results)
        nearest = same_baseline(results, others, baseline, branch_at=e.branch_at)
        recorded = load_scale(e.scale, e.base).era.noise
        if nearest is not None:
            alike = load(nearest, results=results)
        corpus = e.baseline.config.data.corpus
        noise = noise_at_scale(results, others, e.scale, corpus=corpus)
        if noise is None and recorded:
            noise = Noise(sd=recorded.sd, df=recorded.df, source=recorded.source)
            if recorded.corpus not in (None, corpus):
                noise = replace(noise, source=f"{noise.source} on {recorded.corpus}: another text")
        elif noise is None:
            noise = noise_at_scale(results, others, e.scale)
            if noise is not None:
                noise = replace(noise, source=f"{noise.source}: on other text")
        return nearest_known(
            launched,
            base=e.base,
            scale=e.scale,
            steps=steps,
            slope=slope,
            alike=alike,
            noise=noise,
            as_published=is_as_published(e),
        )
    except ValueError as error:
        raise UserError(str(error)) from None


def is_as_published(e: "Experiment") -> bool:
    """Whether the baseline is what its record was published with, but for its length."""
    if not e.baseline.config.data.corpus.startswith(PUBLISHED_TEXT):
        return False
    return all(name.startswith(ASIDE) for name in e.departures)


def power_of(
    e: "Experiment",
    planned: "list[PlannedRun]",
    cost: "PricedCost",
    assumed: "Known",
    detect: float | None,
) -> Power:
    """What this many seeds can detect in loss, steps and seconds.

    detect: a difference in loss; how many seeds it needs, and what they cost.
    """
    from harness.experiment.budgets import trained_in
    from reports.analysis.prior import prior_of
    from reports.stats.planning import plan_detectable, seeds_needed

    n_arms, prior, (n, level, anytime) = len(e.arms) - 1, prior_of(e.prior_noise), _seeds(e)
    able = plan_detectable(
        sd=assumed.sd,
        n=n,
        n_arms=n_arms,
        level=level,
        slope=assumed.slope,
        step_ms=assumed.step_ms,
        anytime=anytime,
        prior=prior,
    )
    seeds = needed = None
    if detect is not None:
        try:
            seeds = seeds_needed(
                detect, sd=assumed.sd, n_arms=n_arms, level=level, anytime=anytime, prior=prior
            )
        except ValueError as error:
            raise UserError(f"--detect: {error}") from None
        needed = _needed(seeds, e, planned, cost)
    of_step = trained_in(e.baseline.config, e.longest) / e.longest
    steps = able.steps if assumed.slope_is_of_scale else None
    power = Power(
        sd=assumed.sd,
        source=assumed.sd_source,
        n=n,
        comparisons=n_arms,
        detectable=able.loss,
        steps=steps,
        tokens=None if steps is None else steps * of_step,
        seconds=able.seconds if assumed.slope_is_of_scale else None,
        slope=assumed.slope.per_step,
        slope_source=assumed.slope.source,
        step_ms=assumed.step_ms,
        step_source=assumed.step_source,
        detect=detect,
        seeds_needed=seeds,
        needed=needed,
        budgets=_budgets(e, assumed),
        words=[],
        step_tokens=of_step,
    )
    unit = "h of one slot" if cost.gpu_hours is None else "GPU-hours"
    told = _words(power, anytime, unit, in_tokens=e.tells_tokens)
    return replace(power, words=[*told, *_prior_words(prior)])


def _seeds(e: "Experiment") -> tuple[int, float, bool]:
    """How many there are at most, the level of intervals, and whether they hold at every look."""
    if e.seeds_rule:
        return e.seeds_rule.most, 1 - float(e.seeds_rule.stop.get("decide", ALPHA)), True
    return len(e.seeds), 1 - float(ALPHA), False


def _words(power: Power, anytime: bool, unit: str, *, in_tokens: bool) -> list[str]:
    """unit: of the hours of what is needed; in_tokens: whether lengths are told in these too."""
    lines = [f"noise: sd {power.sd:.4f} of one run's loss ({power.source})"]
    lines += _detectable_words(power, anytime, in_tokens=in_tokens)
    if power.detect is not None:
        lines.append(_needed_words(power, unit))
    if power.budgets:
        least, most = power.budgets
        lines.append(f"budgets that would bracket the target: {least}, {most}")
        if in_tokens:
            tokens = ", ".join(f"{n * power.step_tokens / 1e6:.4g}M" for n in power.budgets)
            lines[-1] += f" steps, of the baseline {tokens} tokens"
    return lines


def _prior_words(prior: "Prior | None") -> list[str]:
    if prior is None:
        return []
    moderated = f"variance moderated by a declared sd of {prior.sd:.2g}"
    return [f"{moderated} that counts for {prior.df:g} degrees of freedom"]


def _detectable_words(power: Power, anytime: bool, *, in_tokens: bool) -> list[str]:
    from reports.stats.verdicts import enough_for_sequence, enough_to_permute

    n, n_arms = power.n, power.comparisons
    if power.detectable is None and n == 1:
        return ["one seed: no difference can be tested"]
    if power.detectable is None:
        return [
            f"{n} seeds: no difference can be decided, sequences over {n_arms} arms are unbounded "
            f"below {enough_for_sequence(n_arms, ALPHA)}"
        ]
    seeds = f"at most {n} seeds decide" if anytime else f"{n} seeds detect"
    comparisons = f"{n_arms} comparison{'s' if n_arms > 1 else ''}"
    able = (
        f"smallest difference that {seeds} (power 0.8, {comparisons}): {power.detectable:.4f} in "
        "loss"
    )
    lines = [f"{able}; in steps known after runs at several budgets, or by `slope`"]
    if power.steps is not None:
        lines = _in_steps(power, able, in_tokens=in_tokens)
    enough = enough_to_permute(n_arms, ALPHA)
    if not anytime and n < enough:
        lines.append(
            f"  should runs diverge, no verdict on the loss is possible below {enough} seeds"
        )
    return lines


def _in_steps(power: Power, able: str, *, in_tokens: bool) -> list[str]:
    """The same in steps and seconds. able: what it is in loss, in words."""
    seconds = f"seconds {power.step_source}"
    if power.seconds is not None:
        seconds = f"{power.seconds:.3g} s"
    length, million = f"{power.steps:.3g} steps", ""
    if in_tokens and power.tokens is not None:
        length += f" ({power.tokens / 1e6:.3g}M tokens of the baseline)"
        million = f", a million of its tokens {power.slope / power.step_tokens * 1e6:.3g}"
    lines = [
        f"{able}, {length}, {seconds}",
        f"  a step is worth {power.slope:.3g} of loss{million} ({power.slope_source})",
    ]
    if power.seconds is not None:
        lines.append(f"  a step takes {power.step_ms:.4g} ms ({power.step_source})")
    return lines


def _needed_words(power: Power, unit: str) -> str:
    from reports.stats.planning import MAX_SEEDS

    seeds = power.seeds_needed or f"more than {MAX_SEEDS}"
    sentence = f"a difference of {power.detect:g} needs {seeds} seeds per arm"
    if power.needed is None:
        return sentence
    sentence += f": {power.needed.runs} runs in all"
    if power.needed.hours is not None:
        sentence += f", about {power.needed.hours:.2f} {unit}"
    if power.needed.price is not None:
        sentence += f", about {power.needed.price:.2f} in price"
    return sentence


def _budgets(e: "Experiment", assumed: "Known") -> list[int] | None:
    """Budgets around every arm's N* where the experiment's do not bracket its target.

    Before any run around the one it has.
    """
    from reports.stats.planning import bracketing_budgets

    if e.target is None or assumed.bracketed:
        return None
    guess = list(assumed.n_star)
    if not guess:
        if len(e.budgets) > 1:
            return None
        guess = [float(e.longest)]
    multiple = 10 if min(guess) > 100 else 1
    return list(bracketing_budgets(guess, multiple=multiple))


def _needed(
    seeds: int | None, e: "Experiment", planned: "list[PlannedRun]", cost: "PricedCost"
) -> Needed | None:
    """Runs, hours and price of so many seeds in all, from the mean cost of what is missing."""
    if seeds is None:
        return None
    runs = seeds * len(planned) // len(e.seeds)
    return Needed(
        runs=runs,
        hours=_share(cost.hours, runs, cost.runs),
        price=_share(cost.price, runs, cost.runs),
    )


def _share(total: float | None, runs: int, of_runs: int) -> float | None:
    """What some runs take where `of_runs` take `total`; None where that is not known."""
    if total is None or not of_runs:
        return None
    return total / of_runs * runs
