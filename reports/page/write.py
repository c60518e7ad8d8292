"""The report: one or several experiments as one HTML file that needs no network, no server and nothing beside it.

The page carries the data behind every number and figure, so that anybody can check it (`ablate verify`), sort it, filter it
and take it away as CSV.  Names from elsewhere are text everywhere: Jinja escapes the markup, script_json the data.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from reports.analysis.compare import compare_all
from reports.analysis.interactions import interplay
from reports.analysis.samples import at_budget
from reports.analysis.types import Comparisons
from reports.figures.base import NARROW, WIDE, Figure, Palette
from reports.figures.budgets import budget_figure
from reports.figures.curves import curve_figures
from reports.figures.effects import effect_figures
from reports.figures.interactions import interaction_figure
from reports.figures.runs import run_figures
from reports.figures.steps import step_distribution
from reports.format import visible
from reports.inputs.experiment import Experiment
from reports.page.embed import embed_experiment, plain, restore_experiment, script_json
from reports.page.published import evidence_answer, evidence_heads, evidence_lead, evidence_rows
from reports.page.sentences import answer, facts, notes, published_parts
from reports.page.studies import studies
from reports.page.tables import (
    WAITING,
    config_differences,
    environment_table,
    run_columns,
    run_rows,
    troubles,
)
from reports.page.verdicts import METRIC_WORDS, heads, verdict_rows

# ruff: noqa: E501  # a table of sentences
GENERAL_WORDS = (
    ("arm", "A baseline plus a set of changes; the same colour means the same arm in every figure."),
    ("seed and block", "A seed keys initial weights and data order. A block is all arms at one seed, run one after another."),
    ("interval", "Where the true difference lies with 95 % confidence, for all arms of the table at once, so that an interval that excludes zero and p below 0.05 always agree."),
    ("noise floor", "How far the baseline's final losses scatter over seeds (standard deviation): differences well below it need many runs."),
    ("look", "Each time results were judged before all planned runs were there; more looks make intervals wider."),
    ("exploratory", "The runs that suggested a change are also those that judge it; a confirmatory experiment uses fresh seeds."),
    ("at-rate, retuned", "At-rate: every arm trains at the baseline's learning rates. Retuned: each arm at its own best one, measured again on fresh seeds."),
    ("plan.lock", "Digest of what was planned before the first run: question, arms, metric, seeds, margin."),
)  # fmt: skip


def write_report(experiments: Sequence[Experiment], out: Path, *, refresh_s: float | None = None) -> Path:
    """Write the page for these experiments to `out`, whole or not at all; returns out. refresh_s: it loads itself again so often.

    Raises ValueError where no experiment is given.
    """
    if not experiments:
        raise ValueError(f"{out}: no experiment was given to report on; name one, or run `ablate run` first")
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text(render(experiments, refresh_s=refresh_s), encoding="utf-8")
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
    return out


def render(experiments: Sequence[Experiment], *, refresh_s: float | None = None) -> str:
    """The page's text: the same experiments give the same bytes."""
    return draw_page([judged(embed_experiment(e)) for e in experiments], refresh_s=refresh_s)


Judged = tuple[Mapping[str, Any], Experiment, Comparisons]


def judged(embedded: Mapping[str, Any]) -> Judged:
    """What a page is drawn from: an experiment's data, the experiment restored from what the page will carry, so that the page
    can be made again from itself, and its comparisons."""
    experiment = restore_experiment(embedded)
    return embedded, experiment, compare_all(experiment)


