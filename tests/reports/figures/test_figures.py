"""What figures draw follows from the runs: interactions, the distribution of step times, logarithmic axes, waterfalls."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from harness.run.plan import Plan, PlanArm
from reports.analysis.compare import compare_all
from reports.analysis.interactions import interplay
from reports.analysis.types import Comparisons
from reports.figures.base import (
    CHAR_PX,
    NARROW,
    WIDE,
    AxisScale,
    Figure,
    LogScale,
    extent,
    shorten,
    tick_text,
)
from reports.figures.budgets import budget_figure, length_needed
from reports.figures.bundles import Bundle, Course, bundle
from reports.figures.curves import (
    BY_STEP,
    BY_TIME,
    WHOLE_COURSE,
    CurveView,
    curve_figure,
    fits_logarithms,
    is_curve,
    ranges_of,
)
from reports.figures.differences import (
    ArmDifference,
    Grid,
    Panels,
    caption_of,
    columns_for,
    difference_figure,
)
from reports.figures.gains import gain_bars, gains
from reports.figures.heat import HeatCell, heat_map, lowest_words
from reports.figures.palette import Palette
from reports.figures.rows import narrow_row
from reports.figures.runs import STEP_TIME, drift, strip
from reports.figures.steps import step_distribution
from reports.figures.tags import TAG_GAP, WIDE_TAG
from reports.figures.waterfall import mean_of, wrapped
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.inputs.published_experiments import published_experiment
from reports.inputs.step_times import of_steps, of_stretches, percentiles
from reports.page.by_design import ByDesign
from reports.page.write import draw_all, figure_data, render
from tests.report_arms import FACTORIAL, LADDER, LOST_TOGETHER, PARTS, Arm, many_arms
from tests.report_fixtures import write_experiment


def drawn(experiment: Experiment) -> list[Figure]:
    outcome = compare_all(experiment)
    return draw_all(experiment, outcome, ByDesign.of(experiment, outcome))


def figures_of(results: Path) -> dict[str, Figure]:
    experiment = load("split", results=results)
    return {f.key: f for f in drawn(experiment)}


def published_figures(name: str) -> list[Figure]:
    experiment = published_experiment(name)
    return drawn(experiment)


PLAN = Plan(
    name="split",
    arms=tuple(
        PlanArm(name=name, changes=changes, of=name)
        for name, changes in (
            ("base", ()),
            ("a", ("a",)),
            ("b", ("b",)),
            ("a + b", ("a", "b")),
            ("c", ("c",)),
        )
    ),
)


def rows(values: dict[str, list[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"arm": arm, "block": i, "val_loss": v}
            for arm, own in values.items()
            for i, v in enumerate(own)
        ]
    )


def test_an_interaction_is_what_two_changes_add_beyond_their_sum():
    found = interplay(
        rows(
            {
                "base": [2.0, 3.0],
                "a": [1.9, 2.8],
                "b": [1.8, 2.9],
                "a + b": [1.6, 2.9],
                "c": [2.2, 3.1],
            }
        ),
        PLAN,
    )
    by = {e.changes: e for e in found}
    assert by["a", "b"].estimate == pytest.approx(
        ((1.6 - 1.9 - 1.8 + 2.0) + (2.9 - 2.8 - 2.9 + 3.0)) / 2
    )
    assert by["a",].estimate == pytest.approx(((-0.1 - 0.2) / 2 + (-0.2 + 0.0) / 2) / 2), (
        "over both values of b, then blocks"
    )
    assert by["a",].n_contexts == 2
    assert ("a", "c") not in by, "a and c were never run together"
    assert by["a", "b"].low < by["a", "b"].estimate < by["a", "b"].high


def test_arms_that_were_never_combined_have_no_matrix():
    plan = Plan(name="split", arms=PLAN.arms[:3])
    assert interplay(rows({"base": [2.0, 2.1], "a": [1.9, 2.0], "b": [1.8, 1.9]}), plan) == []


def test_a_block_with_a_hole_is_left_out_of_what_it_lacks():
    table = rows(
        {
            "base": [2.0, 3.0, 2.5],
            "a": [1.9, 2.8, 2.4],
            "b": [1.8, 2.9, 2.3],
            "a + b": [1.6, 2.9, 2.2],
        }
    )
    whole = {e.changes: e for e in interplay(table[table["block"] < 2], PLAN)}
    holed = {
        e.changes: e
        for e in interplay(
            table.drop(table.index[(table["arm"] == "a") & (table["block"] == 2)]), PLAN
        )
    }
    assert holed["a", "b"].estimate == pytest.approx(whole["a", "b"].estimate)
    assert holed["a", "b"].n_blocks == 2


def test_a_factorial_shows_the_interaction_that_is_in_it(tmp_path):
    write_experiment(tmp_path, arms=FACTORIAL, n_seeds=6, design="factorial", sd=0.0005)
    found = {(r[0], r[1]): r for r in figures_of(tmp_path)["interactions"].rows}
    *_, low, high, n_blocks, n_contexts = found["softcap", "untied_head"]
    assert low < LOST_TOGETHER < high
    assert low > 0
    assert (n_blocks, n_contexts) == (6, 2)
    assert (
        found["value_residual", "value_residual"][3]
        < PARTS["value_residual"]
        < found["value_residual", "value_residual"][4]
    )
    assert len(found) == 3 + 3


def test_hostile_names_are_text_in_the_matrix(tmp_path):
    bad = ("<script>alert(1)</script>", '" onload="alert(1)')
    arms = [
        Arm(name=" + ".join(c) or "base", loss_effect=0.01 * n, changes=c)
        for n in range(3)
        for c in itertools.combinations(bad, n)
    ]
    write_experiment(tmp_path, arms=arms, n_seeds=3, design="factorial")
    text = render([load("split", results=tmp_path)])
    assert 'id="interactions-0"' in text
    assert text.count("<script") == 2
    assert 'onload="alert' not in text


CURVES = pd.DataFrame(
    {
        "run_id": ["x"] * 4 + ["y"] * 3,
        "arm": ["a"] * 7,
        "step": [0.0, 10, 20, 40, 0, 10, 20],
        "train_time_s": [0.0, 0.1, 0.3, 0.5, 0.0, 9.0, 9.2],
    }
)
RUNS = pd.DataFrame(
    {"run_id": ["x", "y"], "arm": ["a", "a"], "status": ["finished", "failed"], "budget": [4, 4]}
)


def test_step_times_are_means_between_validations_where_single_steps_are_unknown():
    palette = Palette(arms=("a",), baseline="a")
    found = of_stretches(CURVES, skip_first=False)["x"]
    assert (found.n, found.quantiles[0], found.quantiles[-1], found.single) == (
        3,
        10.0,
        20.0,
        False,
    )
    assert of_stretches(CURVES, skip_first=True)["x"].n == 2
    figure = step_distribution(CURVES, RUNS, {}, palette)
    assert sum(r[3] for r in figure.rows) == pytest.approx(3, abs=0.01)
    assert figure.caption.startswith("Single steps were not recorded")
    assert step_distribution(CURVES, RUNS, {}, palette, skip_first=True) is None, (
        "two are no distribution"
    )


def test_the_distribution_of_an_arm_is_that_of_all_its_steps():
    rng = np.random.default_rng(0)
    runs = [rng.lognormal(3.0, 0.1, 400), rng.lognormal(3.2, 0.1, 200)]
    times = {name: of_steps(ms) for name, ms in zip("xy", runs)}
    everything = np.concatenate(runs)
    assert percentiles(list(times.values()), (5, 50, 95)) == pytest.approx(
        np.percentile(everything, (5, 50, 95)), rel=5e-3
    )
    both = RUNS.assign(status="finished")
    figure = step_distribution(CURVES, both, times, Palette(arms=("a",), baseline="a"))
    assert sum(r[3] for r in figure.rows) == pytest.approx(600, abs=0.01)
    for _, low, high, n, *_ in figure.rows[1:-1]:
        assert n == pytest.approx(((everything > low) & (everything <= high)).sum(), abs=15)
    assert figure.caption.startswith("Every step was timed by itself")
    mixed = step_distribution(CURVES, both, {"x": times["x"]}, Palette(arms=("a",), baseline="a"))
    assert mixed.caption.startswith("Single steps are known for 1 of 2 runs")


def test_a_logarithmic_axis_is_a_logarithmic_axis():
    scale = LogScale(low=1.0, high=100.0, start=0.0, end=200.0)
    assert [scale(v) for v in (1.0, 10.0, 100.0)] == pytest.approx([0.0, 100.0, 200.0])
    assert np.isnan(scale(0.0))
    assert scale.ticks() == [1.0, 10.0, 100.0]
    decade = LogScale(low=1.0, high=10.0, start=0.0, end=1.0)
    assert decade.ticks() == [1.0, 2.0, 5.0, 10.0], "two of a series are too few"
    narrow = LogScale(low=3.2, high=5.1, start=0.0, end=1.0).ticks()
    assert narrow == [4.0, 5.0] or len(narrow) >= 3
    assert all(3.2 <= t <= 5.1 for t in narrow)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory) -> tuple[Comparisons, dict[str, Figure]]:
    """A ladder with budgets around its target, compared and drawn."""
    results = tmp_path_factory.mktemp("ladder")
    write_experiment(results, arms=LADDER, n_seeds=3, budgets=(200, 300, 400), target=1.57)
    experiment = load("split", results=results)
    outcome = compare_all(experiment)
    figures = draw_all(experiment, outcome, ByDesign.of(experiment, outcome))
    return outcome, {figure.key: figure for figure in figures}


def test_a_ladder_with_budgets_is_a_waterfall_of_the_time_to_target(ladder):
    outcome, figures = ladder
    rows = figures["waterfall_time_to_target"].rows
    levels = [r[1] for r in rows]
    assert levels == pytest.approx([outcome.times[a.name].seconds for a in LADDER])
    assert levels[0] + sum(r[2] for r in rows[1:]) == pytest.approx(levels[-1])
    assert all(low < level < high for _, level, _, low, high in rows[1:])


def test_a_line_joins_each_bar_of_a_waterfall_to_the_next_and_none_follows_the_last(ladder):
    _, figures = ladder
    drawn, _ = figures["waterfall_val_loss"].draw(WIDE)
    bars = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', drawn)]
    lines = re.findall(r'<line x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*class="zero"', drawn)
    assert len(bars) == len(LADDER)
    for (start, end), (left, right) in zip(lines, itertools.pairwise(bars), strict=True):
        assert left < float(start) < right <= float(end)


def test_the_budgets_name_and_mark_the_steps_that_every_arm_needs(ladder):
    outcome, figures = ladder
    figure = figures["budgets"]
    for width in (NARROW, WIDE):
        drawn, _ = figure.draw(width)
        for arm, time in outcome.times.items():
            steps = f"{time.n_star:.0f} steps"
            assert f"{arm}: reaches the target with {steps}" in drawn
            assert f"{arm} {steps}" in figure.alt


def corners_of(svg: str) -> list[tuple[float, float]]:
    """Where the marks and the texts of a drawing begin and end, in its pixels."""
    found = []
    for element in ElementTree.fromstring(svg).iter():
        at = element.attrib
        for x, y in (("x", "y"), ("x1", "y1"), ("x2", "y2"), ("cx", "cy")):
            if x in at:
                found.append((float(at[x]), float(at[y])))
        if element.tag == "rect":
            x, y = found[-1]
            found.append((x + float(at["width"]), y + float(at["height"])))
    return found


def test_every_mark_of_a_figure_stands_inside_its_drawing(ladder):
    _, figures = ladder
    for figure, width in itertools.product(figures.values(), (NARROW, WIDE)):
        _, height = figure.draw(width)
        corners = corners_of(figure.svg(width, 0))
        assert all(0 <= x <= width and 0 <= y <= height for x, y in corners), figure.key


def test_a_caption_tells_of_bars_where_there_are_any_and_of_budgets_where_there_are_several(
    tmp_path,
):
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=3, budgets=(200, 300))
    experiment = load("split", results=tmp_path)
    told = {figure.key: figure.caption for figure in drawn(experiment)}
    bars = " Bars run from a run's median to its 95th percentile."
    assert told["step_ms"].endswith(f"{bars} Runs of every budget: 200, 300 steps.")
    for key in ("scatter", "step_distribution", "wall"):
        assert told[key].endswith(" Runs of every budget: 200, 300 steps."), key
    logs = experiment.runs.assign(step_ms_median=np.nan, step_ms_p95=np.nan)
    of_logs = {figure.key: figure for figure in drawn(replace(experiment, runs=logs))}
    assert "Bars" not in of_logs["step_ms"].caption
    assert "whisker" not in of_logs["step_ms"].draw(WIDE)[0]


@pytest.mark.slow
def test_many_arms_stand_close_and_share_one_chart_of_their_differences(tmp_path):
    heights, differences = {}, {}
    for n_arms in (12, 14):
        write_experiment(
            tmp_path, name=str(n_arms), arms=many_arms(n_arms), design="add-one", n_seeds=3
        )
        experiment = load(str(n_arms), results=tmp_path)
        figures = {figure.key: figure for figure in drawn(experiment)}
        heights[n_arms] = [
            figures[k].draw(NARROW)[1]
            for k in ("forest_val_loss", "seeds", "step_ms", "step_distribution", "wall")
        ]
        differences[n_arms] = figures["difference"]
    assert all(few > many for few, many in zip(heights[12], heights[14], strict=True))
    few, many = differences[12], differences[14]
    assert many.draw(WIDE)[0].count('class="tick"') < few.draw(WIDE)[0].count('class="tick"') / 3
    groups = set(re.findall(r'data-arm-group="(\d+)"', many.draw(WIDE)[0]))
    assert len(groups) == len(many.legend) == 13
    assert few.legend == () and "band spans" in few.caption
    assert many.caption.endswith(
        "The colour is the verdict: green better, orange worse, blue no different, grey undecided."
        " Numbers are those of the arms."
    )
    assert "band" not in many.caption
    assert {row[0] for row in many.rows} == {f"change_{i:02d}" for i in range(13)}


@pytest.mark.parametrize(
    ("low", "high", "n", "ticks"),
    [
        (0.0, 1.0, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 1.0, 4, [0.0, 0.25, 0.5, 0.75, 1.0]),
        (-3.0, 31.0, 3, [0.0, 20.0]),
        (1.58, 1.61, 6, [1.58, 1.585, 1.59, 1.595, 1.6, 1.605, 1.61]),
        (120.0, 480.0, 4, [200.0, 300.0, 400.0]),
        (4.0, 11.0, 1, [5.0, 10.0]),
        (0.0, 20.0, 0, [0.0, 20.0]),
    ],
)
def test_an_axis_has_no_more_round_numbers_than_asked_and_hardly_fewer(low, high, n, ticks):
    scale = AxisScale(low=low, high=high, start=0.0, end=1.0)
    assert scale.ticks(n) == pytest.approx(ticks)


def test_captions_of_single_runs_and_of_runs_without_blocks_say_so():
    single = {f.key: f for f in published_figures("r09_ladder")}
    assert single["loss_by_step"].caption.startswith("One finished run an arm.")
    assert single["difference"].caption == (
        "An arm's mean less the baseline's: no runs share a block. Below zero is better."
        " The first part runs off."
    )
    assert {row[-1] for row in single["difference"].rows} == {0}


def test_captions_of_blocks_tell_of_their_bands(tmp_path):
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=3)
    figures = figures_of(tmp_path)
    assert "band from the lowest to the highest" in figures["loss_by_step"].caption
    assert figures["difference"].caption.endswith(
        "the band spans the blocks. Below zero is better."
    )
    assert {row[-1] for row in figures["difference"].rows} == {3}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("r08", ["r08"]),
        ("a + b + zero_head", ["+ zero_head"]),
        ("+ momentum warm-up, 500 steps", ["+ momentum", "warm-up, 500", "steps"]),
    ],
)
def test_a_label_is_broken_between_words(name, lines):
    assert wrapped(name, 100.0) == lines


@pytest.mark.parametrize("kind", [AxisScale, LogScale])
def test_the_label_of_a_tick_is_its_value(kind: type[AxisScale]) -> None:
    drawn = np.random.default_rng(7)
    for _ in range(300):
        low = 10.0 ** drawn.uniform(-4, 5)
        scale = kind(low=low, high=low * (1 + 10.0 ** drawn.uniform(-2, 2)), start=0, end=700)
        for n in (3, 5, 7):
            ticks = scale.ticks(n)
            labels = [float(tick_text(tick, ticks)) for tick in ticks]
            assert labels == pytest.approx(ticks, rel=1e-9)
    assert tick_text(-2.5, (-5.0, -2.5, 0.0)) == "−2.5"


@pytest.mark.slow
def test_losses_over_budgets_tell_of_a_target_where_there_is_one(tmp_path: Path) -> None:
    for target in (1.57, None):
        folder = tmp_path / str(target)
        write_experiment(folder, budgets=(200, 300), n_seeds=3, target=target)
        made = load("split", folder)
        outcome = compare_all(made)
        (figure,) = (
            f for f in draw_all(made, outcome, ByDesign.of(made, outcome)) if f.key == "budgets"
        )
        assert ("target" in figure.caption, "target" in figure.alt) == (bool(target),) * 2


def test_figures_say_which_budgets_they_show_and_which_side_is_better(tmp_path: Path) -> None:
    write_experiment(tmp_path, budgets=(100, 150), n_seeds=3)
    figures = figures_of(tmp_path)
    assert figures["seeds"].caption.startswith("One dot a run of 150 steps, ")
    assert figures["scatter"].caption.endswith(" Runs of every budget: 100, 150 steps.")
    assert " Below zero is better." in figures["forest_val_loss"].caption
    assert " Below zero is better." in figures["difference"].caption


def test_no_curve_is_cut_at_the_end_of_the_mean() -> None:
    def course(seconds: float) -> Course:
        return Course(
            steps=np.array([0.0, 10.0]),
            times=np.array([0.0, seconds]),
            losses=np.array([2.0, 1.0]),
        )

    data = {"base": bundle("base", {"quick": course(3.0), "slow": course(5.0)})}
    assert ranges_of(BY_TIME, data, None).x == (0.0, 5.0)
    assert ranges_of(BY_STEP, data, None).x == (0.0, 10.0)


@pytest.mark.parametrize("primary", ["val_loss", "step_ms"])
def test_the_margin_is_drawn_where_it_is_meant(tmp_path: Path, primary: str) -> None:
    """In the unit of the primary metric; a time's axis is in percent, and has none."""
    write_experiment(tmp_path, n_seeds=4)
    experiment = load("split", results=tmp_path)
    plan = replace(experiment.plan, primary=primary, margin=5.0)
    planned = replace(experiment, plan=plan)
    figures = {figure.key: figure for figure in drawn(planned)}
    assert {"forest_val_loss", "forest_step_ms"} <= set(figures)
    with_margin = [key for key, figure in figures.items() if "margin" in figure.caption]
    ladder = ["increments_val_loss", "forest_val_loss"]
    assert with_margin == (ladder if primary == "val_loss" else [])


