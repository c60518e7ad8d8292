"""compare_all: an experiment's runs in, everything the page prints out.

Thin: the mathematics lives in the modules it calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import pandas as pd

from harness.run.plan import Plan
from reports.analysis import increments as parts
from reports.analysis import samples
from reports.analysis.cautions import Caution
from reports.analysis.comparison import Metric, Pair, TimeDoubts, asking_nothing, comparison_of
from reports.analysis.machines import cut_by_node, within_sessions
from reports.analysis.node_times import with_unknown_nodes
from reports.analysis.notes import (
    environment_notes,
    loss_notes,
    pool_notes,
    session_notes,
    time_notes,
)
from reports.analysis.outcomes import arm_outcomes, noise_floor
from reports.analysis.prior import prior_cautions, prior_is_late, prior_note, prior_of
from reports.analysis.published import beside_the_published
from reports.analysis.remembered import as_remembered, of_the_family
from reports.analysis.step_tokens import token_notes
from reports.analysis.time_estimates import decompositions, time_effects, time_estimates
from reports.analysis.time_model import TimeModel
from reports.analysis.types import (
    LOSSES,
    Comparison,
    Comparisons,
    PublishedVerdict,
    TimeEstimate,
)
from reports.inputs.experiment import Experiment
from reports.stats.anytime import sequences
from reports.stats.contrasts import Effect, Sample, analyse
from reports.stats.verdicts import Next

MEASURED_TIMES = ("step_ms", "train_time_s")  # beside them time to target is estimated


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """What every family of metrics is made from."""

    experiment: Experiment
    baseline: str
    arms: tuple[str, ...]  # without the baseline
    losses: pd.DataFrame  # runs for losses, of all budgets
    losses_at: pd.DataFrame  # at the compared one
    timed: pd.DataFrame  # runs for times, at the compared budget
    times_at: pd.DataFrame  # those of them whose times can be compared
    budget: int | None  # of the losses
    anytime: bool
    level: float  # of these arms together
    raised: float  # by the family: its changes over these arms

    @cached_property
    def time_doubts(self) -> TimeDoubts:
        """Of two arms' times, the same for every metric of them."""
        return cache(partial(samples.time_warnings, self.times_at))

    @property
    def plan(self) -> Plan:
        """The experiment's."""
        return self.experiment.plan

    @property
    def decides(self) -> str:
        """The metric whose noise is told."""
        return samples.deciding_metric(self.plan)

    @property
    def all_arms(self) -> tuple[str, ...]:
        """The baseline first."""
        return (self.baseline, *self.arms)


def compare_all(experiment: Experiment, *, level: float = 0.95) -> Comparisons:
    """Every number of the page by the one declared analysis.

    Raises ValueError where the runs cannot be compared at all."""
    use = samples.usable(experiment)
    compared = _compared(experiment, use, level)
    comparisons: dict[tuple[str, str], Comparison] = {}
    for comparison in (*_losses(compared), *_measured_times(compared)):
        comparisons[comparison.arm, comparison.metric] = comparison
    time_model = TimeModel.of(experiment, compared.losses, compared.times_at, use.arms)
    estimates = time_estimates(time_model, anytime=compared.anytime)
    for comparison in _times_to_target(compared, time_model, estimates):
        comparisons[comparison.arm, "time_to_target"] = comparison
    increments = {}
    for c in _increments(compared, time_model, estimates) if not experiment.memory.lost else ():
        increments[c.arm, c.metric] = of_the_family(c, compared.raised)
    if experiment.confirmations:  # where the question was asked again, and what is open is told
        comparisons = {key: asking_nothing(c) for key, c in comparisons.items()}
        increments = {key: asking_nothing(c) for key, c in increments.items()}
    is_resolved = any(metric == "time_to_target" for _, metric in comparisons)
    primary, notes = _decides(experiment.plan.primary, time_model, is_resolved=is_resolved)
    published, published_notes = _published(compared, time_model)
    notes += [*_notes_on_runs(experiment, compared), *published_notes]
    notes += prior_note(experiment.plan, comparisons.values())
    notes += time_notes([*comparisons.values(), *increments.values()])
    notes += loss_notes(compared.losses_at, compared.arms, compared.budget)
    shares_steps = compared.budget is not None
    notes += token_notes(time_model.step_tokens, estimates, share_steps=shares_steps)
    alpha, anytime = (1 - compared.level) / max(1, len(compared.arms)), compared.anytime
    at = (compared.times_at, compared.budget)
    gains = decompositions(time_model, estimates, *at, alpha=alpha, anytime=anytime)
    outcomes = {}
    for arm in use.arms:
        outcomes[arm] = arm_outcomes(
            experiment, compared.losses_at, compared.timed, arm, anytime=anytime
        )
    of_baseline = samples.sample(compared.losses_at, compared.baseline, compared.decides).values
    return Comparisons(
        baseline=compared.baseline,
        arms=compared.arms,
        primary=primary,
        cells=outcomes,
        comparisons=comparisons,
        increments=increments,
        own_words=parts.own_words(experiment.plan),
        own=experiment.plan.own_metrics,
        times=estimates,
        decompositions=gains,
        step_tokens=time_model.step_tokens,
        noise=noise_floor(of_baseline, anytime=anytime),
        published=published,
        anytime=anytime,
        looks=max(1, experiment.plan.looks),
        budget=compared.budget,
        warnings=(*use.warnings, *_experiment_warnings(compared, use.runs)),
        notes=tuple(notes),
    )