def draw_page(experiments: Sequence[Judged], *, refresh_s: float | None = None) -> str:
    """The page's text, with nothing left to be judged."""
    views, data = [], []
    for index, (embedded, experiment, outcome) in enumerate(experiments):
        figures = draw_all(experiment, outcome)
        views.append(view(experiment, outcome, figures, index))
        data.append({**embedded, "figures": figure_data(figures)})
    names = " and ".join(e.name for _, e, _ in experiments)
    return template().render(
        title=f"{names}: ablation report",
        css=Markup(asset("report.css")),
        js=Markup(asset("report.js")),
        data=Markup(script_json({"format": 2, "experiments": data})),
        experiments=views,
        refresh_s=refresh_s,
        footer="Written by `ablate report` from the results directory. `ablate verify` recomputes every number and verdict on this "
        "page from the data inside it.",
    )


@cache
def template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, finalize=shown)
    environment.filters["code"] = code
    return environment.from_string(asset("report.html.j2"))


def figure_data(figures: Sequence[Figure]) -> dict[str, Any]:
    """The table behind each figure; one that shows runs as they are names their rows, one that draws another's table again
    names that."""
    out: dict[str, Any] = {}
    first: dict[int, str] = {}
    for f in figures:
        same = first.setdefault(hash((f.columns, f.rows)), f.key)
        own = {"columns": list(f.columns)} | ({"runs": list(f.runs)} if f.runs else {"rows": plain(f.rows)})
        out[f.key] = own if same == f.key else {"same_as": same}
    return out


def shown(value: Any) -> Any:
    """What Jinja prints for a value: foreign text without characters that would disturb its surroundings."""
    return visible(value) if type(value) is str else value


def code(text: str) -> Markup:
    """The text escaped, with what stands in `backticks` set as code."""
    pieces = [escape(piece) for piece in visible(text).split("`")]
    if len(pieces) % 2 == 0:  # an unpaired backtick is just a character
        return escape(visible(text))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(pieces))


def asset(name: str) -> str:
    return (resources.files("reports.page") / "templates" / name).read_text(encoding="utf-8")


def counted(experiment: Experiment) -> pd.DataFrame:
    """The runs that the verdicts count: all but the stale ones, unless those were admitted."""
    return experiment.runs if experiment.accept_stale else experiment.runs[~experiment.runs["stale"].astype(bool)]


def palette_of(plan: Mapping[str, Any]) -> Palette:
    return Palette(arms=tuple(a["name"] for a in plan["arms"]), baseline=plan["baseline"])


def draw_all(experiment: Experiment, outcome: Comparisons) -> list[Figure]:
    plan, runs = experiment.plan, counted(experiment)
    palette, unit = palette_of(plan), plan["corpus"]["unit"]
    target = (plan.get("target") or {}).get("val_loss")
    losses = at_budget(runs[runs["status"] == "finished"], outcome.budget)
    singles = [
        interaction_figure(interplay(losses, plan, anytime=outcome.anytime), unit),
        None if plan.get("evidence") else budget_figure(runs, outcome, palette, unit=unit, target=target),
    ]
    skip_first = str(plan.get("protocol")).startswith("skip10")
    steps = step_distribution(experiment.curves, runs, experiment.step_times, palette, skip_first=skip_first)
    return [
        *effect_figures(plan, outcome, palette),
        *(f for f in singles if f is not None),
        *curve_figures(experiment.curves, runs, palette, unit=unit, target=target, budget=outcome.budget),
        *run_figures(runs, experiment.results, palette, unit=unit, target=target, steps=steps),
    ]