@pytest.mark.parametrize(
    ("nodes", "lanes"),
    [
        ([None] * 3, ["unknown"]),
        (["unknown"] * 3, ["unknown"]),
        (["n2", "n1", "n2"], ["n1", "n2"]),
        (["n1", None, "unknown"], ["n1", "unknown"]),
        ([f"n{i}" for i in range(9)], [f"n{i}" for i in range(8)]),
    ],
)
def test_step_times_in_the_order_of_starting_have_a_lane_for_each_of_eight_nodes(
    nodes: list[str | None], lanes: list[str]
) -> None:
    ids = [f"r{i}" for i in range(len(nodes))]
    times = {"step_ms": [90.0, 100.0, *[110.0] * (len(nodes) - 2)], "seed": range(len(nodes))}
    runs = pd.DataFrame({"run_id": ids, "arm": "a", "node": nodes, **times})
    started = {run_id: f"2025-01-{28 - i}" for i, run_id in enumerate(ids)}
    figure = drift(runs, Palette(arms=("a",), baseline="a"), started)
    assert figure is not None
    drawing, height = figure.draw(WIDE)
    assert re.findall(r'class="label">([^<]+)<', drawing) == lanes
    assert height == 34 + (120 + 24) * len(lanes) - 24 + 32
    drawn = f"the first 8 of {len(nodes)}" if len(set(nodes)) > 8 else str(len(lanes))
    assert f"on {drawn} node{'s' if len(lanes) > 1 else ''}; from -" in figure.alt
    told = f"Of {len(nodes)} nodes the first 8 by name are drawn."
    assert (told in figure.caption) is (len(set(nodes)) > 8)
    assert [(row[0], row[5]) for row in figure.rows] == [*enumerate(ids[::-1], start=1)]
    few = {run_id: started[run_id] for run_id in ids[:2]}
    assert drift(runs, Palette(arms=("a",), baseline="a"), few) is None


