"""The heat map of two axes: an arm's mean loss at every point of the grid, with its runs."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis.samples import arms_on_the_axes
from reports.figures.base import (
    CHAR_PX,
    MAX_NAMED,
    WIDE,
    Drawing,
    Figure,
    mark,
    shorten,
    text,
)
from reports.format import show
from reports.stats.digits import kept, pixel

ROW_NAMES, PANEL_GAP = 64, 28  # px: the names of rows beside the cells; between panels
TITLE, HEAD_ROW, FOOT_LINE = 18, 20, 16  # px: an arm's name, the columns' names, the axes'
CELL_HEIGHT, MOST_WIDE = 44, 96  # px
MOST_COLUMNS = 8  # beyond which numbers do not fit the cells of a wide drawing
TIGHT = 9.5 / 12  # what stands below a number is smaller (report.css)
DARKEST = 0.5  # the share of colour in the lowest cell, on which ink is read


@dataclass(frozen=True, kw_only=True)
class HeatCell:
    """A point of the grid: the mean loss of its finished runs, None where there is none."""

    loss: float | None
    n_finished: int
    n_diverged: int

    @property
    def below(self) -> str:
        """What stands below the number."""
        if self.n_diverged:
            return f"n {self.n_finished}, {self.n_diverged} div."
        return f"n {self.n_finished}"


Corner = tuple[float, float]
HeatGrid = Mapping[tuple[str, str], HeatCell]  # (word of the row's axis, of the column's) -> cell


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """The drawing: a panel an arm, the first axis down, the second across."""

    axes: tuple[str, str]
    rows: Sequence[str]
    columns: Sequence[str]
    arms: Mapping[str, HeatGrid]
    unit: str

    def draw(self, width: int) -> Drawing:
        side = min(MOST_WIDE, (width - ROW_NAMES) / len(self.columns))
        panel_width = ROW_NAMES + side * len(self.columns) + PANEL_GAP
        foot = FOOT_LINE * len(self.axes_words(panel_width - PANEL_GAP))
        height = TITLE + HEAD_ROW + CELL_HEIGHT * len(self.rows) + foot + 20
        beside = 1
        if width == WIDE:
            beside = max(1, int((width + PANEL_GAP) // panel_width))
        parts = []
        for place, arm in enumerate(self.arms):
            row, column = divmod(place, beside)
            corner = column * panel_width, row * height
            parts += self.panel(arm, corner, side, panel_width - PANEL_GAP)
        n_rows = -(-len(self.arms) // beside)
        return "".join(parts), height * n_rows

    def axes_words(self, width: float) -> list[str]:
        """Which axis goes down and which across, whole, on lines of so many pixels."""
        lines = []
        for direction, name in zip(("down", "across"), self.axes, strict=True):
            lines += textwrap.wrap(f"{direction}: {name}", int(width / CHAR_PX))
        return lines

    def panel(self, arm: str, corner: Corner, side: float, width: float) -> list[str]:
        """One arm from its upper left corner on; side: the width of a cell."""
        (left, top), grid = corner, self.arms[arm]
        losses = [cell.loss for cell in grid.values() if cell.loss is not None]
        cells_left, cells_top = left + ROW_NAMES, top + TITLE + HEAD_ROW
        parts = [text(left, top + 12, shorten(arm, width), css="label value")]
        for column, word in enumerate(self.columns):
            x = cells_left + side * (column + 0.5)
            parts.append(text(x, cells_top - 6, shorten(word, side), anchor="middle", css="tick"))
        for row, word in enumerate(self.rows):
            y = cells_top + CELL_HEIGHT * (row + 0.5) + 4
            name = shorten(word, ROW_NAMES - 8)
            parts.append(text(cells_left - 8, y, name, anchor="end", css="tick"))
        for (row, down), (column, across) in itertools.product(
            enumerate(self.rows), enumerate(self.columns)
        ):
            if (down, across) in grid:
                at = cells_left + side * column, cells_top + CELL_HEIGHT * row
                parts += self.cell(grid[down, across], losses, at, side)
        foot = cells_top + CELL_HEIGHT * len(self.rows)
        for place, line in enumerate(self.axes_words(width)):
            parts.append(text(left, foot + FOOT_LINE * (place + 1), line, css="axis"))
        return parts

    def cell(self, cell: HeatCell, losses: Sequence[float], at: Corner, side: float) -> list[str]:
        """A cell's colour and numbers; losses: of the panel; at: its corner; side: its width."""
        x, y = at
        shade, css = 0.0, "value plain"
        if cell.loss is not None and max(losses) > min(losses):
            shade = DARKEST * (max(losses) - cell.loss) / (max(losses) - min(losses))
        if cell.loss is None or cell.loss > min(losses):
            css = "label plain"
        place = f'x="{pixel(x + 1)}" y="{pixel(y + 1)}"'
        size = f'width="{pixel(side - 2)}" height="{CELL_HEIGHT - 2}"'
        middle = x + side / 2
        number = show(cell.loss, "loss")
        tip = f"{number}, {cell.below}"
        drawn = [mark(f'rect {place} {size} fill-opacity="{shade:.3f}"', tip=tip, css="heat")]
        if len(number) * CHAR_PX <= side:
            drawn.append(text(middle, y + 19, number, anchor="middle", css=css))
        if len(cell.below) * CHAR_PX * TIGHT <= side:
            drawn.append(text(middle, y + 34, cell.below, anchor="middle", css="label plain tight"))
        return drawn


