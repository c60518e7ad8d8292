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
from reports.figures.base import NARROW, WIDE, AxisScale, Figure, LogScale, extent, tick_text
from reports.figures.bundles import Course, bundle
from reports.figures.curves import BY_STEP, BY_TIME, ranges_of
from reports.figures.differences import ArmDifference, Grid, Panels, columns_for
from reports.figures.gains import gain_bars
from reports.figures.heat import HeatCell, lowest_words
from reports.figures.palette import Palette
from reports.figures.rows import narrow_row
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