@pytest.mark.parametrize(("n_arms", "room"), [(17, 0), (14, WIDE_TAG + TAG_GAP)])
def test_lines_of_many_arms_end_where_their_numbers_begin_or_at_the_edge(
    n_arms: int, room: float
) -> None:
    """With more arms than can be numbered there are no tags, and no room is left for them."""
    arms = [f"arm{i}" for i in range(n_arms)]
    palette = Palette(
        arms=("baseline", *arms), baseline="baseline", tones=dict.fromkeys(arms, "open")
    )
    assert palette.has_numbers is bool(room)
    delta = ArmDifference(steps=np.array([0.0, 10.0]), rows=np.array([[0.0, 1.0]]), in_blocks=False)
    panels = Panels(
        deltas=dict.fromkeys(arms, delta), palette=palette, unit="nats", y_range=(-1, 1), last=10.0
    )
    drawn, _ = panels.draw(WIDE)
    (zero,) = re.findall(r'<line [^>]*class="zero"[^>]*>', drawn)
    right = re.search(r'x2="([0-9.]+)"', zero)
    assert right is not None and float(right[1]) == WIDE - 12 - room
    assert 'y1="191.0"' in zero and 'y2="191.0"' in zero  # in the middle of 30 and 352
    left = re.search(r'x1="([0-9.]+)"', zero)
    means = re.findall(r'd="M([0-9.]+) [0-9.]+L([0-9.]+) [0-9.]+" class="mean"', drawn)
    assert left is not None and set(means) == {(left[1], right[1])}  # from step 0 to the last
    assert len(means) == n_arms


