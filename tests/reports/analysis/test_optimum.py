"""Along an axis: where the loss is lowest and how sure that is, on the page and in its headline; the heat map of two axes."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reports.analysis.compare import compare_all
from reports.analysis.optimum import GridAxis, Lowest, lowest_told, optima
from reports.analysis.slopes import Slopes, lowest, slope_weights
from reports.figures.base import CHAR_PX, NARROW, WIDE
from reports.figures.heat import MOST_COLUMNS, TIGHT, HeatCell, HeatMap, heat_map
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.page.by_design import ByDesign
from reports.page.draw import draw_all
from reports.page.embed import table_rows
from reports.page.next_run import next_of_verdicts
from reports.page.places import optimum_answer, place_words
from reports.page.write import render, write_report
from reports.verify.optimum import check_signs
from reports.verify.page import read_page
from reports.verify.verify import check_data, verify
from tests.proof.optimum import PLACE, claims, each, grid_of
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment

RATES, DECAYS = ("x0.5", "x1", "x2"), ("x0.5", "x1", "x2")
PLACES = {"x0.5": -1.0, "x1": 0.0, "x2": 1.0}


def bowl(folder: Path, lowest_at: dict[str, float], *, two: bool = False, **facts) -> Experiment:
    """Arms of a design over one axis or two, their losses a bowl around a place (in doublings)."""
    points = [*itertools.product(RATES, DECAYS)] if two else [(rate, "x1") for rate in RATES]
    arms, place = [], {}
    for of, at in lowest_at.items():
        for rate, decay in points:
            name = of if (rate, decay) == ("x1", "x1") else f"{of} @ {rate} {decay}"
            loss = 0.05 * (PLACES[rate] - at) ** 2 + 0.02 * PLACES[decay] ** 2
            arms.append(Arm(name=name, loss_effect=loss, fields=(("plugin.arm", name),)))
            point = {"optim.muon_lr": rate} | ({"optim.adam_lr": decay} if two else {})
            place[name] = {"of": of, "point": point}
    base = next(iter(lowest_at))
    arms.sort(key=lambda arm: arm.name != base)
    how = {"n_seeds": 4, "sd": 1e-3, "target": None, "n_points": 3, "design": "add-one", **facts}
    write_experiment(folder, arms=arms, **how)
    made = load("split", folder)
    axes = {"optim.muon_lr": list(RATES)} | ({"optim.adam_lr": list(DECAYS)} if two else {})
    placed = tuple(replace(arm, **place[arm.name]) for arm in made.plan.arms)
    return replace(made, plan=replace(made.plan, axes=axes, arms=placed))


def next_of(made):
    """What the page says to run next."""
    outcome = compare_all(made)
    return next_of_verdicts(made, outcome, ByDesign.of(made, outcome))


def test_the_place_of_the_lowest_loss_is_found_with_its_interval(tmp_path):
    base, arm = optima(bowl(tmp_path, {"base": 0.3, "a": -0.4}))
    for found, at in ((base, 2**0.3), (arm, 2**-0.4)):
        assert found.where is Lowest.INSIDE
        assert found.low < at < found.high
        assert found.value == pytest.approx(at, rel=0.05)
        assert found.n_blocks == 4
    assert re.fullmatch(r"x1\.\d\d \[x1\.\d\d, x1\.\d\d\]", place_words(base))


def test_a_lowest_loss_beyond_the_grid_or_nowhere_has_no_number(tmp_path):
    found = {o.arm: o for o in optima(bowl(tmp_path, {"base": 2.5, "a": -2.5}))}
    assert (found["base"].where, place_words(found["base"])) == (Lowest.LAST, "x2 or beyond")
    assert (found["a"].where, place_words(found["a"])) == (Lowest.FIRST, "x0.5 or beyond")
    assert found["a"].is_resolved and found["a"].value is None
    assert optimum_answer([*found.values()]) == (
        "The loss along optim.muon_lr is lowest at x2 or beyond for base, x0.5 or beyond for a."
    )


def test_an_axis_that_reaches_zero_is_taken_as_it_is():
    places = [[*GridAxis(name="x", words=words).places] for words in (("0", "1", "4"), ("1", "4"))]
    assert places == [[0.0, 1.0, 4.0], [0.0, np.log(4)]]


def test_one_block_tells_a_place_and_no_interval():
    bend = np.array([1.0, 0.0, 1.5])[None, :, None]
    place, ends = lowest(Slopes(losses=bend, places=np.array([0.0, 1.0, 2.0]), alpha=0.05))
    assert place == pytest.approx(0.9) and ends is None
    assert lowest_told(Slopes(losses=bend, places=np.array([0.0, 1.0, 2.0]), alpha=0.05))[2] is None


def test_losses_that_curve_downwards_have_no_lowest_point():
    noise = np.random.default_rng(0).normal(0, 1e-3, (3, 3, 1))
    hill = noise + np.array([0.0, 1.0, 0.0])[None, :, None]
    slopes = Slopes(losses=hill, places=np.log([0.5, 1.0, 2.0]), alpha=0.05)
    assert lowest(slopes) == (None, None)
    assert lowest_told(slopes) == (Lowest.NOWHERE, None, None)


@pytest.mark.parametrize("seed", range(6))
def test_what_noise_alone_shows_is_not_said_without_a_doubt(seed):
    flat = np.random.default_rng(seed).normal(size=(3, 3, 1))
    where, place, ends = lowest_told(Slopes(losses=flat, places=grid_of(3), alpha=0.05))
    assert ends is None
    assert where is Lowest.UNTOLD or (where is Lowest.INSIDE and place is not None)


def test_an_end_that_the_grid_does_not_show_is_beyond_it():
    rng = np.random.default_rng(0)
    places = grid_of(3)
    y = 8 * (places - 0.6) ** 2 + rng.normal(0, 0.5, (6, 3))
    place, ends = lowest(Slopes(losses=y[:, :, None], places=places, alpha=0.05))
    assert ends is not None
    assert np.isfinite(ends[0])
    assert ends[1] == np.inf
    assert ends[0] < place


def test_noise_alone_gives_no_interval(tmp_path):
    noisy = bowl(tmp_path, {"base": 0.3, "a": 2.5}, sd=0.4, n_seeds=3)
    found = optima(noisy)
    assert [o.is_resolved for o in found] == [False, False]
    assert [o.low is None and o.high is None for o in found] == [True, True]
    for o in found:
        assert "not resolved" in place_words(o)
        assert "not resolved" in optimum_answer([o])
    page = render([noisy])
    assert "not resolved" in re.search(r'data-key="answer">(.*?)</p>', page)[1]


def test_a_point_with_a_diverged_run_is_left_out_and_named(tmp_path):
    lost = {("base @ x2 x1", 1): "diverged"}
    made = bowl(tmp_path, {"base": 0.0, "a": 0.0}, outcome=lost)
    base, arm = optima(made)
    assert (base.where, base.left_out) == (Lowest.TOO_FEW, ("x2",))  # two points: no quadratic
    assert (base.value, base.is_resolved, base.n_blocks) == (None, False, 0)
    assert (arm.where, arm.left_out) == (Lowest.INSIDE, ())
    page = read_page(render([made]))
    assert check_data(page, None) == []
    assert "too few whole points" in page.markup
    assert "without x2, where not every run finished" in page.markup
    assert "has too few whole points for base" in optimum_answer([base, arm])


def test_an_axis_of_two_points_is_said_to_have_too_few(tmp_path):
    made = bowl(tmp_path, {"base": 0.0})
    two = tuple(arm for arm in made.plan.arms if arm.point["optim.muon_lr"] != "x2")
    runs = made.runs[made.runs["arm"].isin([arm.name for arm in two])]
    (only,) = optima(replace(made, plan=replace(made.plan, arms=two), runs=runs))
    assert (only.where, only.left_out) == (Lowest.TOO_FEW, ())
    assert only.axis.words == ("x0.5", "x1")
    assert optimum_answer([only]) == ""


@pytest.mark.slow
def test_places_hold_for_the_family_that_the_memory_knows(tmp_path):
    """Of 50 changes asked about this baseline five are these: a tenth of the error rate."""
    alone = bowl(tmp_path, {"base": 0.3, "a": -0.4})
    remembered = replace(alone, memory=Memory(family=50))
    assert optima(remembered) == optima(alone, level=0.995)
    assert optima(remembered) != optima(alone)
    page = read_page(render([remembered]))
    assert check_data(page, None) == []
    at_once = read_page(render([alone]))
    forged = replace(page, carried={**page.carried, **of_optima(at_once)})
    assert any("closer than its error gives" in line for line in check_data(forged, None))


def of_optima(page):
    return {place: value for place, value in page.carried.items() if place[1] == "optimum"}


def test_two_axes_are_each_averaged_over_the_other(tmp_path):
    found = optima(bowl(tmp_path, {"base": 0.3}, two=True))
    assert [o.axis.name for o in found] == ["optim.muon_lr", "optim.adam_lr"]
    assert found[0].value == pytest.approx(2**0.3, rel=0.05)
    assert found[1].value == pytest.approx(1.0, rel=0.05)


@pytest.mark.slow
def test_where_a_corner_diverged_the_average_is_over_the_other_points(tmp_path):
    lost = {("base @ x2 x2", 1): "diverged"}
    made = bowl(tmp_path, {"base": 0.3}, two=True, outcome=lost)
    found = optima(made)
    assert [o.left_out for o in found] == [("optim.adam_lr x2",), ("optim.muon_lr x2",)]
    assert found[0].value == pytest.approx(2**0.3, rel=0.05)
    page = read_page(render([made]))
    assert check_data(page, None) == []
    assert "without optim.adam_lr x2, where not every run finished" in page.markup


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("n", [3, 7])
def test_the_studys_batch_is_the_production_interval(n, k):
    places = grid_of(k)
    rng = np.random.default_rng([n, k])
    y = 8 * (places - PLACE) ** 2 + rng.normal(size=(12, n, k))
    holds, resolved = each(y, places)
    for r in range(12):
        _, ends = lowest(Slopes(losses=y[r][:, :, None], places=places, alpha=0.05))
        assert (ends is not None) == resolved[r]
        if ends is not None:
            assert (ends[0] <= PLACE <= ends[1]) == holds[r]


@pytest.mark.parametrize("k", [3, 5])
def test_the_studys_claims_are_what_a_page_says_without_a_doubt(k):
    places, rng = grid_of(k), np.random.default_rng(k)
    shapes = (0.0, 8 * places**2, -8 * places**2, 5 * places, -5 * places)
    y = np.concatenate([shape + rng.normal(size=(4, 5, k)) for shape in shapes])
    claimed, found = claims(y, places), []
    for losses in y:
        where, _, ends = lowest_told(Slopes(losses=losses[:, :, None], places=places, alpha=0.05))
        found.append(ends is not None or where in (Lowest.FIRST, Lowest.LAST, Lowest.NOWHERE))
    assert found == claimed.tolist()
    assert 0 < sum(found) < len(found)


def test_the_slope_of_a_parabola_is_its_slope():
    places = np.array([0.0, 1.0, 3.0, 4.0])
    y = 2 + 3 * places + 5 * places**2
    assert [float(slope_weights(places, x) @ y) for x in (0.0, 2.0)] == pytest.approx([3.0, 23.0])
    of_two = np.stack([y, 3 * y], axis=1)[None].repeat(2, axis=0)  # at two points of another axis
    slopes = Slopes(losses=of_two, places=places, alpha=0.05)
    assert [slopes.at(x).value for x in (0.0, 2.0)] == pytest.approx([6.0, 46.0])
    assert slopes.curvature.value == pytest.approx(20.0)


def test_the_headline_begins_with_the_place_and_verify_recomputes_it(tmp_path):
    made = bowl(tmp_path / "r", {"base": 0.3}, two=True, n_seeds=3)
    page = write_report([made], tmp_path / "page.html")
    assert check_data(read_page(page), None) == []
    text = page.read_text()
    answer = read_page(page).sentences[0, "answer"]
    assert re.search(r": The loss along optim\.muon_lr is lowest at x1\.\d+ \[x", answer)
    place = re.search(r'<td data-v="([\d.]+),([\d.]+),([\d.]+)" data-label="lowest at">', text)
    value, low, _ = place.groups()
    for old, new, said in (
        (f'"{value},', f'"{float(value) + 0.01:.6f},', "the rows give another place"),
        (f",{low},", f",{(float(low) + float(value)) / 2:.6f},", "closer than its error gives"),
    ):
        page.write_text(text.replace(old, new, 1))
        forged = read_page(page)
        assert any(said in line for line in check_data(forged, None)), said


def test_a_headline_along_an_axis_says_what_the_arms_do_there_and_lists_no_points(tmp_path):
    made = bowl(tmp_path / "r", {"base": 0.3, "a": -0.9}, n_seeds=3)
    page = write_report([made], tmp_path / "page.html")
    text = page.read_text()
    answer = read_page(page).sentences[0, "answer"]
    said = re.search(
        r"a against base at the same point: its sign turns, from (−0\.\d+) \[−\S+, −\S+\] at optim"
        r"\.muon_lr x0\.5 to (\+0\.\d+) \[\S+, \S+\] at optim\.muon_lr x2; "
        r"better at 1, worse at 2 of 3\.",
        answer,
    )
    read = read_page(page)
    data = read.data["experiments"][0]
    for effect in said.groups():
        assert effect in text.split("Does the sign hold?")[2], "the headline's ends are the table's"
        lie = {(0, "answer"): read.sentences[0, "answer"].replace(effect, f"{effect[0]}0.0012")}
        forged = replace(read, sentences=read.sentences | lie)
        assert [*check_signs(forged, 0, data["plan"], table_rows(data["runs"]))] != [], effect
    assert "base @ x0.5 x1" not in answer, "the worst points are no answer"
    assert answer.startswith("Exploratory: at ")
    assert check_data(read_page(page), None) == []


@pytest.mark.parametrize(
    ("lowest_at", "helps", "step"),
    [
        ({"base": 0.3, "a": -0.4}, "nothing, and a at some points alone", "`estimand: retuned`"),
        ({"base": 0.3, "a": -2.5}, "nothing.", "for a is lowest at x0.5 or beyond"),
        ({"base": 0.3, "a": -2.5}, "nothing.", "`optim.muon_lr: [x0.25, x0.5, x1, x2]`"),
        ({"base": 2.5}, "base @ x2 x1.", "`optim.muon_lr: [x0.5, x1, x2, x4]`"),
        ({"base": 0.3}, "nothing.", "nothing that these runs ask for"),
        (
            {"base": 0.7},
            "base @ x2 x1.",
            "`ablate confirm experiments/split.yaml --arm 'base @ x2 x1'`, which asks",
        ),
    ],
)
def test_a_page_along_an_axis_says_what_helps_at_one_point_and_what_to_run_next(
    tmp_path, lowest_at, helps, step
):
    made = bowl(tmp_path, lowest_at)
    said = next_of(made)
    assert said.startswith(f"Shown to be better: {helps}")
    assert step in said.partition("What to run next: ")[2]


def test_a_sweep_for_the_rates_of_another_experiment_asks_for_rates_alone(tmp_path):
    """What helps is that experiment's question, on its own seeds."""
    made = bowl(tmp_path, {"base": 0.3, "a": -0.4})
    grid = replace(made, plan=replace(made.plan, name="mine.grid"))
    said = next_of(grid)
    assert said.startswith("What helps is judged by mine, whose rates these runs choose. ")
    assert "to help:" not in said and "retuned" not in said