def _decides(primary: str, time_model: TimeModel, *, is_resolved: bool) -> tuple[str, list[str]]:
    """The metric that decides, and a note where it is not the one that was asked for."""
    if primary != "time_to_target" or is_resolved:
        return primary, []
    why = "Time to target is not resolved for any arm, so the loss at equal steps decides: "
    return "val_loss", [why + time_model.why_not]


def _notes_on_runs(experiment: Experiment, compared: _Compared) -> list[str]:
    """What was lost, left out and unsound, and how nodes and sessions differ."""
    notes = [*experiment.memory.notes]
    notes += [f"{sentence}." for sentence in (*experiment.retired, *experiment.unsound)]
    notes += environment_notes(experiment.plan, compared.losses, compared.timed)
    notes += pool_notes(experiment, compared.losses_at)
    notes += session_notes(compared.timed, compared.times_at)
    return notes


def _compared(experiment: Experiment, use: samples.Usable, level: float) -> _Compared:
    losses, times = samples.of_role(use.runs, "loss"), samples.of_role(use.runs, "timing")
    budget = samples.shared_budget(losses, use.arms)
    timed = samples.at_budget(times, samples.shared_budget(times, use.arms))
    return _Compared(
        experiment=experiment,
        baseline=use.arms[0],
        arms=use.arms[1:],
        losses=losses,
        losses_at=samples.at_budget(losses, budget),
        timed=timed,
        times_at=cut_by_node(within_sessions(timed)),
        budget=budget,
        anytime=samples.watched(experiment),
        level=experiment.memory.level(level, len(use.arms) - 1),
        raised=1 / experiment.memory.share(len(use.arms) - 1),
    )


def _losses(compared: _Compared) -> Iterator[Comparison]:
    """The comparisons of losses: at the compared budget, of whatever machine."""
    for metric in (*compared.plan.own_metrics, *LOSSES):
        measured = _samples(compared, compared.losses_at, metric, compared.arms)
        yield from _compare_samples(compared, compared.losses_at, metric, measured)


def _measured_times(compared: _Compared) -> Iterator[Comparison]:
    """The comparisons of times that runs measure: of arms on the baseline's kind of machine."""
    runs, baseline = compared.times_at, compared.baseline
    arms = [arm for arm in compared.arms if samples.same_hardware(runs, arm, baseline)]
    for metric in MEASURED_TIMES:
        measured = _samples(compared, runs, metric, arms)
        yield from _compare_samples(compared, runs, metric, measured)


def _samples(
    compared: _Compared, runs: pd.DataFrame, metric: str, arms: Sequence[str]
) -> dict[str, Sample]:
    """The baseline's values of a metric, and those of the arms that have any."""
    measured = {compared.baseline: samples.sample(runs, compared.baseline, metric)}
    for arm in arms:
        of_arm = samples.sample(runs, arm, metric)
        if len(of_arm.values):
            measured[arm] = of_arm
    return measured


def _compare_samples(
    compared: _Compared, runs: pd.DataFrame, metric: str, measured: dict[str, Sample]
) -> Iterator[Comparison]:
    """Each arm's values against the baseline's; runs: what they were taken from."""
    of_baseline = measured.pop(compared.baseline)
    if not len(of_baseline.values):
        return
    if compared.anytime:
        m = len(compared.arms)
        effects = sequences(measured, of_baseline, m=m, level=compared.level)
    else:
        m = len(measured)
        noisy = frozenset(arm.name for arm in compared.plan.arms if arm.alters_noise)
        prior = prior_of(compared.plan.prior_noise) if metric == "val_loss" else None
        effects = analyse(
            measured, of_baseline, level=compared.level, alters_noise=noisy, prior=prior
        )
    shared = _shared(compared, metric, runs, m)
    if effects and metric in MEASURED_TIMES:
        effects = _with_nodes(compared, runs, effects, m)
    for arm, effect in effects.items():
        judged = as_remembered(compared.experiment.memory, arm, effect, compared.raised)
        pair = Pair(arm=arm, effect=judged, of_arm=measured[arm], of_baseline=of_baseline)
        yield comparison_of(shared, pair)