def test_panels_stand_in_as_many_columns_as_leave_them_legible() -> None:
    numbers = (1, 2, 4, 5, 9, 10)
    assert [columns_for(n, is_wide=True) for n in numbers] == [1, 2, 2, 3, 3, 4]
    assert [columns_for(n, is_wide=False) for n in numbers] == [1, 1, 1, 2, 2, 2]
    palette = Palette(arms=("base", "a"), baseline="base")
    heights = [Grid.of(WIDE, palette, ["a"] * n).height(n) for n in numbers]
    lower = 34 + 3 * (104 + 46)  # of four columns
    assert heights == [*(34 + rows * (150 + 46) for rows in (1, 1, 2, 2, 3)), lower]
    assert [narrow_row(n) for n in (12, 13)] == [44, 32]


def test_a_figures_table_is_its_rows_or_the_runs_that_it_shows_or_anothers() -> None:
    def figure(key: str, **how: Any) -> Figure:
        given: dict[str, Any] = {"columns": ("x",), "rows": ((1,),), **how}
        shown = {"title": "", "caption": "", "alt": "", "draw": lambda width: ("", 0)}
        return Figure(key=key, **shown, **given)

    of_runs = figure("b", columns=("step_ms",), rows=((7,),), runs=(0, 2))
    assert figure_data([figure("a"), of_runs, figure("c"), replace(of_runs, key="d")]) == {
        "a": {"columns": ["x"], "rows": [[1]]},
        "b": {"columns": ["step_ms"], "runs": [0, 2]},
        "c": {"same_as": "a"},
        "d": {"same_as": "b"},
    }


