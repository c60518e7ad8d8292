"""The sentences around the verdict table: facts beside it, notes below, published delta."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.run.plan import Lock, Plan
from harness.run.plural import plural
from reports.analysis.cautions import Caution
from reports.analysis.plugin_rates import plugin_rates
from reports.analysis.recipe import Recipe
from reports.analysis.types import Comparisons, PublishedVerdict
from reports.format import show
from reports.page.cells import Part, number, words
from reports.page.naming import NAMED, few_named, listing, verb_for
from reports.page.scope import arms_with_rates, moves_rates

ESTIMANDS = {
    "at-rate": "every arm at the baseline's learning rates (at-rate){but_for}",
    "retuned": "every arm at its own best learning rates (retuned)",
}
OF_PUBLISHED = (
    "its interval by how far losses of one program scatter from run to run, turned into time"
)
UNTIMED_STEPS = {"skip10": 10}  # at the begin of a run, which a protocol's clock leaves out
ENOUGH_FOR_FLOOR = 4  # runs; the sd of three is within a factor of 0.5 to 6 of what it estimates


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One short fact beside the verdicts; `warn` marks what weakens them."""

    text: str
    code: str = ""
    warn: bool = False


def facts(
    recipe: Recipe, outcome: Comparisons, runs: pd.DataFrame, *, accept_stale: bool
) -> list[Fact]:
    """What a reader must know to weigh the verdicts, from who confirmed them to the locked plan.

    accept_stale: runs of an older source are counted.
    """
    plan = recipe.plan
    if plan.evidence:
        return evidence_facts(plan, runs)
    unit = plan.corpus.unit
    return [
        standing(plan),
        *estimand_facts(recipe),
        *branch_fact(plan),
        Fact(text=f"{counted_arms(plan)}, {counted_seeds(plan, runs)}"),
        looks(outcome),
        where_run(runs),
        *stopped_facts(runs),
        *clock_facts(runs),
        *untimed_fact(plan),
        *noise_facts(outcome, f"in {outcome.primary}" if outcome.primary in outcome.own else unit),
        stale_fact(runs, accept_stale=accept_stale),
        *lock_facts(plan),
    ]


def evidence_facts(plan: Plan, runs: pd.DataFrame) -> list[Fact]:
    gpus = sorted(runs["gpu"].dropna().astype(str).unique())
    texts = ["published by others, not run here", plural(len(plan.arms), "row"), *gpus]
    return [Fact(text=text) for text in texts]


def standing(plan: Plan) -> Fact:
    if plan.confirm:
        return Fact(text="confirmed on fresh seeds")
    return Fact(text="exploratory", warn=True)


def estimand_facts(recipe: Recipe) -> list[Fact]:
    """At whose learning rates arms were compared; nothing where nobody knows them."""
    plan = recipe.plan
    if plan.imported or plan.foreign:
        return []
    if moves_rates(plan) and plan.estimand == "at-rate":
        return [Fact(text="rates along the axis, the same for every arm at a point")]
    others = []
    setters, moved = arms_with_rates(recipe), [*plugin_rates(recipe)]
    if setters:
        verb = verb_for(setters, "sets", "set")
        others.append(f"{few_named(setters)}, which {verb} other ones")
    if moved:
        verb = verb_for(moved, "moves", "move")
        others.append(f"{few_named(moved)}, which {verb} by rates of a plug-in")
    but_for = f" but {', and '.join(others)}" if others else ""
    estimands = sorted({arm.estimand for arm in plan.arms})
    return [Fact(text=ESTIMANDS.get(e, e).format(but_for=but_for)) for e in estimands]


def branch_fact(plan: Plan) -> list[Fact]:
    if not plan.branch_at:
        return []
    return [Fact(text=f"effects from update {plan.branch_at} on, given one trunk a seed")]


def looks(outcome: Comparisons) -> Fact:
    kind = "intervals for the planned number of runs"
    if outcome.anytime:
        kind = "anytime-valid intervals"
    return Fact(text=f"{plural(outcome.looks, 'look')}, {kind}")


def where_run(runs: pd.DataFrame) -> Fact:
    nodes = sorted(str(node) for node in runs["node"].dropna().unique())
    if not nodes:
        return Fact(text="no node known")
    if len(nodes) == 1:
        return Fact(text=f"one node: {nodes[0]}")
    return Fact(text=f"{len(nodes)} nodes")


def stopped_facts(runs: pd.DataFrame) -> list[Fact]:
    """Where the plan ends every run before its script does."""
    if "stopped_at" not in runs or runs["stopped_at"].isna().all():
        return []
    steps = sorted(int(step) for step in runs["stopped_at"].dropna().unique())
    return [Fact(text=f"every run stopped at step {', '.join(map(str, steps))}, as planned")]


def clock_facts(runs: pd.DataFrame) -> list[Fact]:
    if not runs["self_reported"].astype(bool).any():
        return []
    return [Fact(text="times are the scripts' own account (self-reported)", warn=True)]


def untimed_fact(plan: Plan) -> list[Fact]:
    n_untimed = UNTIMED_STEPS.get(plan.protocol or "")
    if not n_untimed or plan.imported or plan.foreign:
        return []
    return [Fact(text=f"the clock leaves out each run's first {n_untimed} steps")]


