"""The verdict table and the sentences around it, from a Comparisons: nothing is computed here, only put into words.

Every printed number is a Part with a key; the page carries its value at full precision beside the text, so that
`ablate verify` can recompute it.  Keys are `arm / metric.what`, unique within one experiment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from reports.figures_effects import effect
from reports.page_numbers import interval, known, show
from reports.types import Comparison, Comparisons, PublishedVerdict, Warning

METRIC_WORDS = {"val_loss": "validation loss", "step_ms": "step time", "train_time_s": "training time", "time_to_target": "time to target"}
TONES = {"helps": "good", "hurts": "bad", "equal": "even", "undecided": "open", "none": "open"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One printed piece of a cell: the text and the values it was made from ((), where it is words)."""

    text: str
    key: str
    values: tuple[float | None, ...] = ()

    @property
    def v(self) -> str | None:
        """The values as the page carries them: comma-separated, empty where unknown."""
        return ",".join("" if x is None else repr(float(x)) for x in self.values) if self.values else None


@dataclass(frozen=True, kw_only=True)
class VerdictCell:
    """One cell: the first part large, the others small below it; `tone` colours a verdict."""

    parts: tuple[Part, ...] = ()
    css: str = ""
    tone: str = ""


@dataclass(frozen=True, kw_only=True)
class Head:
    """A column's heading, and what it means in plain words."""

    text: str
    meaning: str
    css: str = ""


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    arm: str
    place: int  # in the plan's arms
    css: str
    baseline: bool
    cells: list[VerdictCell] = field(default_factory=list)


def number(key: str, kind: str, *values: float | None, unit: str = "") -> Part:
    """One value, or with two the interval between them."""
    printed = show(values[0], kind) if len(values) == 1 else interval(*values, kind)
    return Part(text=printed + (unit if known(values[0]) else ""), key=key, values=values)


def words(key: str, text: str) -> Part:
    return Part(text=text, key=key)


def verdict_cell(c: Comparison | None) -> VerdictCell:
    if c is None:
        return VerdictCell(parts=(words("verdict", "no result yet"),), css="words", tone="open")
    parts = [words("verdict", c.verdict)]
    if c.exploratory and c.kind in ("helps", "hurts"):
        parts.append(words("exploratory", "exploratory"))
    parts.append(words("next_action", c.next_action))
    return VerdictCell(parts=tuple(p for p in parts if p.text), css="words", tone=TONES[c.kind])


def effect_cell(c: Comparison | None, metric: str) -> VerdictCell:
    if c is None:
        return VerdictCell(css="num")
    value, low, high = effect(c)
    kind = "loss_delta" if c.ratio is None else "percent"
    parts = [number(f"{metric}.effect", kind, value)]
    if low is not None or high is not None:
        parts.append(number(f"{metric}.interval", kind, low, high))
    if c.p is not None:
        parts.append(Part(text="p " + show(c.p, "p"), key=f"{metric}.p", values=(c.p,)))
    return VerdictCell(parts=tuple(parts), css="num")


def measured_cell(outcome: Comparisons, arm: str, metric: str, kind: str) -> VerdictCell:
    cell = outcome.cells[arm]
    if not known(cell.mean.get(metric)):
        return VerdictCell(css="num")
    parts = [number(f"{metric}.mean", kind, cell.mean[metric])]
    if known(cell.sd.get(metric)):
        parts.append(Part(text="sd " + show(cell.sd[metric], "sd"), key=f"{metric}.sd", values=(cell.sd[metric],)))
    return VerdictCell(parts=tuple(parts), css="num")


