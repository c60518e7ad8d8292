"""The table of verdicts as it stands on the page, for a paper: markdown, LaTeX or CSV.

Markdown and LaTeX print the page's own cells, without what to do next. CSV has the declared
statistics below them as plain numbers, their units in the names of the columns.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reports.analysis.arm_values import ArmRow
from reports.analysis.own_columns import arm_columns_of
from reports.analysis.recipe import Recipe
from reports.analysis.types import LOSSES, Comparisons
from reports.format import visible
from reports.inputs.columns import Between, Column
from reports.inputs.experiment import Experiment
from reports.inputs.export import as_text
from reports.latex import escaped
from reports.page.by_design import ByDesign
from reports.page.cells import VerdictCell
from reports.page.confirmed import asked_again
from reports.page.headline import headline
from reports.page.published import EVIDENCE_HEADINGS, rows_as_compared
from reports.page.verdicts import VerdictRow
from reports.page.view import evidence_of, verdicts_of
from reports.paper.latex import latex_table

NOT_IN_A_PAPER = ("next_action", "unfinished")
TIME_UNITS = {"step_ms": "ms", "time_to_target": "s", "train_time_s": "s"}  # losses: of the corpus
NAMES = {"step_ms": "step_time", "train_time_s": "train_time"}  # whose unit stands in the key
PERCENT = 100.0
OF_KEY = {  # statistics that are of no metric, or several values
    "n.finished": ("n_finished",),
    "n.diverged": ("n_diverged", "diverged_rate", "diverged_rate_low", "diverged_rate_high"),
    "n.failed": ("n_failed",),
    "n.to_come": ("n_to_come",),
    "n.stale": ("n_stale",),
    "steps.mean": ("steps",),
    "bits_per_byte.mean": ("val_loss_bits_per_byte",),
    "target.seconds": ("time_to_target_s",),
    "target.interval": ("time_to_target_low_s", "time_to_target_high_s"),
    "target.tokens": ("tokens_to_target",),
    "target.tokens_interval": ("tokens_to_target_low", "tokens_to_target_high"),
    "learning.percent": ("gain_learning_percent",),
    "systems.percent": ("gain_systems_percent",),
    "gain.seconds": ("gain_learning_s", "gain_systems_s"),
    "evidence.step": ("delta_step_time_ms",),
}
AS_COMPARED = {  # a statistic of published evidence -> that of a comparison whose name it has
    "evidence.loss": "val_loss.effect",
    "evidence.loss_interval": "val_loss.interval",
    "evidence.step_ratio": "step_ms.effect",
    "evidence.time": "train_time_s.effect",
    "evidence.time_interval": "train_time_s.interval",
}
WORDS = (
    *("val_loss.of_all_parts", "target.reason", "target.extrapolated", "gain.none"),
    "evidence.change",
)


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """The table of one experiment, its cells in words."""

    experiment: Experiment
    outcome: Comparisons
    answer: str
    heads: Sequence[str]
    rows: Sequence[VerdictRow]

    @classmethod
    def of(cls, experiment: Experiment, outcome: Comparisons) -> "PaperTable":
        """As the page has it."""
        css = {arm.name: "" for arm in experiment.plan.arms}
        if experiment.plan.evidence:
            verdicts = evidence_of(experiment, outcome, css)
        else:
            recipe = Recipe.of(experiment, outcome.budget)
            by_design = ByDesign.of(experiment, outcome)
            said = [again.sentence for again in asked_again(experiment, by_design.confirmed)]
            answer = " ".join([*said, headline(experiment, outcome, by_design, recipe)])
            verdicts = verdicts_of(experiment, outcome, answer, css)
        return cls(
            experiment=experiment,
            outcome=outcome,
            answer=verdicts.answer,
            heads=["arm", *(head.text for head in verdicts.heads)],
            rows=verdicts.rows,
        )

    def lines(self) -> list[list[list[str]]]:
        """Rows of cells, a cell as the pieces that it prints."""
        lines = []
        for row in self.rows:
            cells = [pieces_of(cell) for cell in row.cells]
            lines.append([[row.arm], *cells])
        return lines


def pieces_of(cell: VerdictCell) -> list[str]:
    """What a cell prints, one text a piece."""
    return [part.text for part in cell.parts if part.key not in NOT_IN_A_PAPER]


def markdown(table: PaperTable) -> str:
    """A table that GitHub and pandoc read."""
    lines = [markdown_row(table.heads), markdown_row(["---"] * len(table.heads))]
    for cells in table.lines():
        lines.append(markdown_row([joined([*map(in_markdown, pieces)]) for pieces in cells]))
    return "\n".join(lines)


def joined(pieces: Sequence[str]) -> str:
    """The pieces of a cell in one line: an interval follows its estimate, others a comma."""
    text = ""
    for piece in pieces:
        if not text:
            text = piece
        elif piece.startswith(("[", "\\[")):
            text += f" {piece}"
        else:
            text += f", {piece}"
    return text


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def in_markdown(text: str) -> str:
    """The text with nothing in it that markdown or HTML would take for its own."""
    line = " ".join(visible(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|~#$])", r"\\\1", line)


def latex(table: PaperTable) -> str:
    """A booktabs table that compiles wherever that package is; plain ASCII throughout."""
    rows = []
    for cells in table.lines():
        rows.append([[*map(escaped, pieces)] for pieces in cells])
    return latex_table(
        heads=[*map(escaped, table.heads)],
        rows=rows,
        caption=escaped(table.answer),
        label=re.sub(r"[^A-Za-z0-9]+", "-", table.experiment.name).strip("-"),
    )


def csv_text(table: PaperTable) -> str:
    """The same rows as numbers, times' differences in percent; empty where a number is unknown."""
    unit = re.sub(r"\W+", "_", table.experiment.plan.corpus.unit)
    arms, verdicts = [], []
    for row in table.rows:
        arms.append(as_text(visible(row.arm)))
        said = [part.text for part in row.cells[0].parts if part.key == "verdict"]
        verdicts.append("".join(said))
    filled: dict[str, Sequence[Any]] = {"arm": arms}
    if any(verdicts):  # published evidence is not judged
        filled["verdict"] = verdicts
    columns, rows = statistics_of(table)
    for column in columns:
        filled |= numbers_below(column, rows, unit)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(filled)
    writer.writerows(zip(*filled.values(), strict=True))
    return file.getvalue().removesuffix("\n")


