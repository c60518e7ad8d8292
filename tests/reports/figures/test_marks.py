"""Every mark read back against the axis that is drawn beside it: its ticks, not the code, say what a pixel is worth."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from reports.analysis.compare import compare_all
from reports.analysis.types import Comparisons
from reports.figures.base import NARROW, WIDE, Figure
from reports.figures.forest import EffectEnds, forest_range, interval_end
from reports.inputs.experiment import Experiment
from reports.page.by_design import ByDesign
from reports.page.draw import draw_all
from tests.report_kinds import KINDS, grid, points

DOT = re.compile(r"M(-?[\d.]+) (-?[\d.]+)a(\d+)")
PIXEL = 0.1  # to which places are written
Element = ElementTree.Element


@dataclass(frozen=True)
class Drawn:
    """An experiment, its comparisons and its figures."""

    experiment: Experiment
    outcome: Comparisons
    figures: dict[str, Figure]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Drawn]:
    made: dict[str, Drawn] = {}

    def of(kind: str) -> Drawn:
        if kind not in made:
            experiment = KINDS[kind](tmp_path_factory.mktemp(kind))
            outcome = compare_all(experiment)
            figures = draw_all(experiment, outcome, ByDesign.of(experiment, outcome))
            made[kind] = Drawn(experiment, outcome, {f.key: f for f in figures})
        return made[kind]

    return of


class Axis:
    """What a pixel along one direction is worth, by the labels of the ticks and the lines beside them."""

    def __init__(self, svg: Element, *, across: bool, logarithmic: bool = False) -> None:
        here, there = ("x1", "x2") if across else ("y1", "y2")
        lines = [
            float(e.attrib[here])
            for e in svg.iter("line")
            if e.attrib.get("class") == "grid" and e.attrib[here] == e.attrib[there]
        ]
        anchor = "middle" if across else "end"
        labels = [
            float((e.text or "").replace("−", "-"))
            for e in svg.iter("text")
            if e.attrib.get("class") == "tick" and e.attrib["text-anchor"] == anchor
            and re.fullmatch(r"[−\d.]+", e.text or "")
        ]  # fmt: skip
        assert len(lines) == len(labels) >= 2
        self.logarithmic = logarithmic
        values = np.log(labels) if logarithmic else np.array(labels)
        self.worth, self.start = np.polyfit(lines, values, 1)
        assert np.abs(self.worth * np.array(lines) + self.start - values).max() < 2 * self.room

    @property
    def room(self) -> float:
        """What a value may be off for the pixels being rounded, those of the ticks too."""
        return 1.5 * PIXEL * abs(self.worth)

    def at(self, pixel: float) -> float:
        return float(self.worth * pixel + self.start)

    def is_at(self, pixel: float, value: float) -> bool:
        wanted = math.log(value) if self.logarithmic else value
        return abs(self.at(pixel) - wanted) <= self.room


def svg_of(figure: Figure, width: int) -> Element:
    return ElementTree.fromstring(figure.svg(width, 0))


def dots_of(svg: Element) -> Iterator[tuple[int, float, float]]:
    """(row of the table of runs, x, y) of every dot among many."""
    for path in svg.iter("path"):
        if path.attrib.get("class") == "dots":
            rows = path.attrib["data-rows"].split()
            for row, dot in zip(rows, DOT.finditer(path.attrib["d"]), strict=True):
                yield int(row), float(dot[1]) + float(dot[3]), float(dot[2])


WIDTHS = pytest.mark.parametrize("width", [WIDE, NARROW])


@WIDTHS
@pytest.mark.parametrize("kind", ["ladder", "budgets"])
def test_every_run_stands_at_its_time_and_its_loss(
    drawn: Callable[[str], Drawn], kind: str, width: int
) -> None:
    of = drawn(kind)
    svg, runs = svg_of(of.figures["scatter"], width), of.experiment.runs
    x, y = Axis(svg, across=True), Axis(svg, across=False)
    shown = runs[runs["val_loss"].notna() & runs["train_time_s"].notna() & ~runs["stale"]]
    dots = [*dots_of(svg)]
    assert sorted(row for row, *_ in dots) == sorted(shown.index)
    for row, across, down in dots:
        assert x.is_at(across, runs["train_time_s"][row])
        assert y.is_at(down, runs["val_loss"][row])
    target = of.experiment.plan.target.val_loss  # type: ignore[union-attr]
    (line,) = (e for e in svg.iter("line") if e.attrib.get("class") == "target")
    assert y.is_at(float(line.attrib["y1"]), target)  # type: ignore[arg-type]


@WIDTHS
@pytest.mark.parametrize(("key", "column"), [("step_ms", "step_ms"), ("memory", "peak_allocated_mib"), ("seeds", "val_loss")])  # fmt: skip
def test_every_run_and_every_mean_stands_at_its_number(
    drawn: Callable[[str], Drawn], key: str, column: str, width: int
) -> None:
    of = drawn("ladder")
    svg, runs = svg_of(of.figures[key], width), of.experiment.runs
    x = Axis(svg, across=True)
    dots = [*dots_of(svg)]
    assert len(dots) == len({row for row, *_ in dots}) > 10
    for row, across, _ in dots:
        assert x.is_at(across, runs[column][row])
    arms = [arm.name for arm in of.experiment.plan.arms]
    rows = [row for row, *_ in dots]
    means = runs.loc[rows].groupby("arm")[column].mean()
    for group in svg.iter("g"):
        arm = arms[int(group.attrib["data-arm-group"])]
        ticks = [p for p in group.iter("path") if p.attrib.get("class") == "center"]
        (place,) = (float(re.match(r"M([\d.]+)", tick.attrib["d"])[1]) for tick in ticks)  # type: ignore[index]
        assert x.is_at(place, means[arm])


@WIDTHS
def test_every_bar_of_step_times_runs_from_the_median_to_the_95th_percentile(
    drawn: Callable[[str], Drawn], width: int
) -> None:
    of = drawn("ladder")
    svg = svg_of(of.figures["step_ms"], width)
    x, runs = Axis(svg, across=True), of.experiment.runs
    ends = [e for e in svg.iter("line") if e.attrib.get("class") == "whisker"]
    wanted = runs[runs["step_ms"].notna() & ~runs["stale"]].groupby("arm", sort=False)
    rows = [row for arm in of.experiment.plan.arms for row in wanted.groups.get(arm.name, [])]
    for line, row in zip(ends, rows, strict=True):
        assert x.is_at(float(line.attrib["x1"]), runs["step_ms_median"][row])
        assert x.is_at(float(line.attrib["x2"]), runs["step_ms_p95"][row])


@WIDTHS
@pytest.mark.parametrize("kind", ["factorial", "confirmed", "budgets"])
@pytest.mark.parametrize("metric", ["val_loss", "step_ms"])
def test_every_effect_stands_at_its_estimate_between_its_ends(
    drawn: Callable[[str], Drawn], kind: str, metric: str, width: int
) -> None:
    of = drawn(kind)
    svg = svg_of(of.figures[f"forest_{metric}"], width)
    x = Axis(svg, across=True)
    arms = [arm.name for arm in of.experiment.plan.arms]
    seen, estimates = [], {}
    for group in svg.iter("g"):
        arm = arms[int(group.attrib["data-arm-group"])]
        c = of.outcome.of(arm, metric)
        assert c is not None
        numbers = [c.delta, c.low, c.high]
        if metric == "step_ms":  # as a share of the baseline's, in percent
            ratios = (c.ratio, c.ratio_low, c.ratio_high)
            numbers = [100 * (ratio - 1) for ratio in ratios if ratio is not None]
        (centre,) = group.iter("circle")
        (bar,) = (p for p in group.iter("path") if "H" in p.attrib["d"])
        begin, end = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", bar.attrib["d"]).groups()  # type: ignore[union-attr]
        for place, value in zip((centre.attrib["cx"], begin, end), numbers, strict=True):
            assert x.is_at(float(place), value), (arm, value)  # type: ignore[arg-type]
        seen.append(numbers[0])
        estimates[arm] = numbers[0]
    assert len(seen) == len(arms) - 1
    in_order = sorted(seen)
    if of.experiment.plan.design == "ladder":  # each holds all before it
        in_order = [estimates[arm] for arm in arms[1:]]
    assert seen == in_order
    (zero,) = (e for e in svg.iter("line") if e.attrib.get("class") == "zero")
    assert x.is_at(float(zero.attrib["x1"]), 0.0)


@pytest.mark.parametrize(
    ("metric", "ends", "margin", "least"),
    [
        ("val_loss", (-9e-5, 0.0, 9e-5), None, 1e-4),
        ("heldout_loss", (0.0, None, math.inf), None, 1e-4),
        ("val_loss", (-2e-4, 0.0, 2e-4), None, 2e-4),
        ("step_ms", (-0.09, 0.0, 0.09), None, 0.1),
        ("train_time_s", (-0.2, 0.0, 0.2), None, 0.2),
        ("accuracy", (-1e-9, 0.0, 1e-9), None, 1e-9),
        ("val_loss", (-1e-3, 0.0, 1e-3), 0.02, 0.02),
        ("step_ms", (-1.0, 0.0, 1.0), 0.5, 1.0),
    ],
)
def test_an_axis_of_effects_is_no_narrower_than_the_margin_or_than_rounding(
    metric: str, ends: EffectEnds, margin: float | None, least: float
) -> None:
    reach = least + 0.06 * 2 * least
    assert forest_range(metric, {"a": ends}, margin) == pytest.approx((-reach, reach))


def test_an_end_beyond_the_axis_is_an_arrow_that_points_there() -> None:
    for side in (-1, 1):
        arrow, cap = (interval_end(100.0, 50.0, side=side, inside=i) for i in (False, True))
        assert 'd="M100.0 46.0v8"' in cap
        assert f'd="M100.0 50.0l{-6 * side} -4v8z"' in arrow  # its base lies within


def test_every_bar_of_a_waterfall_reaches_from_the_mean_before_to_its_own(
    drawn: Callable[[str], Drawn],
) -> None:
    of = drawn("rungs")
    means = of.experiment.runs.groupby("arm", sort=False)["val_loss"].mean()
    levels = [means[arm.name] for arm in of.experiment.plan.arms]
    svg = svg_of(of.figures["waterfall_val_loss"], WIDE)
    y, bars = Axis(svg, across=False), [*svg.iter("rect")]
    assert y.is_at(float(bars[0].attrib["y"]), levels[0])
    for bar, before, level in zip(bars[1:], levels, levels[1:]):
        top = float(bar.attrib["y"])
        ends = sorted((y.at(top), y.at(top + float(bar.attrib["height"]))))
        assert ends == pytest.approx(sorted((before, level)), abs=2 * y.room)
    narrow = svg_of(of.figures["waterfall_val_loss"], NARROW)
    x, bars = Axis(narrow, across=True), [*narrow.iter("rect")]
    for bar, before, level in zip(bars[1:], levels, levels[1:], strict=False):
        left = float(bar.attrib["x"])
        ends = sorted((x.at(left), x.at(left + float(bar.attrib["width"]))))
        assert ends == pytest.approx(sorted((before, level)), abs=2 * x.room)


@WIDTHS
@pytest.mark.parametrize(
    ("key", "over"), [("loss_by_step", "step"), ("loss_by_time", "train_time_s")]
)
def test_every_curve_goes_through_the_means_of_its_arm(
    drawn: Callable[[str], Drawn], key: str, over: str, width: int
) -> None:
    of = drawn("rungs")
    svg = svg_of(of.figures[key], width)
    x, y = Axis(svg, across=True), Axis(svg, across=False)
    means = of.experiment.curves.groupby(["arm", "step"])[["train_time_s", "val_loss"]].mean()
    arms = [arm.name for arm in of.experiment.plan.arms]
    groups = [g for g in svg.iter("g") if "data-arm-group" in g.attrib]
    assert len(groups) == len(arms)
    for group in groups:
        of_arm = means.loc[arms[int(group.attrib["data-arm-group"])]].reset_index()
        (path,) = (p for p in group.iter("path") if p.attrib.get("class") == "mean")
        points = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"])
        assert len(points) == len(of_arm)
        for (across, down), row in zip(points, of_arm.to_dict("records"), strict=True):
            assert x.is_at(float(across), row[over])
            assert float(down) < 0 or y.is_at(float(down), row["val_loss"])  # off the top


@WIDTHS
def test_every_budget_stands_at_its_steps_and_its_mean_loss(
    drawn: Callable[[str], Drawn], width: int
) -> None:
    of = drawn("budgets")
    svg = svg_of(of.figures["budgets"], width)
    x, y = Axis(svg, across=True, logarithmic=True), Axis(svg, across=False)
    means = of.experiment.runs.groupby(["arm", "budget"])["val_loss"].mean()
    arms = [arm.name for arm in of.experiment.plan.arms]
    for group in svg.iter("g"):
        arm = arms[int(group.attrib["data-arm-group"])]
        dots = [*group.iter("circle")]
        for dot, (budget, loss) in zip(dots, means[arm].items(), strict=True):
            assert x.is_at(float(dot.attrib["cx"]), budget)
            assert y.is_at(float(dot.attrib["cy"]), loss)
        needed = of.outcome.times[arm].n_star
        ticks = [p for p in group.iter("path") if p.attrib.get("class") == "center"]
        assert needed is not None and len(ticks) == 1
        assert x.is_at(float(re.match(r"M([\d.]+)", ticks[0].attrib["d"])[1]), needed)  # type: ignore[index]


def test_the_darker_a_cell_the_lower_its_loss_and_the_lowest_is_bold(
    drawn: Callable[[str], Drawn],
) -> None:
    of = drawn("holes")
    figure = of.figures["heat"]
    svg = svg_of(figure, WIDE)
    cells = [e for e in svg.iter("rect") if e.attrib.get("class") == "heat"]
    table = pd.DataFrame(figure.rows, columns=figure.columns)
    shade: dict[str, list[tuple[float, float]]] = {}
    for arm in table["arm"].unique():
        of_arm = table[table["arm"] == arm]
        values = of_arm.set_index([*figure.columns[1:3]])["mean_val_loss"]
        order = sorted(values.items(), key=lambda item: tuple(map(float_of, item[0])))
        taken, cells = cells[: len(order)], cells[len(order) :]
        pairs = [
            (v, float(c.attrib["fill-opacity"])) for (_, v), c in zip(order, taken, strict=True)
        ]
        shade[str(arm)] = [pair for pair in pairs if not pd.isna(pair[0])]
        assert all(opacity == 0.0 for value, opacity in pairs if pd.isna(value))
    for pairs in shade.values():
        losses, opacities = zip(*sorted(pairs), strict=True)
        least, most = losses[0], losses[-1]
        wanted = [0.5 * (most - loss) / (most - least) for loss in losses]
        assert opacities == pytest.approx(wanted, abs=1e-3)
    bold = [e for e in svg.iter("text") if e.attrib.get("class") == "value plain"]
    lowest = {f"{min(v for v, _ in pairs):.4f}" for pairs in shade.values()}
    assert {e.text for e in bold} == lowest


def float_of(words: str) -> float:
    return float(words.removeprefix("x"))


@WIDTHS
def test_every_drawn_point_stands_at_its_place(drawn: Callable[[str], Drawn], width: int) -> None:
    of = drawn("points")
    figure = of.figures["drawn"]
    svg = svg_of(figure, width)
    x = Axis(svg, across=True, logarithmic=True)
    y = Axis(svg, across=False, logarithmic=True)
    places = [p.attrib["d"] for p in svg.iter("path") if p.attrib.get("class") == "heat"]
    dots = [DOT.match(place) for place in places]
    spots = [(float(d[1]) + float(d[3]), float(d[2])) for d in dots if d is not None]
    wanted = [(float_of(row[1]), float_of(row[2])) for row in figure.rows]
    assert len(spots) == len(wanted)
    for across, up in wanted:
        assert any(x.is_at(cx, across) and y.is_at(cy, up) for cx, cy in spots)


def test_the_rows_of_a_figure_of_single_runs_are_those_of_the_table_of_runs(
    drawn: Callable[[str], Drawn],
) -> None:
    of = drawn("ladder")
    figures = [figure for figure in of.figures.values() if figure.runs]
    assert {figure.key for figure in figures} >= {"seeds", "scatter", "step_ms", "memory"}
    for figure in figures:
        rows = pd.DataFrame(figure.rows, columns=figure.columns, index=figure.runs)
        shown = of.experiment.runs.loc[[*figure.runs], [*figure.columns]]
        pd.testing.assert_frame_equal(rows, shown, check_dtype=False)


def test_a_figure_of_runs_is_drawn_from_the_folder_it_is_of(
    drawn: Callable[[str], Drawn], tmp_path: Path
) -> None:
    """The same runs written elsewhere give the same figures."""
    again = KINDS["rungs"](tmp_path)
    outcome = compare_all(again)
    figures = {f.key: f for f in draw_all(again, outcome, ByDesign.of(again, outcome))}
    for key, figure in drawn("rungs").figures.items():
        assert figure.svg(WIDE, 0) == figures[key].svg(WIDE, 0) and figure.rows == figures[key].rows


def test_what_has_no_loss_anywhere_has_no_heat_map_and_no_drawn_points(tmp_path: Path) -> None:
    for kind, made in (("heat", grid), ("drawn", points)):
        whole = made(tmp_path / kind)
        runs = whole.runs.assign(status="failed", val_loss=float("nan"))
        nothing = replace(whole, runs=runs)
        outcome = compare_all(nothing)
        for experiment, there in ((whole, True), (nothing, False)):
            told = compare_all(experiment) if there else outcome
            figures = draw_all(experiment, told, ByDesign.of(experiment, told))
            assert (kind in {figure.key for figure in figures}) == there