def step_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Step time with the steps per run below it."""
    steps = outcome.cells[arm].mean.get("steps")
    more = (Part(text=f"{show(steps, 'count')} steps", key="steps.mean", values=(steps,)),) if known(steps) else ()
    return VerdictCell(parts=measured_cell(outcome, arm, "step_ms", "ms").parts + more, css="num")


def target_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    time = outcome.times.get(arm)
    if time is None:
        return VerdictCell(css="num")
    if time.seconds is None:
        return VerdictCell(parts=(words("target.reason", "not resolved"),), css="num")
    parts = [number("target.seconds", "s", time.seconds, unit=" s"), number("target.interval", "s", time.seconds_low, time.seconds_high)]
    if time.extrapolated:
        parts.append(words("target.extrapolated", "extrapolated"))
    return VerdictCell(parts=tuple(p for p in parts if p.text), css="num")


def gain_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Learning gain over systems gain, each in percent of the baseline's time and in seconds."""
    gain = outcome.decompositions.get(arm)
    if gain is None:
        return VerdictCell(css="num")
    parts: list[Part] = []
    for side, seconds, percent in (
        ("learning", gain.learning_s, gain.learning_percent),
        ("systems", gain.systems_s, gain.systems_percent),
    ):
        if seconds is None or percent is None:
            parts.append(words(f"{side}.none", f"{side} not resolved"))
        else:
            text = f"{side} {show(percent / 100.0, 'percent')} ({show(seconds, 's_gain')} s)"
            parts.append(Part(text=text, key=f"{side}.gain", values=(percent, seconds)))
    return VerdictCell(parts=tuple(parts), css="gain")


def runs_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    cell = outcome.cells[arm]
    counted = Part(text=f"{cell.n_finished} finished", key="n.finished", values=(cell.n_finished,))
    more: list[Part] = []
    if cell.n_diverged:
        ends = (cell.diverged_low, cell.diverged_high)
        rate = f", rate {show(cell.diverged_rate, 'rate')} {interval(*ends, 'rate')}"
        more.append(Part(text=f"{cell.n_diverged} diverged{rate}", key="n.diverged", values=(cell.n_diverged, cell.diverged_rate, *ends)))
    others = (("failed", cell.n_failed), ("to come", cell.n_pending), ("stale", cell.n_stale))
    more += [Part(text=f"{n} {word}", key=f"n.{word.replace(' ', '_')}", values=(n,)) for word, n in others if n]
    return VerdictCell(parts=(counted, *more), css="count")


def heads(outcome: Comparisons, plan: Mapping[str, Any]) -> list[Head]:
    """The columns of the verdict table; those that this experiment cannot fill are left out."""
    unit = plan["corpus"]["unit"]
    base = outcome.baseline
    columns = [
        Head(text="verdict", meaning=f"The judgement on {METRIC_WORDS[outcome.primary]}, the metric declared before the first run, and what to do next."),
        Head(text="loss", css="num", meaning=f"Mean validation loss of the arm's finished runs in {unit}, and the standard deviation over its runs."),
        Head(text="Δ loss", css="num", meaning=f"Arm minus {base}, so below zero is better; the interval holds for all arms at once, p is adjusted for their number."),
        Head(text="step, ms", css="num", meaning="Mean time of one training step in milliseconds, its standard deviation over runs, and the steps per run."),
        Head(text="Δ step time", css="num", meaning=f"Step time against {base} in percent; below zero is faster. Interval and p as for the loss."),
        Head(text="time to target", css="num", meaning="Seconds to the target loss: the steps a schedule would need to end at the target, times the step time; not the first crossing of one curve."),
        Head(text="Δ time to target", css="num", meaning=f"Time to target against {base} in percent."),
        Head(text="gain", meaning="Time is steps times step time. The learning part of the change in time comes from needing fewer steps, the systems part from faster steps; below zero is time saved, in percent of the baseline and in seconds."),
        Head(text="runs", meaning="Finished runs that the comparison of losses counts, and what became of the others."),
    ]  # fmt: skip
    absent = set()
    if not outcome.times:
        absent |= {"time to target"}
    if not any(outcome.of(a, "time_to_target") for a in outcome.arms):
        absent |= {"Δ time to target"}
    if not outcome.decompositions:
        absent |= {"gain"}
    return [h for h in columns if h.text not in absent]


