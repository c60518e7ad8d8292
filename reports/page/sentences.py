"""The sentences around the verdict table: the answer, the facts beside it, the notes below it, and the published delta."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.analysis.types import Caution, Comparison, Comparisons, PublishedVerdict, effect
from reports.format import plural, show
from reports.page.verdicts import METRIC_WORDS, Part, number, words


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
        verb = "shows" if len(groups["equal"]) == 1 else "show"
        said.append(f"{listing(groups['equal'], most=4)} {verb} no difference that matters in {metric}")
    if open_ones:
        said.append(
            f"{listing(open_ones, most=4)} {'is' if len(open_ones) == 1 else 'are'} undecided"
            if said
            else f"Undecided in {metric}: {listing(open_ones, most=4)}"
        )
    lead = "Exploratory: " if any(c.exploratory for c in found.values()) and (groups["helps"] or groups["hurts"]) else ""
    return f"{lead}{'; '.join(said)}."


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
    if plan.get("evidence"):
        gpus = sorted(runs["gpu"].dropna().astype(str).unique())
        return [
            Fact(text="published by others, not run here"),
            *(Fact(text=t) for t in (plural(len(plan["arms"]), "row"), *gpus)),
        ]
    exploratory = not plan.get("confirm")
    estimands = sorted({str(a.get("estimand", "at-rate")) for a in plan["arms"]})
    meaning = {
        "at-rate": "at-rate: the baseline's learning rates for every arm",
        "retuned": "retuned: every arm at its own best learning rate",
    }
    nodes = sorted(str(n) for n in runs["node"].dropna().unique())
    kind = "anytime-valid" if outcome.anytime else "fixed-n"
    stale = runs[runs["stale"].astype(bool)]
    out = [
        Fact(text="exploratory", warn=exploratory) if exploratory else Fact(text="confirmed on fresh seeds"),
        *(Fact(text=meaning.get(e, e)) for e in estimands),
        Fact(text=f"{len(plan['arms'])} arms, " + counted_seeds(plan, runs)),
        Fact(text=f"{outcome.looks} {'look' if outcome.looks == 1 else 'looks'}, {kind} intervals"),
        Fact(text="no node known")
        if not nodes
        else Fact(text=f"one node: {nodes[0]}" if len(nodes) == 1 else f"{len(nodes)} nodes"),
    ]
    if runs["self_reported"].astype(bool).any():
        out.append(Fact(text="times are the scripts' own account (self-reported)", warn=True))
    if outcome.noise.sd is not None:
        floor = f"{show(outcome.noise.sd, 'sd')} {plan['corpus']['unit']}"
        out.append(Fact(text=f"noise floor {floor} (sd of {outcome.noise.n} baseline runs)"))
    if len(stale):
        files = sorted({f for names in stale["stale_files"].dropna().astype(str) for f in names.split(", ") if f})
        named = f": {listing(files, most=3)}" if files else ""
        kept = "counted as asked" if accept_stale else "left out"
        out.append(Fact(text=f"{len(stale)} stale {'run' if len(stale) == 1 else 'runs'} {kept}{named}", warn=True))
    else:
        out.append(Fact(text="no stale runs"))
    locks = plan.get("locks") or []
    if locks:
        out.append(Fact(text="plan.lock", code=str(locks[-1]["digest"])[:12]))
    if len(locks) > 1:
        times = "once" if len(locks) == 2 else f"{len(locks) - 1} times"
        keys = ", ".join(changed_keys(locks))
        out.append(Fact(text=f"the plan was changed {times} after the first launch" + (f": {keys}" if keys else ""), warn=True))
    if not locks:
        said = "imported logs: nothing was planned before they were made" if plan.get("imported") else "no plan was locked"
        out.append(Fact(text=said, warn=True))
    return out


def counted_seeds(plan: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """How many seeds, or, where runs have none (imported logs), how many runs."""
    n, word = (len(plan["seeds"]), "seed") if runs["seed"].notna().any() else (len(runs), "run")
    return plural(n, word)


def changed_keys(locks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of the plan differs between any two locks that follow each other, in the order of the plan."""
    plans = [lock.get("plan") or {} for lock in locks]
    return list(dict.fromkeys(k for a, b in itertools.pairwise(plans) for k in {**a, **b} if a.get(k) != b.get(k)))


def notes(outcome: Comparisons) -> list[str]:
    """The analysis in sentences, then every warning once, with the arms it concerns."""
    concerned: dict[Caution, list[str]] = {}
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
    for warning in Caution:
        if warning in concerned and warning not in outcome.warnings:
            arms = concerned[warning]
            everyone = set(outcome.arms) <= set(arms)
            said.append(warning.text if everyone else f"{listing(arms, most=4)}: {warning.text}")
    reasons = [r for r in dict.fromkeys(t.reason for t in outcome.times.values()) if r and not any(r in s for s in said)]
    return [*dict.fromkeys(said), *(f"Time to target: {reason.removesuffix('.')}." for reason in reasons[:2])]


def published_parts(verdict: PublishedVerdict) -> tuple[Part, ...]:
    """The published delta beside ours, as percent of the baseline's time, and the verdict with its reason."""
    p = verdict
    ours = number("published.ours", "percent", None if p.percent is None else p.percent / 100.0)
    bounds = [None if x is None else x / 100.0 for x in (p.percent_low, p.percent_high)]
    theirs = number("published.theirs", "percent", p.published_percent / 100.0)
    their_bounds = (p.published_percent_low / 100.0, p.published_percent_high / 100.0)
    reproduced = (
        ()
        if p.percent is None
        else (words("published.here", "here"), ours, number("published.ours_interval", "percent", *bounds))
    )
    return (
        words("published.verdict", p.verdict),
        words("published.record", f"{p.record} against {p.against}, training time: published"),
        theirs,
        number("published.interval", "percent", *their_bounds),
        Part(
            text=f"({p.n_published[0]} against {p.n_published[1]} runs)" + (";" if reproduced else ""),
            key="published.n",
            values=p.n_published,
        ),
        *reproduced,
        words("published.why", f"{p.why[:1].upper()}{p.why[1:].rstrip('.')}." if p.why else ""),
    )