def _with_nodes(
    compared: _Compared, runs: pd.DataFrame, effects: dict[str, Effect], m: int
) -> dict[str, Effect]:
    """Differences of times carry the noise between nodes where they may hold it.

    Where nodes are unknown, and where arm and baseline share no block on one node."""
    widened = {}
    for arm, effect in effects.items():
        alpha, pair = (1 - compared.level) / m, (arm, compared.baseline)
        widened[arm] = with_unknown_nodes(runs, pair, effect, alpha=alpha, m=m)
    return widened


def _times_to_target(
    compared: _Compared, time_model: TimeModel, estimates: dict[str, TimeEstimate]
) -> Iterator[Comparison]:
    """The comparisons of times to target."""
    baseline, m = compared.baseline, len(compared.arms)
    effects = time_effects(time_model, m=m, level=compared.level, anytime=compared.anytime)
    shared = _shared(compared, "time_to_target", compared.times_at, m)
    for arm, effect in effects.items():
        pair = Pair(
            arm=arm,
            effect=as_remembered(compared.experiment.memory, arm, effect, compared.raised),
            of_arm=time_model.time_sample(arm, estimates[arm].seconds),
            of_baseline=time_model.time_sample(baseline, estimates[baseline].seconds),
        )
        yield comparison_of(shared, pair, estimates[arm].warnings)


def _increments(
    compared: _Compared, time_model: TimeModel, estimates: dict[str, TimeEstimate]
) -> Iterator[Comparison]:
    """Every arm of a ladder or chain against the one it is held against, on every metric."""
    links = parts.judged_pairs(compared.plan)
    if not links:
        return
    m, times = len(links), compared.times_at
    for metric in (*compared.plan.own_metrics, *LOSSES):
        shared = _shared(compared, metric, compared.losses_at, m)
        yield from parts.measured_increments(shared, links)
    if not parts.on_one_machine(times, links, compared.baseline):
        return
    for metric in MEASURED_TIMES:
        yield from parts.measured_increments(_shared(compared, metric, times, m), links)
    shared = _shared(compared, "time_to_target", times, m)
    yield from parts.timed_increments(shared, links, time_model, estimates)


def _shared(compared: _Compared, metric: str, runs: pd.DataFrame, n_arms: int) -> Metric:
    return Metric(
        name=metric,
        plan=compared.plan,
        baseline=compared.baseline,
        runs=runs,
        n_arms=n_arms,
        level=compared.level,
        anytime=compared.anytime,
        follows=_follows(compared),
        n_family=round(n_arms * compared.raised),
        lost=frozenset(compared.experiment.memory.lost),
        time_doubts=compared.time_doubts,
    )


def _follows(compared: _Compared) -> Next:
    """Which analysis would judge what is run next."""
    plan = compared.plan
    late = samples.extended(plan) or prior_is_late(plan)
    if compared.experiment.memory.lost:
        return Next.FRESH
    if plan.seeds_rule is not None or late:
        return Next.SEQUENCE
    if samples.pending(compared.experiment) > 0:
        return Next.PLANNED
    return Next.FRESH


def _experiment_warnings(compared: _Compared, runs: pd.DataFrame) -> list[Caution]:
    """What is doubtful about the experiment as a whole."""
    experiment, plan = compared.experiment, compared.plan
    warnings = []
    if samples.pending(experiment) > 0:
        warnings.append(Caution.UNFINISHED)
    if samples.extended(plan) and plan.seeds_rule is None:  # a rule adds seeds as planned
        warnings.append(Caution.EXTENDED)
    warnings += prior_cautions(plan, compared.losses_at, compared.all_arms)
    if not samples.two_phase_verified(experiment, runs, compared.baseline):
        warnings.append(Caution.TWO_PHASE_UNVERIFIED)
    if not plan.confirm:
        has_followed = bool(experiment.confirmations)
        warnings.append(Caution.ASKED_AGAIN if has_followed else Caution.EXPLORATORY)
    losses_at, times_at = compared.losses_at, compared.times_at
    losses: list[Sample] = []
    for arm in compared.all_arms:
        losses.append(samples.sample(losses_at, arm, compared.decides))
    if samples.unequal_noise(losses):
        warnings.append(Caution.UNEQUAL_NOISE)
    for arm in compared.arms:
        if not samples.same_hardware(times_at, arm, compared.baseline):
            warnings.append(Caution.MIXED_HARDWARE)
            break
    return warnings


def _published(
    compared: _Compared, time_model: TimeModel
) -> tuple[PublishedVerdict | None, list[str]]:
    """(the published delta beside ours, why there is none)."""
    if compared.plan.halving:
        return None, []
    if compared.experiment.memory.lost:
        return None, ["No published delta beside ours: results that were seen are missing."]
    try:
        return beside_the_published(compared.experiment, time_model, anytime=compared.anytime), []
    except ValueError as error:
        return None, [f"No published delta beside ours: {error}."]