def statistics_of(table: PaperTable) -> tuple[Sequence[Column[Any]], Sequence[ArmRow]]:
    """The declared statistics below the headings, and the rows that have them."""
    if table.experiment.plan.evidence:
        of_headings = [column for heading in EVIDENCE_HEADINGS for column in heading.columns]
        columns = [column for column in of_headings if column.key not in WORDS]
        return columns, [*rows_as_compared(table.experiment, table.outcome)]
    printed = []
    for column in arm_columns_of(table.outcome):
        if column.format and column.head in table.heads and column.key not in WORDS:
            printed.append(column)
    return printed, [ArmRow(arm=row.arm, outcome=table.outcome) for row in table.rows]


def numbers_below(
    column: Column[Any], rows: Sequence[ArmRow], unit: str
) -> dict[str, list[float | None]]:
    """Name -> a statistic's number of every row, where any row has one; unit: of a loss."""
    names = column_names(column, unit)
    numbers = [plain_numbers(column, row, len(names)) for row in rows]
    by_name = {}
    for name, of_rows in zip(names, zip(*numbers, strict=True), strict=True):
        if any(number is not None for number in of_rows):
            by_name[name] = list(of_rows)
    return by_name


def column_names(column: Column[Any], unit: str) -> tuple[str, ...]:
    """What a statistic's numbers are called, with their unit; unit: of a loss."""
    if column.key in OF_KEY:
        return OF_KEY[column.key]
    metric, _, what = AS_COMPARED.get(column.key, column.key).rpartition(".")
    prefix = "delta_"
    if metric.startswith("own_"):
        prefix, metric = "own_part_", metric.removeprefix("own_")
    name, of_metric = NAMES.get(metric, metric), f"_{TIME_UNITS.get(metric, unit)}"
    of_effect = "_percent" if metric in TIME_UNITS else f"_{unit}"
    if metric not in (*TIME_UNITS, *LOSSES):  # of a script's own: nobody knows its unit
        of_metric = of_effect = ""
    told = {
        "effect": (f"{prefix}{name}{of_effect}",),
        "interval": (f"{prefix}{name}_low{of_effect}", f"{prefix}{name}_high{of_effect}"),
        "p": (f"{prefix}{name}_p",),
        "sd_paired": (f"{prefix}{name}_paired_sd{of_effect}",),
        "mean": (f"{name}{of_metric}",),
    }
    return told.get(what, (f"{name}_{what}{of_metric}",))


def plain_numbers(column: Column[Any], row: ArmRow, n: int) -> list[float | None]:
    """The numbers of a statistic, n of them; None for each that is not known."""
    value = column.of(row)
    if value is None:
        return [None] * n
    parts: list[Any] = [value]
    if type(value) is tuple:
        parts = list(value)
    numbers: list[float | None] = []
    for part in parts:
        if isinstance(part, str):  # says a number in words
            continue
        numbers += list(part) if isinstance(part, Between) else [part]
    if "percent}" not in column.format:
        return numbers
    return [None if number is None else number * PERCENT for number in numbers]


PAPER_FORMATS: dict[str, Callable[[PaperTable], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": csv_text,
}