def noise_facts(outcome: Comparisons, unit: str) -> list[Fact]:
    if outcome.noise.sd is None:
        return []
    sd, n = f"{show(outcome.noise.sd, 'sd')} {unit}", outcome.noise.n
    if n < ENOUGH_FOR_FLOOR:
        return [Fact(text=f"sd of {n} baseline runs {sd}: too few for a noise floor", warn=True)]
    return [Fact(text=f"noise floor {sd} (sd of {n} baseline runs)")]


def stale_fact(runs: pd.DataFrame, *, accept_stale: bool) -> Fact:
    stale = runs[runs["stale"].astype(bool)]
    if not len(stale):
        return Fact(text="no stale runs")
    files: set[str] = set()
    for names in stale["stale_files"].dropna().astype(str):
        files.update(name for name in names.split(", ") if name)
    treated = "left out"
    if accept_stale:
        treated = "counted as asked"
    text = f"{plural(len(stale), 'stale run')} {treated}"
    if files:
        text += f": {listing(sorted(files), most=3)}"
    return Fact(text=text, warn=True)


def lock_facts(plan: Plan) -> list[Fact]:
    """The plan's last lock, and whether it was another one after the first launch."""
    locks = plan.locks
    if not locks:
        text = "no plan was locked"
        if plan.imported:
            text = "imported logs: nothing was planned before they were made"
        return [Fact(text=text, warn=True)]
    last = Fact(text="locked plan", code=str(locks[-1].digest)[:12])
    if len(locks) == 1:
        return [last]
    times = f"{len(locks) - 1} times"
    if len(locks) == 2:
        times = "once"
    text = f"the plan was changed {times} after the first launch"
    keys = changed_keys(locks)
    if keys:
        text += f": {', '.join(keys)}"
    return [last, Fact(text=text, warn=True)]


def counted_arms(plan: Plan) -> str:
    """How many arms are compared with the baseline."""
    return f"{plural(len(plan.arms) - 1, 'arm')} and the baseline"


def counted_seeds(plan: Plan, runs: pd.DataFrame) -> str:
    """How many seeds, or, where runs have none (imported logs), how many runs."""
    if runs["seed"].notna().any():
        return plural(len(plan.seeds), "seed")
    return plural(len(runs), "run")


def changed_keys(locks: Sequence[Lock]) -> list[str]:
    """What of the plan differs between locks that follow each other, in the order of the plan."""
    changed: dict[str, None] = {}
    for before, after in itertools.pairwise(locks):
        for key in {**before.plan, **after.plan}:
            if before.plan.get(key) != after.plan.get(key):
                changed[key] = None
    return list(changed)


def notes(outcome: Comparisons) -> list[str]:
    """The analysis in sentences, then every warning once, with the arms it concerns."""
    sentences = dict.fromkeys(outcome.notes)
    sentences |= dict.fromkeys(warning.text for warning in outcome.warnings)
    arms_of = concerned_arms(outcome)
    for warning in Caution:
        if warning not in arms_of or warning in outcome.warnings:
            continue
        arms = arms_of[warning]
        if set(outcome.arms) <= set(arms):
            text = warning.text
            if outcome.baseline not in arms and warning is Caution.NOT_BRACKETED:
                text = f"All arms but {outcome.baseline}: {text}"
            sentences[text] = None
        else:
            sentences[f"{listing(arms, most=NAMED)}: {warning.text}"] = None
    reasons = dict.fromkeys(time.reason for time in outcome.times.values())
    unsaid = [r for r in reasons if r and not any(r in sentence for sentence in sentences)]
    return [*sentences, *(f"Time to target: {r.removesuffix('.')}." for r in unsaid[:2])]


def concerned_arms(outcome: Comparisons) -> dict[Caution, list[str]]:
    """Caution -> the arms it is about, each once, in the order of the comparisons."""
    arms_of: dict[Caution, dict[str, None]] = {}
    for (arm, _), c in outcome.comparisons.items():
        for warning in c.warnings:
            arms_of.setdefault(warning, {})[arm] = None
    for arm, time in outcome.times.items():
        for warning in time.warnings:
            arms_of.setdefault(warning, {})[arm] = None
    return {warning: list(arms) for warning, arms in arms_of.items()}


def as_fraction(percent: float | None) -> float | None:
    if percent is None:
        return None
    return percent / 100.0


def published_parts(verdict: PublishedVerdict) -> tuple[Part, ...]:
    """The published delta beside ours, in percent of the baseline's time, and the verdict."""
    of_record, of_predecessor = verdict.n_published
    n_runs = f"({of_record} against {plural(of_predecessor, 'run')}, {OF_PUBLISHED})"
    reproduced: list[Part] = []
    if verdict.percent is not None:
        n_runs += ";"
        reproduced = [
            words("published.here", "here"),
            number("published.ours", "percent", as_fraction(verdict.percent)),
            number(
                "published.ours_interval",
                "percent",
                as_fraction(verdict.percent_low),
                as_fraction(verdict.percent_high),
            ),
        ]
    why = ""
    if verdict.why:
        why = f"{verdict.why[:1].upper()}{verdict.why[1:].rstrip('.')}."
    return (
        words("published.verdict", verdict.verdict),
        words(
            "published.record",
            f"{verdict.record} against {verdict.against}, training time: published",
        ),
        number("published.theirs", "percent", as_fraction(verdict.published_percent)),
        number(
            "published.interval",
            "percent",
            as_fraction(verdict.published_percent_low),
            as_fraction(verdict.published_percent_high),
        ),
        Part(text=n_runs, key="published.n", values=verdict.n_published),
        *reproduced,
        words("published.why", why),
    )