def view(experiment: Experiment, outcome: Comparisons, figures: Sequence[Figure], index: int) -> dict[str, Any]:
    """Everything the template prints about one experiment."""
    plan, runs = experiment.plan, experiment.runs
    palette = palette_of(plan)
    css = {arm: palette.css(arm) for arm in palette.arms}
    table = run_columns(runs)
    waiting = runs["status"].isin(WAITING)
    if plan.get("evidence"):
        columns, rows = evidence_heads(plan), evidence_rows(experiment, outcome, css)
        headline, under, remarks = evidence_answer(experiment, outcome), evidence_lead(plan), list(plan["remarks"])
    else:
        columns = heads(outcome, plan)
        rows = verdict_rows(outcome, columns, css, final=bool(plan.get("imported")))
        headline, under = answer(outcome), lead(plan, outcome)
        remarks = [*notes(outcome), *(f"Left out: {text}." for text in plan.get("left_out") or ())]
    return {
        "index": index,
        "name": experiment.name,
        "question": plan.get("question") or f"What do the changes of {experiment.name} do?",
        "answer": headline,
        "lead": under,
        "section": "What was published" if plan.get("evidence") else "Verdicts",
        "facts": facts(plan, outcome, runs, accept_stale=experiment.accept_stale),
        "notes": remarks,
        "published": published_parts(outcome.published) if outcome.published else (),
        "verdict_heads": columns,
        "verdict_rows": rows,
        "studies": studies(experiment),
        "troubles": troubles(runs[~waiting], experiment.results),
        "waiting": int(waiting.sum()),
        "figures": [figure_view(f, palette, index) for f in figures],
        "differences": config_differences(plan, experiment.configs, runs),
        "environment": run_on(plan, experiment),
        "hints": [(a["name"], h) for a in plan["arms"] for h in a.get("hints") or ()],
        "commands": commands(experiment.name, plan),
        "run_columns": table,
        "run_rows": [(run_id, arm, css[arm], cells) for run_id, arm, cells in run_rows(runs, table)],
        "definitions": [*((h.text, h.meaning) for h in columns), *GENERAL_WORDS, *((c.head, c.meaning) for c in table)],
    }


def figure_view(figure: Figure, palette: Palette, index: int) -> dict[str, Any]:
    """The figure drawn for both widths; ids carry the experiment's number, so that two experiments share a page."""
    legend = [{"arm": arm, "css": css, "group": palette.arms.index(arm)} for arm, css in figure.legend]
    return {
        "figure": figure,
        "wide": Markup(figure.svg(WIDE, index)),
        "narrow": Markup(figure.svg(NARROW, index)),
        "legend": legend,
    }


def lead(plan: Mapping[str, Any], outcome: Comparisons) -> str:
    """One sentence on what was compared and by which metric the verdict goes."""
    at = f" after {outcome.budget} steps" if outcome.budget and outcome.primary == "val_loss" else ""
    text = f"Every arm against {outcome.baseline}, judged by {METRIC_WORDS[outcome.primary]}{at}."
    if plan.get("target"):
        text += f" Target loss {plan['target']['val_loss']:g} {plan['corpus']['unit']}"
        text += f" ({plan['target']['reason']})." if plan["target"].get("reason") else "."
    return text


def run_on(plan: Mapping[str, Any], experiment: Experiment) -> list[tuple[str, list[tuple[str, int]]]]:
    """How it was run: what the plan says of data and clock, then what the runs recorded of their machines."""
    corpus, other = plan["corpus"], plan["corpus"].get("heldout")
    planned = [
        ("corpus", f"{corpus['name']}, losses in {corpus['unit']}, fingerprint {str(corpus['fingerprint'])[:16]}"),
        *([("held-out text", f"{other['name']}, fingerprint {str(other['fingerprint'])[:16]}")] if other else []),
        ("timing protocol", str(plan.get("protocol") or "not recorded")),
        ("design", f"{plan.get('design')}, from {plan.get('base')} at scale {plan.get('scale')}"),
    ]
    recorded = environment_table(experiment.environments) if experiment.environments else []
    return [(name, [(text, 0)]) for name, text in planned] + recorded


def commands(name: str, plan: Mapping[str, Any]) -> list[str]:
    run = str(plan.get("command") or f"ablate run {name}") + "    # runs what is missing, then writes this page"
    source = "the published tables" if plan.get("evidence") else "the results alone"
    return [
        *([] if plan.get("evidence") else [run]),
        f"ablate report {name}    # this page again, from {source}",
        "ablate verify report.html    # recompute every number on this page",
    ]