# ---------------------------------------------------------------- what is not there


def test_an_axis_of_nothing_goes_from_zero_to_one() -> None:
    assert extent([]) == extent([float("nan"), float("inf")]) == (0.0, 1.0)
    low, high = extent([2.0], around=[4.0], pad=0.5)
    assert (low, high) == (1.0, 5.0)
    unknown: Any = None
    assert extent([unknown, 2.0, 4.0], pad=0.5) == (1.0, 5.0)


@pytest.mark.parametrize(
    ("values", "room"),
    [
        ([0.0], 1.0),
        ([-5.0, -5.0], 0.5),
        ([1e6, 1e6 + 0.05], 1e5),
        ([1e6, 1e6 + 0.5], 0.05),
        ([1e-6, 1.1e-6], 1e-8),
    ],
)
def test_an_axis_of_values_that_are_one_but_for_rounding_is_as_wide_as_a_part_of_them(
    values: list[float], room: float
) -> None:
    low, high = extent(values, pad=0.1)
    assert (min(values) - low, high - max(values)) == pytest.approx((room, room), rel=1e-3)


def test_a_tick_alone_has_its_own_decimals() -> None:
    assert [tick_text(v, [v]) for v in (0.0, 2.5, 2.5e-7, -40.0)] == [
        *("0", "2.5", "0.00000025", "−40"),
    ]
    assert tick_text(-1e-9, [-1e-9, 0.25]) == "0.00"


