"""The report: one or several experiments as one HTML file that needs no network and no server.

The page carries the data behind every number and figure, so that anybody can check it
(`ablate verify`), sort it, filter it and take it away as CSV.  Names from elsewhere are text
everywhere: Jinja escapes the markup, script_json the data.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from harness.run.document import Content, Document
from harness.run.versions import PAGE
from reports.analysis.compare import compare_all
from reports.figures.base import Figure
from reports.format import visible
from reports.inputs.experiment import Experiment
from reports.inputs.files import write_page
from reports.page.by_design import ByDesign, PageSource
from reports.page.draw import draw_all
from reports.page.embed import embed_experiment, plain, restore_experiment, script_json
from reports.page.glossary import GENERAL_WORDS
from reports.page.related import with_pages
from reports.page.version import WRITTEN_BY, version
from reports.page.view import view

__all__ = ["draw_all", "render", "write_report"]
MEANINGS = {
    part: meaning for term, meaning in GENERAL_WORDS if term != "arm" for part in term.split(", ")
}
TERMS = re.compile(rf"(?<![-\w])({'|'.join(map(re.escape, MEANINGS))})(?=s?\b|(?<=\*))")
INTERVAL = re.compile(r"\[[^\[\]]*\]( %)?")
SETTING = re.compile(r"^(?:Exploratory: )?[Aa]t [^:]+: ")  # how an answer begins
FOOTER = (
    "Written by `ablate report` from {source}. `ablate verify` recomputes every "
    "number and verdict on this page from the data inside it."
)


def write_report(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    refresh_s: float | None = None,
    results: Path | None = None,
) -> Path:
    """Write the page for these experiments to `out`, whole or not at all; returns out.

    refresh_s: it loads itself again so often; results: the folder of results, in which no link is
    followed. Raises ValueError where no experiment is given.
    """
    if not experiments:
        raise ValueError(
            f"{out}: no experiment was given to report on; name one, or run `ablate run` first"
        )
    linked = [with_pages(experiment, out, results) for experiment in experiments]
    return write_page(out, render(linked, refresh_s=refresh_s), results=results)


def render(experiments: Sequence[Experiment], *, refresh_s: float | None = None) -> str:
    """The page's text: the same experiments give the same bytes."""
    drawn_from = [judged(embed_experiment(experiment)) for experiment in experiments]
    return draw_page(drawn_from, refresh_s=refresh_s)


def judged(embedded: Document) -> PageSource:
    """What a page is drawn from: an experiment's data, the experiment restored, its comparisons.

    Restored from what the page will carry, so that the page can be made again from itself.
    """
    experiment = restore_experiment(embedded)
    outcome = compare_all(experiment)
    by_design = ByDesign.of(experiment, outcome)
    return PageSource(data=embedded, experiment=experiment, outcome=outcome, by_design=by_design)


def draw_page(
    experiments: Sequence[PageSource],
    *,
    refresh_s: float | None = None,
    written_by: str | None = None,
) -> str:
    """The page's text, with nothing left to be judged.

    refresh_s: seconds until a browser loads it again, None for never. written_by: the version of
    the program that it names, this one unless another is given.
    """
    views, data = [], []
    for index, source in enumerate(experiments):
        figures = draw_all(source.experiment, source.outcome, source.by_design)
        views.append(view(source, figures, index))
        data.append({**source.data, "figures": figure_data(figures)})
    names = " and ".join(source.experiment.name for source in experiments)
    writer = version() if written_by is None else written_by
    return template().render(
        title=f"{names}: ablation report",
        css=Markup(asset("report.css")),
        js=Markup(asset("report.js")),
        data=Markup(script_json({"format": PAGE, WRITTEN_BY: writer, "experiments": data})),
        experiments=views,
        refresh_s=refresh_s,
        footer=FOOTER.format(
            source=sources_in_words([source.experiment for source in experiments])
        ),
    )


def sources_in_words(experiments: Sequence[Experiment]) -> str:
    """What a page of these experiments is written from, in words."""
    names = {False: "the results directory", True: "the published tables"}
    return " and ".join(dict.fromkeys(names[bool(e.plan.evidence)] for e in experiments))


@cache
def template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=printable
    )
    environment.filters["code"] = code
    environment.filters["glossed"] = glossed
    environment.filters["whole"] = whole
    environment.filters["answer_lines"] = answer_lines
    return environment.from_string(asset("report.html.j2"))


def figure_data(figures: Sequence[Figure]) -> Content:
    """The table behind each figure.

    A figure that shows runs as they are names their rows, one that draws another's table again
    names that.
    """
    tables: Content = {}
    first_with: dict[int, str] = {}  # hash of a table -> the figure that has it
    for figure in figures:
        first = first_with.setdefault(hash((figure.columns, figure.rows)), figure.key)
        if first != figure.key:
            tables[figure.key] = {"same_as": first}
        elif figure.runs:
            tables[figure.key] = {"columns": list(figure.columns), "runs": list(figure.runs)}
        else:
            tables[figure.key] = {"columns": list(figure.columns), "rows": plain(figure.rows)}
    return tables


def printable(value: Any) -> Any:
    """What Jinja prints for a value: foreign text without characters that disturb the rest."""
    if type(value) is str:
        return visible(value)
    return value


def code(text: str) -> Markup:
    """The text escaped, with what stands in `backticks` set as code."""
    pieces = visible(text).split("`")
    if len(pieces) % 2 == 0:  # an unpaired backtick is just a character
        return escape(visible(text))
    marked = Markup("")
    for place, piece in enumerate(pieces):
        if place % 2:
            command, *options = piece.split(" --")
            marked += Markup("<code>{}</code>").format(command)
            for option in options:  # which a line does not end within
                marked += Markup(' <code class="option">{}</code>').format(f"--{option}")
        else:
            marked += escape(piece)
    return marked


def glossed(text: str) -> Markup:
    """The text escaped, every term of the glossary with its meaning beside it, once."""
    marked, told = Markup(""), set[str]()
    for piece in TERMS.split(visible(text)):
        if piece in MEANINGS and piece not in told:
            told.add(piece)
            term = '<dfn tabindex="0" data-tip="{}">{}</dfn>'
            marked += Markup(term).format(MEANINGS[piece], piece)
        else:
            marked += escape(piece)
    return marked


def whole(text: str) -> str:
    """The text with no place for a line to end within an interval."""
    return INTERVAL.sub(lambda interval: interval[0].replace(" ", "\u00a0"), text)


def answer_lines(text: str) -> Markup:
    """An answer with its setting and each of its sentences on a line of its own."""
    setting = SETTING.match(text)
    begin = setting.end() if setting else 0
    lines = [Markup('<span class="setting">{}</span>').format(glossed(text[: begin - 1]))]
    for sentence in text[begin:].split(". "):
        ended = sentence if sentence.endswith(".") else f"{sentence}."
        unbroken = whole(ended).replace(" %", "\u00a0%")
        lines.append(Markup("<span>{}</span>").format(glossed(unbroken)))
    return Markup(" ").join(lines if setting else lines[1:])


def asset(name: str) -> str:
    return (resources.files("reports.page") / "templates" / name).read_text(encoding="utf-8")