def test_a_page_of_drawn_points_has_the_best_of_those_that_help_confirmed(tmp_path):
    made = bowl(tmp_path, {"base": 0.9}, two=True)
    plan = replace(made.plan, draw={"sobol": 9, "seed": 0})
    said = next_of(replace(made, plan=plan))
    assert "to be better: base @ x2 x1, base @ x2 x0.5 and base @ x2 x2." in said
    assert (
        "`ablate confirm experiments/split.yaml --arm 'base @ x2 x1'`, which asks again on fresh seeds"
        in said
    )


def test_an_effect_that_no_point_turns_is_said_with_its_least_and_verify_recomputes_it(tmp_path):
    made = bowl(tmp_path / "r", {"base": 0.0, "a": 0.0}, n_seeds=3)
    arms = made.runs["arm"].str.startswith("a")
    made = replace(made, runs=made.runs.assign(val_loss=made.runs["val_loss"] + 0.2 * arms))
    page = read_page(render([made]))
    answer = page.sentences[0, "answer"]
    said = re.search(
        r"a against base at the same point: worse at every one of 3, least by (\S+) ", answer
    )
    assert 0.19 < float(said[1]) < 0.21
    data = page.data["experiments"][0]
    rows = table_rows(data["runs"])
    assert [*check_signs(page, 0, data["plan"], rows)] == []
    for old, new in ((said[1], "+0.1000"), ("worse at every", "better at every"), ("of 3", "of 4")):
        sentences = {**page.sentences, (0, "answer"): answer.replace(old, new)}
        assert [*check_signs(replace(page, sentences=sentences), 0, data["plan"], rows)] != [], new