@pytest.mark.parametrize(
    ("px", "cut"),
    [(0.0, "ab…j"), (5 * CHAR_PX, "ab…ij"), (9.9 * CHAR_PX, "abcd…ghij"), (73.1, "abcdefghij")],
)
def test_a_name_that_is_too_long_keeps_both_its_ends(px: float, cut: str) -> None:
    assert shorten("abcdefghij", px) == cut


def test_a_side_of_a_gain_that_is_not_resolved_says_so_in_place_of_its_bar() -> None:
    def of_x(percent: float) -> float:
        return 100 + percent

    scale: Any = of_x
    bars = gain_bars("a", {"systems": -20.0}, 10.0, scale)
    assert "learning not resolved" in bars[0] and 'x="105.0" y="25.0"' in bars[0]
    assert "not resolved" not in "".join(bars[1:]) and "rect" in "".join(bars[1:])


def test_a_map_without_a_loss_has_no_lowest_place() -> None:
    none = HeatCell(loss=None, n_finished=0, n_diverged=2)
    assert lowest_words("a", {("x1",): none}) == lowest_words("a", {}) == "a: no loss"
    cells = {("x1",): none, ("x2",): HeatCell(loss=1.5, n_finished=2, n_diverged=0)}
    assert lowest_words("a", cells) == "a: lowest 1.5000 at x2 of 2 runs"


def test_arms_beyond_the_hues_are_dashed() -> None:
    palette = Palette(arms=tuple("abcdefghijkl"), baseline="a")
    dashed = [arm for arm in palette.arms if palette.dash_attribute(arm)]
    assert dashed == [*"jkl"]
    assert palette.dash_attribute("j") == f' stroke-dasharray="{palette.dash("j")}"'


def test_an_arm_without_runs_has_no_mean() -> None:
    cells = {"a": SimpleNamespace(mean={"steps": 10.0, "val_loss": float("nan")})}
    outcome: Any = SimpleNamespace(cells=cells)
    asked = [("steps", "a"), ("val_loss", "a"), ("step_ms", "a"), ("steps", "b")]
    assert [mean_of(*pair, outcome) for pair in asked] == [10.0, None, None, None]


# ---------------------------------------------------------------- from where on


