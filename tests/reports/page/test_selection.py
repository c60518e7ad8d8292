"""What a page says of a halving, and how a command is typed again; values and words of small things on a page."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape

from harness.run.halving import Halving
from harness.run.plan import Plan
from reports.analysis.compare import compare_all
from reports.analysis.judges import Share
from reports.analysis.types import Comparisons
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.page.adding_up import side_of_zero
from reports.page.confirmed import in_full
from reports.page.embed import plain
from reports.page.headline import loss_gained, lowest_heldout
from reports.page.next_evidence import widest_open
from reports.page.next_run import NO_STEP, next_of_halving
from reports.page.recipe import by_arm_text
from reports.page.selection import as_typed, chosen_points, confirmation_of, halving_answer
from reports.page.sentences import as_fraction
from reports.page.settings import name_of
from reports.page.site import target
from reports.page.studies import estimate_cell, fit_words
from reports.page.write import MEANINGS, answer_lines, code, glossed
from reports.stats.intervals import Estimate
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

LAST = Halving(one_in=2, budgets=[100, 200, 300], n_points=4, rung=2)
FIRST = replace(LAST, rung=0)
BETTER, WORSE = (arm.name for arm in (LADDER[4], LADDER[1]))


@dataclass(frozen=True)
class Rung:
    """Three arms, two of them beside the baseline, and their comparisons."""

    made: Experiment
    outcome: Comparisons

    @property
    def worse(self) -> Comparisons:
        """The same where no arm is better than the baseline."""
        judged = {key: replace(c, delta=0.0) for key, c in self.outcome.comparisons.items()}
        return replace(self.outcome, comparisons=judged)


@pytest.fixture(scope="module")
def rung(tmp_path_factory: pytest.TempPathFactory) -> Rung:
    folder = tmp_path_factory.mktemp("rung")
    arms = (LADDER[0], LADDER[1], LADDER[4])
    write_experiment(folder, arms=arms, design="add-one", n_seeds=3, n_points=3, target=None)
    made = load("split", folder)
    made = replace(made, plan=replace(made.plan, halving=LAST, command="ablate run x.yaml"))
    return Rung(made, compare_all(made))


def at(made: Experiment, halving: Halving | None) -> Experiment:
    return replace(made, plan=replace(made.plan, halving=halving))


def ended(made: Experiment, status: str) -> Experiment:
    others = made.runs["arm"] != made.plan.baseline
    runs = made.runs.assign(status=made.runs["status"].mask(others, status))
    return replace(made, runs=runs)


def test_points_are_chosen_once_all_runs_have_ended(rung: Rung) -> None:
    made = rung.made
    assert chosen_points(made) == [BETTER]
    assert chosen_points(at(made, FIRST)) == [BETTER, WORSE]
    assert chosen_points(at(made, None)) == []
    assert chosen_points(ended(made, "pending")) == []
    assert chosen_points(ended(made, "diverged")) == []  # no point has a loss


def test_what_a_halving_says_depends_on_the_rung_and_on_what_it_selected(rung: Rung) -> None:
    made, outcome = rung.made, rung.outcome
    assert halving_answer(at(made, None), outcome) == ""
    assert halving_answer(ended(made, "pending"), outcome) == (
        "Halving, rung 3 of 3: 2 points at 300 steps, of which none is chosen before all runs"
        " have ended."
    )
    first = halving_answer(at(made, FIRST), outcome)
    assert first.startswith(f"Halving, rung 1 of 3: of 2 points at 100 steps {BETTER} (−0.")
    assert first.endswith(" go on to 200 steps; these runs choose and judge nothing.")
    selected = halving_answer(made, outcome)
    assert selected.startswith(f"Selected by halving: {BETTER} (−0.")
    points = ") from the baseline at 300 steps, the best of 4 points by their losses at 100, 200"
    assert points in selected
    asks = f": `ablate confirm x.yaml --arm {BETTER}` asks fresh seeds, whose runs alone judge it."
    assert selected.endswith(asks)
    assert halving_answer(made, rung.worse).endswith(
        "; it is no better than the baseline in them, and asks for no fresh runs."
    )
    assert halving_answer(made, replace(outcome, comparisons={})).count(" (no loss) ") == 1


def test_after_a_rung_the_next_is_run_and_after_the_last_what_is_better_confirmed(
    rung: Rung,
) -> None:
    made, outcome = rung.made, rung.outcome
    goes_on = "`ablate run x.yaml`, which goes on with the halving"
    for open_one in (at(made, FIRST), ended(made, "pending")):
        assert next_of_halving(open_one, outcome).step == goes_on
    confirmed = "`ablate confirm x.yaml`, which asks again on fresh seeds"
    assert next_of_halving(made, outcome).step == confirmed
    assert next_of_halving(made, rung.worse).step == NO_STEP


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("ablate run a.yml --set name=mine --set steps=9", "a.yml --set name=mine --set steps=9"),
        ("ablate run quick --set name=mine", "quick --set name=mine"),
        ("ablate ab --set name=mine a.py", "mine --set name=mine"),
        ("ablate run other", "mine"),
        ("ablate run 'my file.yaml'", "'my file.yaml'"),
        ("ablate run a.yaml 'open", "mine"),  # no shell could have read it
        ("", "mine"),
    ],
)
def test_an_experiment_is_typed_again_by_its_file_or_its_name(command: str, typed: str) -> None:
    plan = Plan(name="mine", command=command)
    assert as_typed(plan) == typed
    assert confirmation_of(plan, "a b", "c", file="f.yaml") == (
        f"`ablate confirm {typed} --arm 'a b' --arm c -o f.yaml`"
    )


# ---------------------------------------------------------------- of small things


def test_an_interval_lies_on_one_side_of_zero_or_on_none() -> None:
    ends = [
        (0.1, 0.2),
        (-0.2, -0.1),
        (0.0, 0.2),
        (-0.2, 0.0),
        (-0.1, 0.1),
        (None, 0.1),
        (0.1, None),
    ]
    sides = [side_of_zero(Share(value=0.0, low=low, high=high)) for low, high in ends]
    assert sides == [1, -1, 0, 0, 0, 0, 0]


def test_the_lowest_held_out_loss_is_named_where_there_is_one() -> None:
    def outcome(**losses: float | None) -> Any:
        cells = {}
        for arm, loss in losses.items():
            mean = {} if loss is None else {"heldout_loss": loss}
            cells[arm] = SimpleNamespace(mean=mean)
        return SimpleNamespace(cells=cells)

    assert lowest_heldout(outcome(a=None), "nats") == []
    assert lowest_heldout(outcome(a=1.5, b=1.25, c=None), "nats") == [
        "The lowest mean held-out loss (nats) is that of b, 1.2500."
    ]


def test_an_arm_without_an_effect_comes_last() -> None:
    assert loss_gained(None) == -math.inf
    for better, gained in (("higher", 2.0), ("lower", -2.0)):
        c: Any = SimpleNamespace(better=better, delta=2.0, low=-1.0, high=9.0, ratio=None)
        assert loss_gained(c) == gained


def test_arms_of_which_two_have_the_same_changes_keep_their_names(rung: Rung) -> None:
    outcome, plan = rung.outcome, rung.made.plan
    arms = plan.arms
    named = in_full(outcome, plan)
    assert set(named.arms) == {" + ".join(arm.changes) or arm.name for arm in arms[1:]}
    alike = (arms[0], arms[1], replace(arms[2], changes=arms[1].changes))
    assert in_full(outcome, replace(plan, arms=alike)) is outcome


def test_values_are_carried_in_the_types_of_json() -> None:
    carried = {
        1: [np.float64(1.5), np.int64(3), float("nan"), np.float32("inf"), None, True],
        "other": (pd.NaT, pd.NA, Path("a/b"), "text"),
    }
    assert plain(carried) == {
        "1": [1.5, 3, None, None, None, True],
        "other": [None, None, str(Path("a/b")), "text"],
    }


def test_a_fact_by_arm_tells_the_baselines_and_who_has_another() -> None:
    sizes: dict[str, Any] = {"base": 100, "a": 90, "b": 150, "c": 100, "d": [100, 90]}
    assert by_arm_text(sizes, "base") == "100; b 150 (+50.0 %); a 90 (−10.0 %) and d 100 or 90"
    several: dict[str, Any] = {"base": [1, 2], "a": 3}
    assert by_arm_text(several, "base") == by_arm_text(several, "gone") == "base 1 or 2; a 3"


def test_percents_are_fractions_and_what_has_no_name_is_itself() -> None:
    assert (as_fraction(25.0), as_fraction(None)) == (0.25, None)
    assert [name_of(x) for x in ({"name": "H100"}, {"size": 1}, "x", 7)] == [
        *("H100", "{'size': 1}", "x", "7"),
    ]


def test_a_link_leads_to_a_page_of_the_site_or_nowhere(tmp_path: Path) -> None:
    page = tmp_path / "one" / "README.md"
    names = ("note.md", "page.html", "raw.csv", "x.yaml")
    files = [tmp_path / "one" / name for name in names]
    links = ["https://example.org", "#here", *names, "note.md#end", "../note.md", "gone.md"]
    assert [target(link, page, files) for link in links] == [
        *("https://example.org", "#here", "note.html", "page.html", "", "x.yaml"),
        *("note.html#end", "", ""),
    ]


def test_how_well_drawn_points_fit_is_told_where_a_run_tests_it() -> None:
    def told(lack: float | None, points: int | None) -> str:
        surface = None if points is None else SimpleNamespace(n_points=points)
        o: Any = SimpleNamespace(surface=surface, lack_of_fit=lack)
        return fit_words(o)

    assert told(None, 8) == "8 points, whose fit no repeated run tests"
    assert told(0.25, 8).startswith("8 points, lack of fit p 0.25")
    assert told(None, None).startswith("0 points, ")


def test_an_estimate_is_printed_with_its_interval_a_ratio_in_percent() -> None:
    assert estimate_cell(None, "loss_delta").text == "–"
    half = 1.959964 * 0.001
    loss = estimate_cell(Estimate(value=-0.01, se=0.001), "loss_delta")
    low, high = (f"{-0.01 + sign * half:.4f}".replace("-", "−") for sign in (-1, 1))
    assert loss.text == f"−0.0100 [{low}, {high}]"
    ratio = estimate_cell(Estimate(value=math.log(1.1), se=0.0), "percent")
    assert ratio.text.startswith("+10.0 %")


def test_backticks_in_pairs_are_code_and_one_alone_is_itself() -> None:
    assert code("run `a < b` now") == "run <code>a &lt; b</code> now"
    assert code("a ` b < c") == "a ` b &lt; c"
    assert code("`x` and `y") == "`x` and `y"
    assert code("`ablate x --a 1 --b` <") == (
        '<code>ablate x</code> <code class="option">--a 1</code> '
        '<code class="option">--b</code> &lt;'
    )


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            "Exploratory: at gpt2, 10 steps: a (−1 [−2, 3] %) is better. b is <not>.",
            [
                '<span class="setting">Exploratory: at gpt2, 10 steps:</span>',
                "<span>a (−1 [−2,\u00a03]\u00a0%) is better.</span>",
                "<span>b is &lt;not&gt;.</span>",
            ],
        ),
        ("At x: a.", ['<span class="setting">At x:</span>', "<span>a.</span>"]),
        ("a by 3 %: yes", ["<span>a by 3\u00a0%: yes.</span>"]),
    ],
)
def test_an_answer_has_a_line_for_its_setting_and_for_each_sentence(
    answer: str, lines: list[str]
) -> None:
    assert answer_lines(answer) == " ".join(lines)


def test_a_term_is_explained_where_it_is_first_said() -> None:
    meaning = escape(MEANINGS["block"])
    told = f'<dfn tabindex="0" data-tip="{meaning}">block</dfn>'
    assert glossed("A block, blocks and sub-block <b>") == (
        f"A {told}, blocks and sub-block &lt;b&gt;"
    )


@dataclass(frozen=True)
class Row:
    arm: str
    ends: tuple[float | None, float | None] | None


def test_the_row_asked_again_is_the_widest_that_holds_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def interval(row: Row) -> Any:
        return None if row.ends is None else SimpleNamespace(low=row.ends[0], high=row.ends[1])

    monkeypatch.setattr("reports.page.next_evidence.time_interval", interval)

    def widest(*ends: tuple[float | None, float | None] | None) -> int | None:
        rows: Any = [Row(str(n), each) for n, each in enumerate(ends)]
        found = widest_open(rows)
        return None if found is None else rows.index(found)

    assert widest() is widest(None, (0.1, 9.0), (-9.0, 0.0), (0.0, 9.0), (None, 1.0)) is None
    assert widest((-1.0, 1.0), (-1.0, 2.0), (5.0, 99.0), (-0.5, 1.0)) == 1
    assert widest((-1.0, 2.0), (-3.0, 1.0)) == 1