@pytest.mark.slow
def test_a_forged_cell_of_the_heat_map_is_found(tmp_path):
    made = bowl(tmp_path / "r", {"base": 0.3}, two=True, n_seeds=3)
    page = write_report([made], tmp_path / "page.html")
    assert verify(page) == []
    text = page.read_text()
    cell = re.search(r">(1\.\d{4})</text><text[^>]*>n 3<", text)[1]
    page.write_text(text.replace(f">{cell}</text>", ">1.0000</text>", 1))
    assert any("heat" in line for line in verify(page))


@pytest.mark.slow
def test_the_heat_map_has_every_point_with_its_runs_and_its_lowest_in_bold(tmp_path):
    made = bowl(tmp_path, {"base": 0.3, "a": -0.6}, two=True, outcome={("a", 1): "diverged"})
    outcome = compare_all(made)
    figures = draw_all(made, outcome, ByDesign.of(made, outcome))
    (heat,) = [f for f in figures if f.key == "heat"]
    assert len(heat.rows) == 18
    for width in (760, 328):
        drawn, _ = heat.draw(width)
        assert drawn.count("<rect") == 18
        assert drawn.count(">n 4<") == 17
        assert drawn.count(">n 3, 1 div.<") == 1
        assert drawn.count('class="value plain"') == 2
        xs = [float(x) for x in re.findall(r'rect x="([\d.]+)"', drawn)]
        widths = [float(w) for w in re.findall(r'width="([\d.]+)"', drawn)]
        assert max(x + w for x, w in zip(xs, widths)) <= width
    assert "data-tip" in drawn
    one = bowl(tmp_path / "one", {"base": 0.3})
    assert heat_map(one.runs, one.plan, unit="nats") is None


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_number_stands_in_the_middle_of_its_cell_and_names_stand_above_the_cells(width):
    cells = {(r, c): HeatCell(loss=1.5, n_finished=3, n_diverged=0) for r in "ab" for c in "cd"}
    arms = {"x": cells, "y": cells}
    drawn, _ = HeatMap(
        axes=("e", "f"), rows=["a", "b"], columns=["c", "d"], arms=arms, unit="nats"
    ).draw(width)
    numbers = re.findall(r'<rect x="([^"]*)"[^>]* width="([^"]*)"[^>]*/><text x="([^"]*)"', drawn)
    assert len(numbers) == 8
    for left, wide, middle in numbers:
        assert float(middle) == pytest.approx(float(left) + float(wide) / 2, abs=0.2)
    at = {word: float(y) for y, word in re.findall(r' y="([\d.]+)"[^>]*>(\w)<', drawn)}
    tops = [float(y) for y in re.findall(r'<rect x="[^"]*" y="([\d.]+)"', drawn)]
    assert at["y"] < at["c"] < tops[4]  # of the last panel


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_names_of_both_axes_are_whole_however_long(width):
    """On as many lines as they need, none wider than its panel, and the cells keep their place."""
    axes = ("optim.muon_lr, optim.adam_lr, optim.head_lr, optim.embed_lr", "schedule.cooldown_frac")
    cells = {(r, c): HeatCell(loss=1.5, n_finished=3, n_diverged=0) for r in "ab" for c in "cd"}
    heat = HeatMap(axes=axes, rows=["a", "b"], columns=["c", "d"], arms={"x": cells}, unit="nats")
    drawn, height = heat.draw(width)
    lines = re.findall(r'y="([\d.]+)"[^>]*class="axis">([^<]*)<', drawn)
    assert " ".join(words for _, words in lines) == f"down: {axes[0]} across: {axes[1]}"
    assert max(float(y) for y, _ in lines) < height
    assert max(len(words) for _, words in lines) * CHAR_PX <= width