@pytest.mark.parametrize(
    ("steps", "is_near"),
    [(None, False), (50.0, False), (50.1, True), (799.9, True), (800.0, False)],
)
def test_the_steps_to_a_target_are_marked_within_twice_the_budgets(
    steps: float | None, is_near: bool
) -> None:
    outcome: Any = SimpleNamespace(times={"a": SimpleNamespace(n_star=steps, tokens=None)})
    assert length_needed(outcome, [100, 200, 400]) == ({"a": steps} if is_near else {})
    outcome.times["a"].tokens = 7.0
    assert length_needed(outcome, [100, 200, 400]) == ({"a": 7.0} if is_near else {})


def test_losses_over_budgets_need_two_of_them_and_tokens_are_whole() -> None:
    palette = Palette(arms=("a", "b"), baseline="a")
    outcome: Any = SimpleNamespace(
        step_tokens={"a": 10.26}, times={}, length="tokens", baseline="a"
    )
    table = pd.DataFrame(
        {
            "arm": ["a", "a", "b", "a", "a"],
            "budget": [100, 200, 100, 300, 400],
            "val_loss": [3.1234567, 3.0, 3.2, 2.9, np.nan],
            "status": [*["finished"] * 3, "failed", "finished"],
        }
    )
    figure = budget_figure(table, outcome, palette, unit="nats", target=None)
    assert figure is not None and figure.rows == (
        *(("a", 100, 3.123457, 1, 1026), ("a", 200, 3.0, 1, 2052), ("b", 100, 3.2, 1)),
    )
    assert budget_figure(table[2:], outcome, palette, unit="nats", target=None) is None


def line_of(steps: list[float], losses: list[float] | None = None, n_runs: int = 1) -> Bundle:
    course = Course(
        steps=np.array(steps),
        times=np.array(steps),
        losses=np.array(losses or [1.0 / (1 + step) for step in steps]),
    )
    return bundle("a", {str(i): course for i in range(n_runs)})


def test_a_course_has_two_points_after_the_first_and_on_logarithms_six_above_zero() -> None:
    assert [is_curve(line_of(steps)) for steps in ([0, 1], [0, 1, 2], [1, 2], [2])] == [0, 1, 1, 0]
    assert [fits_logarithms(line_of([*range(n)])) for n in (6, 7)] == [False, True]
    assert fits_logarithms(line_of([1, 2, 3, 4, 5, 6]))
    assert not fits_logarithms(line_of([*range(7)], [3.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.0]))


def test_bands_are_drawn_of_eight_arms_and_lines_of_sixty_runs() -> None:
    def caption(n_arms: int, n_runs: int, view: CurveView = BY_STEP) -> str:
        data = {str(arm): line_of([0, 1, 2], n_runs=n_runs) for arm in range(n_arms)}
        palette = Palette(arms=tuple(data), baseline="0")
        return curve_figure(view, data, palette, "nats", None).caption.partition(".")[0]

    band = ", band from the lowest to the highest run"
    assert caption(8, 2) == f"Mean over finished runs{band}; thin lines are single runs"
    assert caption(9, 2) == "Mean over finished runs; thin lines are single runs"
    assert caption(2, 30) == f"Mean over finished runs{band}; thin lines are single runs"
    assert caption(1, 61) == f"Mean over finished runs{band}"
    assert caption(2, 2, BY_TIME).startswith(
        f"Mean over finished runs{band} at the mean time of a step; thin"
    )
    assert caption(2, 2, WHOLE_COURSE) == f"Mean over finished runs{band}"
    assert caption(2, 1) == "One finished run an arm"


def test_a_whole_course_begins_at_the_first_step_and_reaches_below_its_target() -> None:
    data = {"a": line_of([0, 1, 10], [8.0, 4.0, 2.0]), "b": line_of([2, 20], [6.0, 3.0])}
    for target, lowest in ((None, 2.0), (5.0, 2.0), (1.0, 1.0)):
        ranges = ranges_of(WHOLE_COURSE, data, target)
        assert ranges.x == (1.0, 20.0)
        assert ranges.y == pytest.approx((0.97 * lowest, 1.03 * 6.0))
    assert ranges_of(BY_STEP, {"a": line_of([0])}, None).x == (0.0, 1.0)
    late = ranges_of(BY_STEP, {"a": data["a"]}, 1.0)
    assert late.y == pytest.approx((1.0 - 0.03, 2.0 + 0.03))


def test_differences_are_told_of_arms_with_two_steps_of_the_baselines() -> None:
    arms = ("base", "one", "two", "none", "far")
    steps = {
        "base": [0, 10, 20],
        "one": [0, 5],
        "two": [0, 20, 30],
        "none": [1],
        "far": [0, 10, 20],
    }
    data = {arm: line_of([float(step) for step in steps[arm]]) for arm in arms}
    runs = pd.DataFrame({"run_id": [], "block": [], "seed": []})
    figure = difference_figure(data, runs, Palette(arms=arms, baseline="base"), "nats")
    assert figure is not None
    assert [row[:2] for row in figure.rows] == [
        *(("two", 0), ("two", 20), ("far", 0), ("far", 10), ("far", 20))
    ]
    alone = {arm: data[arm] for arm in ("base", "one", "none")}
    assert difference_figure(alone, runs, Palette(arms=arms, baseline="base"), "nats") is None