def heat_map(runs: pd.DataFrame, plan: Plan, *, unit: str) -> Figure | None:
    """None but of a grid of two axes; runs: those that count, at one budget; unit: of a loss."""
    if len(plan.axes) != 2 or plan.draw:
        return None
    down, across = plan.axes
    grids: dict[str, dict[tuple[str, str], HeatCell]] = {}
    rows = []
    for arm in arms_on_the_axes(plan):
        cell = cell_of_arm(runs[runs["arm"] == arm.name])
        point = arm.point[down], arm.point[across]
        grids.setdefault(arm.of, {})[point] = cell
        rows.append((arm.of, *point, kept(cell.loss, 6), cell.n_finished, cell.n_diverged))
    columns = [*map(str, plan.axes[across])]
    if not any(row[3] is not None for row in rows) or len(columns) > MOST_COLUMNS:
        return None
    drawing = HeatMap(
        axes=(down, across),
        rows=[*map(str, plan.axes[down])],
        columns=columns,
        arms=grids,
        unit=unit,
    )
    return Figure(
        key="heat",
        title="Loss over both axes",
        caption=f"Mean final validation loss in {unit} at every point of the grid, and the finished"
        " runs below it; the darker a cell, the lower the loss among those of its arm, the lowest"
        " in bold; a number wider than its cell stands in the data alone. The darkest cell is the"
        " lowest of noisy means: see where the loss is lowest.",
        alt=f"Heat map of mean loss, {down} down and {across} across. "
        + "; ".join(lowest_words(arm, grid) for arm, grid in [*grids.items()][:MAX_NAMED]),
        columns=("arm", down, across, "mean_val_loss", "n_finished", "n_diverged"),
        rows=tuple(rows),
        draw=drawing.draw,
    )


def cell_of_arm(runs: pd.DataFrame) -> HeatCell:
    finished = runs[(runs["status"] == "finished") & runs["val_loss"].notna()]
    loss = None
    if len(finished):
        loss = float(finished["val_loss"].mean())
    n_diverged = int((runs["status"] == "diverged").sum())
    return HeatCell(loss=loss, n_finished=len(finished), n_diverged=n_diverged)


def lowest_words(arm: str, grid: HeatGrid) -> str:
    """Where the lowest mean stands, for the text alternative."""
    losses = {point: cell.loss for point, cell in grid.items() if cell.loss is not None}
    if not losses:
        return f"{arm}: no loss"
    point = min(losses, key=losses.__getitem__)
    n = plural(grid[point].n_finished, "run")
    return f"{arm}: lowest {show(losses[point], 'loss')} at {', '.join(point)} of {n}"