def verdict_rows(outcome: Comparisons, columns: Sequence[Head], css: Mapping[str, str]) -> list[VerdictRow]:
    """The baseline's row, then one per arm in the plan's order; `css` maps every arm of the plan, in its order, to its colour."""
    rows = []
    places = list(css)
    for arm in (outcome.baseline, *outcome.arms):
        base = arm == outcome.baseline
        by_head = {
            "verdict": VerdictCell(parts=(words("verdict", "baseline"),), css="words", tone="base") if base else verdict_cell(outcome.of(arm, outcome.primary)),
            "loss": measured_cell(outcome, arm, "val_loss", "loss"),
            "Δ loss": effect_cell(outcome.of(arm, "val_loss"), "val_loss"),
            "step, ms": step_cell(outcome, arm),
            "Δ step time": effect_cell(outcome.of(arm, "step_ms"), "step_ms"),
            "time to target": target_cell(outcome, arm),
            "Δ time to target": effect_cell(outcome.of(arm, "time_to_target"), "time_to_target"),
            "gain": gain_cell(outcome, arm),
            "runs": runs_cell(outcome, arm),
        }
        rows.append(VerdictRow(arm=arm, place=places.index(arm), css=css[arm], baseline=base, cells=[by_head[h.text] for h in columns]))
    return rows


def answer(outcome: Comparisons) -> str:
    """The headline: one or two sentences that answer the experiment's question as far as the runs allow."""
    metric = METRIC_WORDS[outcome.primary]
    found = {a: c for a in outcome.arms if (c := outcome.of(a, outcome.primary)) is not None}
    if not found:
        counts = [c for c in outcome.cells.values() if c.n_finished]
        return "No run has finished yet, so there is no answer." if not counts else "No arm can be compared to the baseline yet."
    groups = {kind: [a for a, c in found.items() if c.kind == kind] for kind in ("helps", "hurts", "equal")}
    open_ones = [a for a in outcome.arms if a not in found or found[a].kind in ("undecided", "none")]
    said = []
    for kind, verb in (("helps", "better"), ("hurts", "worse")):
        named = sorted(groups[kind], key=lambda a: -abs(effect(found[a])[0]))
        if named:
            listed = listing([f"{a} ({effect_words(found[a])})" for a in named], most=4)
            said.append(f"{listed} {'is' if len(named) == 1 else 'are'} {verb} than {outcome.baseline} in {metric}")
    if groups["equal"]:
        said.append(f"{listing(groups['equal'], most=4)} {'shows' if len(groups['equal']) == 1 else 'show'} no difference that matters")
    if open_ones:
        said.append(f"{listing(open_ones, most=4)} {'is' if len(open_ones) == 1 else 'are'} undecided" if said else f"undecided in {metric}: {listing(open_ones, most=4)}")
    text = "; ".join(said) + "."
    lead = "Exploratory: " if any(c.exploratory for c in found.values()) and (groups["helps"] or groups["hurts"]) else ""
    return lead + (text if lead else text[0].upper() + text[1:])


def effect_words(c: Comparison) -> str:
    value = effect(c)[0]
    return show(value, "loss_delta" if c.ratio is None else "percent") + (f" {c.unit}" if c.ratio is None else "")


def listing(names: Sequence[str], *, most: int) -> str:
    """Names as a sentence has them; beyond `most` the rest is counted."""
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} more"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One short fact beside the verdicts; `warn` marks what weakens them."""

    text: str
    code: str = ""
    warn: bool = False


