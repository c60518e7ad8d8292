"""Points drawn along two axes: the lowest point of their surface, on the page, in JSON, and recomputed by `verify`."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from harness.cli import compare as compare_command
from reports.analysis.compare import compare_all
from reports.analysis.optimum import Lowest, optima
from reports.figures.base import NARROW, WIDE
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.page.by_design import ByDesign
from reports.page.draw import draw_all
from reports.page.next_run import next_of_axes, next_of_verdicts
from reports.page.places import optimum_answer
from reports.page.write import render
from reports.verify.page import read_page
from reports.verify.verify import check_data
from tests.proof.surface import drawn_points
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment

AXES = ("optim.muon_lr", "optim.adam_lr")
Z = drawn_points(10)
WORDS = [tuple(f"x{4**v:.3g}" for v in z) for z in Z]  # between a quarter and four


def drawn(folder, lowest_at, *, shape=None, n_points=10, **facts):
    """Arms of a design at drawn points, their losses a bowl around a place (in octaves over two)."""
    arms, placed = [], {}
    for of, at in lowest_at.items():
        for z, words in [*zip(Z, WORDS, strict=True)][:n_points]:
            name = f"{of} @ muon_lr {words[0]}, adam_lr {words[1]}"
            across, up = z - np.array(at)
            loss = (
                0.1 * across**2 + 0.06 * up**2 + 0.05 * across * up if shape is None else shape(z)
            )
            arms.append(Arm(name=name, loss_effect=float(loss), fields=(("plugin.arm", name),)))
            placed[name] = {"of": of, "point": dict(zip(AXES, words, strict=True))}
        if of == next(iter(lowest_at)):
            arms.insert(0, Arm(name=of, loss_effect=0.05))
            placed[of] = {"of": of, "point": {}}
    how = {"n_seeds": 3, "sd": 2e-3, "target": None, "n_points": 3, "design": "add-one", **facts}
    write_experiment(folder, arms=arms, **how)
    made = load("split", folder)
    plan = replace(
        made.plan,
        axes={axis: ["x0.25", "x4"] for axis in AXES},
        draw={"sobol": 10, "seed": 0},
        arms=tuple(replace(arm, **placed[arm.name]) for arm in made.plan.arms),
    )
    return replace(made, plan=plan)


def next_of(made):
    """What the page says to run next."""
    outcome = compare_all(made)
    return next_of_verdicts(made, outcome, ByDesign.of(made, outcome))


@pytest.fixture(scope="module")
def bowl(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("bowl"), {"base": (0.3, -0.2)})


@pytest.fixture(scope="module")
def page(bowl):
    return read_page(render([bowl]))


def test_the_lowest_point_of_drawn_points_is_found_with_two_intervals(bowl):
    found = optima(bowl)
    assert [o.axis.name for o in found] == [*AXES]
    for o, at in zip(found, (4**0.3, 4**-0.2), strict=True):
        assert (o.where, o.is_resolved, o.n_blocks, o.left_out) == (Lowest.INSIDE, True, 3, ())
        assert o.low < at < o.high
        assert o.value == pytest.approx(at, rel=0.08)
    assert found[0].lack_of_fit > 0.05


@pytest.mark.slow
def test_the_page_says_it_in_its_headline_and_its_table_and_verify_recomputes_it(page):
    assert check_data(page, None) == []
    answer = page.sentences[0, "answer"]
    said = re.search(
        r"The loss along optim\.muon_lr and optim\.adam_lr is lowest at optim\.muon_lr (x1\.\d+) \[(x\S+), (x\S+)\] "
        r"and optim\.adam_lr x0\.\d+ \[x0\.\d+, x\S+\] for base, on a quadratic surface, which chooses and judges nothing\.",
        answer,
    )
    assert said, answer
    assert f"{said[1]} [{said[2]}, {said[3]}]" in page.markup.replace("\u00a0", " ")
    inside = r"between the lowest and the highest point drawn; 10 points, lack of fit p 0\.\d+"
    assert re.search(inside, page.markup)
    assert " grid" not in re.sub(r"<(style|script).*?</\1>", "", page.markup, flags=re.DOTALL)
    assert "(Box and Hunter 1954)" in page.markup


@pytest.mark.parametrize(
    ("place", "towards", "said"),
    [
        (0, 3, "is printed at"),
        (1, 0, "closer than the region of its surface"),
        (2, 0, "closer than the region of its surface"),
        (3, 0, "lack of fit is printed with p"),
    ],
)
def test_a_forged_number_of_the_surface_is_found_by_the_second_path(page, place, towards, said):
    key = next(key for key in page.carried if key[1] == "optimum")
    numbers = [float(number) for number in page.carried[key].split(",")]
    assert len(numbers) == 4
    numbers[place] += 0.6 * (numbers[towards] - numbers[place])
    carried = page.carried | {key: ",".join(map(str, numbers))}
    assert any(said in line for line in check_data(replace(page, carried=carried), None))


def test_a_forged_row_of_the_surface_is_missed_by_none(page):
    keys = [key for key in page.carried if key[1] == "optimum"]
    carried = {key: value for key, value in page.carried.items() if key != keys[0]}
    assert any(
        "1 lowest places" in line for line in check_data(replace(page, carried=carried), None)
    )


def test_the_figure_has_every_point_the_place_and_its_region(bowl):
    outcome = compare_all(bowl)
    figures = draw_all(bowl, outcome, ByDesign.of(bowl, outcome))
    (figure,) = [f for f in figures if f.key == "drawn"]
    assert len(figure.rows) == 10
    for width in (WIDE, NARROW):
        markup, height = figure.draw(width)
        assert markup.count('class="heat"') == 10
        assert markup.count('class="band"') == markup.count('class="interval"') == 1
        assert markup.count('class="value"') == 1
        middles = [
            float(x) + 8 for x in re.findall(r'<path class="block" d="M([\d.]+) [\d.]+a8', markup)
        ]
        assert len(middles) == 10 and min(middles) >= 52 and max(middles) <= width - 12
        assert height < 450
    losses = {row[1:3]: row[3] for row in figure.rows}
    shades = [float(v) for v in re.findall(r'fill-opacity="([\d.]+)"', markup)]
    lowest = min(range(10), key=[*losses.values()].__getitem__)
    assert shades[lowest] == max(shades) == 1.0


def test_losses_that_are_no_quadratic_give_a_place_without_an_interval(tmp_path):
    made = drawn(tmp_path, {"base": (0, 0)}, shape=lambda z: 0.1 * (z**2).sum() + 0.2 * z[0] ** 3)
    first, _ = optima(made)
    assert first.lack_of_fit < 0.05 and not first.is_resolved and first.low is None
    said = optimum_answer([*optima(made)])
    assert "a quadratic surface, which does not fit the losses (lack of fit)" in said
    assert "judges nothing" not in said
    assert check_data(read_page(render([made])), None) == []
    step = next_of(made).partition("What to run next: ")[2]
    assert "narrower ends" in step or "ablate confirm" in step


@pytest.mark.parametrize(
    ("shape", "where", "said"),
    [
        (lambda z: -0.2 * z[0] + 0.1 * z[1], (Lowest.LAST, Lowest.FIRST), "or beyond and optim.adam_lr x"),
        (lambda z: 0.2 * z[0] * z[1], (Lowest.NOWHERE,) * 2, "has no lowest point for base"),
        (lambda z: 0.0, (Lowest.UNTOLD,) * 2, "not resolved for base"),
    ],
)  # fmt: skip
def test_what_is_no_bowl_among_the_points_is_said_plainly(tmp_path, shape, where, said):
    made = drawn(tmp_path, {"base": (0, 0)}, shape=shape)
    found = optima(made)
    told = tuple(o.where for o in found)
    assert told == where or (where[0] is Lowest.UNTOLD and not found[0].is_resolved)
    assert said in optimum_answer(found)
    assert check_data(read_page(render([made])), None) == []


@pytest.mark.parametrize("shape", ["plane", "dome"])
def test_what_is_no_bowl_is_told_at_half_the_error_rate_which_the_region_leaves(bowl, shape):
    at = {f"base @ muon_lr {a}, adam_lr {b}": z for z, (a, b) in zip(Z, WORDS, strict=True)}
    places = np.array([at.get(arm, np.zeros(2)) for arm in bowl.runs["arm"]])
    noise = np.random.default_rng(3).normal(size=len(places))
    bent = places[:, 0] if shape == "plane" else -(places**2).sum(axis=1)

    def found(size):
        runs = bowl.runs.assign(val_loss=3 + 1e-3 * (noise + size * bent))
        return optima(replace(bowl, runs=runs))[0]

    def told(surface, alpha):
        return surface.slope_sign(0, alpha) if shape == "plane" else surface.is_told_no_bowl(alpha)

    flat, steep = found(0.0).surface, found(40.0).surface
    for alpha, stricter, is_told in ((0.025, 0.0025, True), (0.05, 0.025, False)):
        for size in np.linspace(0, 40, 401):
            coefficients = flat.coefficients * (1 - size / 40) + steep.coefficients * size / 40
            between = replace(flat, coefficients=coefficients)
            if told(between, alpha) and not told(between, stricter):
                break
        first = found(size)
        assert (told(first.surface, alpha), told(first.surface, stricter)) == (1, 0)
        where = Lowest.FIRST if shape == "plane" else Lowest.NOWHERE
        assert first.where is (where if is_told else Lowest.UNTOLD)


def test_a_place_beyond_the_points_asks_for_a_wider_end(tmp_path):
    made = drawn(tmp_path, {"base": (0, 0)}, shape=lambda z: 0.06 - 0.2 * z[0])
    plan = replace(made.plan, confirm=True)
    said = next_of(replace(made, plan=plan))
    assert (
        "a longer axis, `optim.muon_lr: [x0.25, x16]`, for base is lowest at x4 or beyond" in said
    )


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (
            lambda z: 0.06 - 0.2 * z[0] + 0.1 * z[1],
            r"longer axes, `optim.muon_lr: \[x0.25, x16\]` and `optim.adam_lr: \[x0.0625, x4\]`, for base is lowest at "
            r"optim.muon_lr x\S+ or beyond and optim.adam_lr x\S+ or beyond\.$",
        ),
        (lambda z: 0.06 - 0.2 * z[0], r"or beyond, and not resolved along optim.adam_lr\.$"),
        (lambda z: 0.0, r"wider optim.muon_lr and optim.adam_lr, for base has no resolved place"),
    ],
)  # fmt: skip
def test_an_open_surface_names_both_axes(tmp_path, shape, said):
    made = drawn(tmp_path, {"base": (0, 0)}, shape=shape)
    step = next_of(replace(made, plan=replace(made.plan, confirm=True)))
    assert re.search(said, step), step


def test_a_region_without_ends_asks_for_both_axes(bowl):
    found = optima(bowl)
    places = [replace(found[0], low=None), replace(found[1], low=None, high=None)]
    following = next_of_axes(replace(bowl.plan, confirm=True), places, [], [])
    longer = "longer axes, `optim.muon_lr: [x0.0625, x4]` and `optim.adam_lr: [x0.0625, x16]`, for"
    assert f"{longer} the lowest place of base may lie beyond the points" in following.step


def test_too_few_drawn_points_are_refused_with_a_sentence(tmp_path):
    made = drawn(tmp_path, {"base": (0.3, -0.2)}, n_points=5)
    assert {o.where for o in optima(made)} == {Lowest.FEW_DRAWN}
    assert optimum_answer(optima(made)) == ""
    page = read_page(render([made]))
    assert check_data(page, None) == []
    assert (
        "too few whole points: a quadratic of two axes takes six, not on one conic" in page.markup
    )


def test_a_point_with_a_diverged_run_is_left_out_and_named(tmp_path):
    name = f"base @ muon_lr {WORDS[4][0]}, adam_lr {WORDS[4][1]}"
    made = drawn(tmp_path, {"base": (0.3, -0.2)}, outcome={(name, 1): "diverged"})
    first, _ = optima(made)
    assert first.surface.n_points == 9
    (left_out,) = first.left_out
    page = read_page(render([made]))
    assert check_data(page, None) == []
    assert f"without {left_out}, where not every run finished" in page.markup


def test_before_the_planned_seeds_are_there_a_surface_has_no_region(tmp_path):
    name = f"base @ muon_lr {WORDS[4][0]}, adam_lr {WORDS[4][1]}"
    made = drawn(tmp_path, {"base": (0.3, -0.2)}, n_seeds=4, outcome={(name, 3): "pending"})
    first, _ = optima(made)
    assert (first.where, first.is_resolved, first.n_blocks) == (Lowest.INSIDE, False, 3)
    assert first.doubt.startswith("tells a region of planned seeds alone, all of them there")
    assert check_data(read_page(render([made])), None) == []


@pytest.mark.slow
def test_arms_share_the_error_rate_and_the_folders_family_its_own(tmp_path):
    made = drawn(tmp_path, {"base": (0.3, -0.2), "a": (-0.2, 0.1)})
    found = optima(made)
    assert [o.arm for o in found] == ["base", "base", "a", "a"]
    alone = replace(made, plan=replace(made.plan, arms=made.plan.arms[:11]))
    narrow = optima(replace(alone, runs=made.runs[made.runs["arm"].str.startswith("base")]))
    for wide, near in zip(found[:2], narrow, strict=True):
        assert wide.low < near.low < near.high < wide.high
    remembered = replace(made, memory=Memory(family=200))
    assert all(
        a.low < b.low for a, b in zip(optima(remembered), found, strict=True) if a.low and b.low
    )
    page = read_page(render([remembered]))
    assert check_data(page, None) == []
    at_once = read_page(render([made]))
    forged = page.carried | {
        key: at_once.carried[key] for key in page.carried if key[1] == "optimum"
    }
    assert any("closer" in line for line in check_data(replace(page, carried=forged), None))


def test_three_drawn_axes_have_neither(tmp_path, bowl):
    plan = replace(bowl.plan, axes={**bowl.plan.axes, "optim.wd": ["x0.5", "x2"]})
    assert optima(replace(bowl, plan=plan)) == []


def test_compare_as_json_has_the_same_numbers(bowl, monkeypatch, capsys):
    monkeypatch.setattr(compare_command, "load_for_report", lambda *_, **__: bowl)
    compare_command.compare("split", json=True)
    lowest = json.loads(capsys.readouterr().out)["lowest"]
    assert [(row["axis"], row["where"]) for row in lowest] == [(axis, "inside") for axis in AXES]
    for row, o in itertools.zip_longest(lowest, optima(bowl)):
        assert (row["value"], row["low"], row["high"], row["lack_of_fit"]) == pytest.approx(
            (o.value, o.low, o.high, o.lack_of_fit), rel=1e-6
        )