def test_an_axis_of_two_points_asks_for_a_third_not_for_seeds(tmp_path):
    made = bowl(tmp_path, {"base": 0.3})
    arms = tuple(arm for arm in made.plan.arms if "x2" not in arm.point.values())
    axes = {"optim.muon_lr": ["x0.5", "x1"]}
    runs = made.runs[made.runs["arm"].isin([arm.name for arm in arms])]
    short = replace(made, runs=runs, plan=replace(made.plan, arms=arms, axes=axes))
    said = next_of(short)
    assert "What to run next: more points of optim.muon_lr, for base has too few" in said


def test_a_baseline_beside_the_grid_is_at_no_point_of_it(tmp_path):
    """Its own values are none of the axes': everything else is as it was."""
    made = bowl(tmp_path / "r", {"base": 0.3, "a": -0.4}, two=True)
    places = [*map(place_words, optima(made))]
    beside = replace(made.plan.arms[0], point={})
    without = replace(made, plan=replace(made.plan, arms=(beside, *made.plan.arms[1:])))
    assert without.plan.arms[0].name == without.plan.baseline
    found = optima(without)
    assert [o.axis.name for o in found] == ["optim.muon_lr", "optim.adam_lr"] * 2
    assert [*map(place_words, found)][2:] == places[2:]  # of the arm that has all of its points
    page = write_report([without], tmp_path / "page.html")
    assert verify(page) == []
    assert "Loss over both axes" in page.read_text(encoding="utf-8")