@pytest.mark.parametrize(
    ("n_all", "n_blocked", "said"),
    [
        (12, 12, "; the band spans the blocks."),
        (13, 13, "."),
        (*(2, 1, "; the band spans the blocks. An arm that shares no block with the baseline: "),),
    ],
)
def test_a_caption_tells_what_is_subtracted_from_what(
    n_all: int, n_blocked: int, said: str
) -> None:
    if n_blocked < n_all:
        said += "its mean less the baseline's."
    deltas = [
        ArmDifference(steps=np.zeros(2), rows=np.zeros((1, 2)), in_blocks=place < n_blocked)
        for place in range(n_all)
    ]
    assert caption_of(deltas) == (
        "Mean over blocks of the difference to the baseline run of the same block"
        f"{said} Below zero is better."
    )


def on_grid(n_down: int, n_across: int, **facts: Any) -> Figure | None:
    """The heat map of a grid of so many points, each of one run."""
    down, across = ([f"x{i}" for i in range(n)] for n in (n_down, n_across))
    arms, rows = [], []
    for place, (i, j) in enumerate(itertools.product(down, across)):
        point = {"lr": i, "wd": j}
        arms.append(PlanArm(name=f"a @ {i} {j}", of="a", point=point))
        rows.append({"arm": f"a @ {i} {j}", "status": "finished", "val_loss": 3.0 - 0.01 * place})
    plan = Plan(name="g", baseline=arms[0].name, arms=tuple(arms), axes={"lr": down, "wd": across})
    return heat_map(pd.DataFrame(rows), replace(plan, **facts), unit="nats")


def test_a_heat_map_has_up_to_eight_columns_and_two_axes() -> None:
    figure = on_grid(2, 8)
    assert figure is not None and len(figure.rows) == 16
    assert figure.rows[-1] == ("a", "x1", "x7", 2.85, 1, 0)
    assert figure.alt.endswith("across. a: lowest 2.8500 at x1, x7 of 1 run")
    assert on_grid(9, 2) is not None and on_grid(2, 9) is None
    for axes in ({"lr": ["x0"]}, {"lr": ["x0"], "wd": ["x0"], "b": ["x0"]}):
        assert on_grid(2, 2, axes=axes) is None
    assert on_grid(2, 2, draw={"sobol": 4}) is None


def test_gains_are_drawn_of_every_arm_that_has_one_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "reports.figures.gains.has_resolved", lambda outcome, arm, side: arm != f"dull {side}"
    )

    def gain(learning: float | None, systems: float = 2.0) -> Any:
        percents = {"learning_percent": learning, "systems_percent": systems, "total_percent": 1.0}
        return SimpleNamespace(**percents, learning_s=-1.0, systems_s=0.5, total_s=-0.5)

    told = {"one length": gain(None), "dull systems": gain(-1.0), "dull learning": gain(-1.04)}
    told |= {f"a{i}": gain(-3.0) for i in range(19)}
    arms = ("base", *told)
    outcome: Any = SimpleNamespace(decompositions=told, length="steps", step_tokens={})
    figure = gains(outcome, Palette(arms=arms, baseline="base"))
    assert figure is not None
    start = "Bars per arm of learning and systems gain in percent: "
    labels = figure.alt.removeprefix(start).split("; ")
    assert labels[:3] == [
        *("dull systems learning -1.0", "dull learning systems +2.0"),
        "a0 learning -3.0, systems +2.0",
    ]
    assert len(labels) == 20 and len(figure.rows) == 21
    assert figure.rows[0] == ("dull systems", -1.0, 2.0, 1.0, -1.0, 0.5, -0.5)
    outcome.decompositions = {"one length": gain(None)}
    assert gains(outcome, Palette(arms=arms, baseline="base")) is None


@pytest.mark.parametrize(("n_runs", "has_bars"), [(200, True), (201, False)])
def test_spreads_of_single_runs_are_drawn_of_two_hundred(n_runs: int, has_bars: bool) -> None:
    spread = {"step_ms": 100.0, "step_ms_median": 99.0, "step_ms_p95": 120.0}
    runs = pd.DataFrame(
        {"arm": "a", "seed": range(n_runs), "run_id": "r", "budget": 100, **spread},
        index=range(n_runs),
    )
    figure = strip(STEP_TIME, runs, Palette(arms=("a",), baseline="a"))
    assert figure is not None
    assert ("Bars run" in figure.caption) == has_bars
    assert figure.draw(WIDE)[0].count("whisker") == n_runs * has_bars