def facts(plan: Mapping[str, Any], outcome: Comparisons, runs: pd.DataFrame, *, accept_stale: bool) -> list[Fact]:
    """What a reader must know to weigh the verdicts: confirmed or not, estimand, looks, nodes, stale results, the locked plan."""
    exploratory = not plan.get("confirm")
    estimands = sorted({str(a.get("estimand", "at-rate")) for a in plan["arms"]})
    meaning = {"at-rate": "at-rate: the baseline's learning rates for every arm", "retuned": "retuned: every arm at its own best learning rate"}
    nodes = sorted(str(n) for n in runs["node"].dropna().unique())
    n_seeds = len(plan["seeds"])
    stale = runs[runs["stale"].astype(bool)]
    out = [
        Fact(text="exploratory", warn=exploratory) if exploratory else Fact(text="confirmed on fresh seeds"),
        *(Fact(text=meaning.get(e, e)) for e in estimands),
        Fact(text=f"{len(plan['arms'])} arms, {n_seeds} {'seed' if n_seeds == 1 else 'seeds'}"),
        Fact(text=f"{outcome.looks} {'look' if outcome.looks == 1 else 'looks'}, {'anytime-valid' if outcome.anytime else 'fixed-n'} intervals"),
        Fact(text="no node known") if not nodes else Fact(text=f"one node: {nodes[0]}" if len(nodes) == 1 else f"{len(nodes)} nodes"),
    ]
    if outcome.noise.sd is not None:
        out.append(Fact(text=f"noise floor {show(outcome.noise.sd, 'sd')} {plan['corpus']['unit']} (sd of {outcome.noise.n} baseline runs)"))
    if len(stale):
        files = sorted({f for f in stale["stale_files"].dropna().astype(str) if f})
        kept = "counted as asked" if accept_stale else "left out"
        out.append(Fact(text=f"{len(stale)} stale runs {kept}" + (f": {', '.join(files[:3])}" if files else ""), warn=True))
    else:
        out.append(Fact(text="no stale runs"))
    locks = plan.get("locks") or []
    if locks:
        out.append(Fact(text="plan.lock", code=str(locks[-1]["digest"])[:12]))
    if len(locks) > 1:
        out.append(Fact(text=f"the plan was changed {len(locks) - 1} times after the first launch", warn=True))
    if not locks:
        out.append(Fact(text="no plan was locked", warn=True))
    return out


def notes(outcome: Comparisons) -> list[str]:
    """The analysis in sentences, then every warning once, with the arms it concerns."""
    concerned: dict[Warning, list[str]] = {}
    for (arm, _), c in outcome.comparisons.items():
        for warning in c.warnings:
            concerned.setdefault(warning, [])
            if arm not in concerned[warning]:
                concerned[warning].append(arm)
    for arm, time in outcome.times.items():
        for warning in time.warnings:
            concerned.setdefault(warning, [])
            if arm not in concerned[warning]:
                concerned[warning].append(arm)
    said = list(outcome.notes) + [w.text for w in outcome.warnings]
    for warning in Warning:
        if warning in concerned and warning not in outcome.warnings:
            arms = concerned[warning]
            everyone = set(outcome.arms) <= set(arms)
            said.append(warning.text if everyone else f"{listing(arms, most=4)}: {warning.text}")
    reasons = dict.fromkeys(t.reason for t in outcome.times.values() if t.reason)
    return list(dict.fromkeys(said)) + [f"Time to target: {reason}" for reason in list(reasons)[:2]]


def published_parts(verdict: PublishedVerdict) -> tuple[Part, ...]:
    """The published delta beside ours, as percent of the baseline's time, and the verdict with its reason."""
    p = verdict
    ours = number("published.ours", "percent", None if p.percent is None else p.percent / 100.0)
    bounds = [None if x is None else x / 100.0 for x in (p.percent_low, p.percent_high)]
    theirs = number("published.theirs", "percent", p.published_percent / 100.0)
    their_bounds = (p.published_percent_low / 100.0, p.published_percent_high / 100.0)
    return (
        words("published.verdict", p.verdict),
        words("published.record", f"{p.record} against {p.against}: published"),
        theirs,
        number("published.interval", "percent", *their_bounds),
        Part(text=f"({p.n_published[0]} against {p.n_published[1]} runs), here", key="published.n", values=p.n_published),
        ours,
        number("published.ours_interval", "percent", *bounds),
        words("published.why", p.why),
    )