def test_the_places_of_an_arm_of_which_every_point_has_a_name_of_its_own_are_recomputed(tmp_path):
    made = bowl(tmp_path, {"base": 0.3, "a": -0.4})
    arms = tuple(replace(arm, name="a @ x1") if arm.name == "a" else arm for arm in made.plan.arms)
    runs = made.runs.assign(arm=made.runs["arm"].replace("a", "a @ x1"))
    planned = tuple(replace(run, arm="a @ x1") if run.arm == "a" else run for run in made.plan.runs)
    plan = replace(made.plan, arms=arms, runs=planned)
    page = read_page(render([replace(made, runs=runs, plan=plan)]))
    assert len(of_optima(page)) == 2
    assert check_data(page, None) == []


@pytest.mark.parametrize("n", range(3, MOST_COLUMNS + 1))
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_number_of_the_heat_map_is_wider_than_its_cell(n, width):
    words = [f"x{k}" for k in range(n)]
    cells = {}
    for row, column in itertools.product(words, words):
        cells[row, column] = HeatCell(loss=1.5, n_finished=12, n_diverged=int(row == "x0"))
    heat = HeatMap(axes=("a", "b"), rows=words, columns=words, arms={"base": cells}, unit="nats")
    drawn, _ = heat.draw(width)
    (side,) = {float(w) + 2 for w in re.findall(r'<rect [^>]*width="([\d.]+)"', drawn)}
    found = re.findall(r'class="([^"]*plain[^"]*)">([^<]*)<', drawn)
    for css, said in found:
        assert len(said) * CHAR_PX * (TIGHT if "tight" in css else 1) <= side + 1, said
    assert drawn.count('data-tip="1.5000, n 12') == n * n
    is_wide_enough = width == WIDE or n <= 6
    assert (sum(said == "1.5000" for _, said in found) == n * n) == is_wide_enough
