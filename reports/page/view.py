"""What the template prints of one experiment, gathered: sentences, tables, drawn figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.run.foreign import ClockHint
from harness.run.plan import Plan
from reports.analysis.recipe import Recipe
from reports.analysis.types import Comparisons
from reports.figures.base import NARROW, WIDE, Figure
from reports.figures.palette import Palette
from reports.inputs.experiment import Experiment
from reports.page.asking import commands_elsewhere, said_in_rows
from reports.page.by_design import PageSource
from reports.page.cells import Part
from reports.page.changes import ChangeSet, change_sets
from reports.page.citation import citation
from reports.page.confirmed import AskedAgain, asked_again
from reports.page.draw import leading, palette_of
from reports.page.glossary import definitions
from reports.page.headline import headline
from reports.page.lead import lead
from reports.page.next_evidence import asked_here
from reports.page.next_run import commands, next_of_verdicts
from reports.page.published import evidence_heads, evidence_lead, evidence_notes, evidence_rows
from reports.page.published_answer import evidence_answer
from reports.page.ratios import ratio_notes
from reports.page.reading import reading
from reports.page.recipe import RecipeBox, recipe_box
from reports.page.related import Related, related
from reports.page.scope import scope
from reports.page.sentences import Fact, facts, notes, published_parts
from reports.page.settings import (
    Differences,
    EnvironmentFact,
    config_differences,
    environment_table,
)
from reports.page.studies import studies
from reports.page.study import Study
from reports.page.tables import (
    WAITING,
    Failure,
    RunColumn,
    TableCell,
    failures,
    run_columns,
    run_rows,
)
from reports.page.verdicts import Head, VerdictRow, heads, verdict_rows

PROTOCOLS = {
    "skip10": "skip10: the first 10 steps run untimed",
    "warmup-restore": (
        "warmup-restore: every shape is met once on other data and all state put back, then the"
        " clock starts"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """The first section: the table of verdicts, and the sentences above and below it."""

    section: str  # its title
    answer: str
    lead: str
    heads: Sequence[Head]
    rows: Sequence[VerdictRow]
    notes: Sequence[str]
    reading: Sequence[tuple[str, str]] = ()  # a verdict of each kind, and what it rests on


def verdicts_of(
    experiment: Experiment,
    outcome: Comparisons,
    answer: str,
    css: Mapping[str, str],
    next_run: str = "",
) -> Verdicts:
    """The verdicts of an experiment below its headline.

    answer: that headline; css: of every arm, in the plan's order; next_run: what is said to be run
    next. Imported logs are all the runs there will ever be: no more of them are asked for.
    """
    plan = experiment.plan
    next_steps = {} if plan.imported else said_in_rows(outcome)
    elsewhere = [] if plan.imported else commands_elsewhere(outcome, plan, next_run)
    left_out = [f"Left out: {text}." for text in plan.left_out]
    return Verdicts(
        section="Verdicts",
        answer=answer,
        lead=lead(plan, outcome),
        heads=heads(outcome, plan.corpus.unit),
        rows=verdict_rows(outcome, css, next_steps),
        notes=[*elsewhere, *notes(outcome), *ratio_notes(outcome), *left_out],
        reading=reading(outcome, plan.margin),
    )


def evidence_of(experiment: Experiment, outcome: Comparisons, css: Mapping[str, str]) -> Verdicts:
    """The same of published evidence, which is shown and not judged."""
    plan = experiment.plan
    return Verdicts(
        section="What was published",
        answer=evidence_answer(experiment, outcome),
        lead=evidence_lead(plan),
        heads=evidence_heads(plan),
        rows=evidence_rows(experiment, outcome, css),
        notes=evidence_notes(plan),
    )


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """An arm in the legend of a figure; `group` is its place in the plan."""

    name: str
    css: str
    group: int


@dataclass(frozen=True, kw_only=True)
class DrawnFigure:
    """A figure with its drawings for both widths."""

    figure: Figure
    wide: Markup
    narrow: Markup
    legend: Sequence[LegendEntry]
    is_crowded: bool  # neither its colours nor numbers tell an arm from another

    @classmethod
    def of(cls, figure: Figure, palette: Palette, index: int) -> "DrawnFigure":
        """index: the experiment's; ids carry it, so that two experiments share a page."""
        legend = []
        for arm, css, name in figure.legend:
            legend.append(LegendEntry(name=name, css=css, group=palette.arms.index(arm)))
        return cls(
            figure=figure,
            wide=Markup(figure.svg(WIDE, index)),
            narrow=Markup(figure.svg(NARROW, index)),
            legend=legend,
            is_crowded=palette.is_by_verdict and not palette.has_numbers,
        )


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything the template prints about one experiment."""

    index: int
    name: str
    question: str
    verdicts: Verdicts
    scope: str
    asked_again: Sequence[AskedAgain]  # what came out on fresh seeds
    related: Sequence[Related]  # experiments that asked the same at other seeds
    next_run: str  # what to run next; '' where nothing is to be said
    facts: Sequence[Fact]
    published: Sequence[Part]
    studies: Sequence[Study]
    failures: Sequence[Failure]
    n_waiting: int  # runs to come, or running
    figures: Sequence[DrawnFigure]  # that carry the answer
    appendix: Sequence[DrawnFigure]  # all others
    recipe: RecipeBox
    changes: Sequence[ChangeSet]
    differences: Differences
    environment: Sequence[EnvironmentFact]
    hints: Sequence[tuple[str, ClockHint]]  # of an arm's script
    commands: Sequence[str]
    citation: str  # BibTeX; '' where there is none
    run_columns: Sequence[RunColumn]
    run_rows: Sequence[tuple[str, str, str, Sequence[TableCell]]]  # run_id, arm, css, cells
    definitions: Sequence[tuple[str, str]]


def hints_by_arms(plan: Plan) -> list[tuple[str, ClockHint]]:
    """Each hint once, with the arms whose scripts it is about."""
    arms: dict[tuple[int, str], list[str]] = {}
    hints: dict[tuple[int, str], ClockHint] = {}
    for arm in plan.arms:
        for hint in arm.hints:
            key = (hint.line, hint.text)
            hints[key] = hint
            arms.setdefault(key, []).append(arm.name)
    listed = []
    for key, names in arms.items():
        who = "every arm" if len(names) == len(plan.arms) > 1 else ", ".join(names)
        listed.append((who, hints[key]))
    return listed


def texts_of(
    verdicts: Verdicts, of_runs: Sequence[Fact], tables: Sequence[Study], figures: Sequence[Figure]
) -> Iterator[str]:
    """What a page says of an experiment between its headline and its settings."""
    yield from (verdicts.lead, *verdicts.notes)
    for head in verdicts.heads:
        yield f"{head.text} {head.meaning}"
    for row in verdicts.rows:
        yield from (row.arm, *(part.text for cell in row.cells for part in cell.parts))
    for verdict, text in verdicts.reading:
        yield f"{verdict} {text}"
    yield from (fact.text for fact in of_runs)
    for table in tables:
        yield from (table.lead, *table.heads)
    yield from (f"{figure.title} {figure.caption}" for figure in figures)


def view(source: PageSource, figures: Sequence[Figure], index: int) -> View:
    """An experiment as the template prints it; index: its place on the page."""
    experiment, outcome, by_design = source.experiment, source.outcome, source.by_design
    plan, runs = experiment.plan, experiment.runs
    palette = palette_of(experiment, outcome)
    css = {arm: palette.css(arm) for arm in palette.arms}
    recipe = Recipe.of(experiment, outcome.budget)
    here: list[str] = []
    if plan.evidence:
        verdicts = evidence_of(experiment, outcome, css)
        asked = asked_here(experiment, outcome)
        next_run, here = (asked.sentence, asked.lines) if asked else ("", [])
    else:
        next_run = next_of_verdicts(experiment, outcome, by_design)
        answer = headline(experiment, outcome, by_design, recipe)
        verdicts = verdicts_of(experiment, outcome, answer, css, next_run)
    published = published_parts(outcome.published) if outcome.published else ()
    waiting = runs["status"].isin(WAITING)
    first = leading(figures, outcome, plan)
    others = [figure for figure in figures if figure.key not in {f.key for f in first}]
    columns = run_columns(runs, experiment.plan)
    tables = studies(experiment, by_design, outcome)
    of_runs = facts(recipe, outcome, runs, accept_stale=experiment.accept_stale)
    rows = [(row.run_id, row.arm, css[row.arm], row.cells) for row in run_rows(runs, columns)]
    return View(
        index=index,
        name=experiment.name,
        question=plan.question or f"What do the changes of {experiment.name} do?",
        verdicts=verdicts,
        scope=scope(recipe, outcome),
        asked_again=asked_again(experiment, by_design.confirmed),
        related=related(experiment),
        next_run=next_run,
        facts=of_runs,
        published=published,
        studies=tables,
        failures=failures(runs[~waiting]),
        n_waiting=int(waiting.sum()),
        figures=[DrawnFigure.of(figure, palette, index) for figure in first],
        appendix=[DrawnFigure.of(figure, palette, index) for figure in others],
        recipe=recipe_box(recipe),
        changes=change_sets(recipe),
        differences=config_differences(recipe),
        environment=how_it_was_run(experiment),
        hints=hints_by_arms(plan),
        commands=commands(experiment.name, plan, here),
        citation=citation(recipe),
        run_columns=columns,
        run_rows=rows,
        definitions=definitions(
            verdicts.heads,
            columns,
            plan,
            [
                *(plan.question, verdicts.answer, scope(recipe, outcome), next_run, plan.design),
                *texts_of(verdicts, of_runs, tables, figures),
            ],
        ),
    )


def how_it_was_run(experiment: Experiment) -> list[EnvironmentFact]:
    """What the plan says of data and clock, then what the runs recorded of their machines."""
    plan, corpus = experiment.plan, experiment.plan.corpus
    fingerprint = str(corpus.fingerprint)[:16]
    unit = "" if plan.own_metrics else f"losses in {corpus.unit}, "
    planned = [
        ("corpus", f"{corpus.name}, {unit}fingerprint {fingerprint}"),
        ("timing protocol", PROTOCOLS.get(plan.protocol, plan.protocol or "not recorded")),
        ("design", f"{plan.design}, from {plan.base} at scale {plan.scale}"),
    ]
    if plan.imported:  # at which size a log was trained is not known
        planned[-1] = ("design", "logs as they were brought in")
    if corpus.heldout:
        fingerprint = str(corpus.heldout["fingerprint"])[:16]
        heldout = f"{corpus.heldout['name']}, fingerprint {fingerprint}"
        planned.insert(1, ("held-out text", heldout))
    of_plan = [(name, [(text, 0)]) for name, text in planned]
    return [*of_plan, *environment_table(experiment.environments)]
