"""What `ablate confirm` plans by: the margin, the seeds and the noise of step times, by hand; what it refuses."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from harness.cli import confirm
from harness.config.run import plain
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.run.halving import Halving
from harness.run.plan import Plan, PlanArm
from reports.stats.contrasts import Sample
from reports.stats.planning import seeds_needed, upper_sd
from reports.stats.verdicts import NOT_JUDGED

PLAN = Plan(
    name="mini",
    question="Why?",
    baseline="base",
    arms=tuple(PlanArm(name=name, of=name, changes=(name,)) for name in ("base", "a", "b")),
)


def outcome_of(primary: str = "val_loss", n: int = 3, **comparisons: Any) -> Any:
    """Comparisons of arms on every metric; the baseline has n finished runs."""
    cell = SimpleNamespace(n_finished=n, sd={"step_ms": 2.0})
    return SimpleNamespace(
        primary=primary,
        baseline="base",
        arms=("a", "b"),
        cells={"base": cell},
        of=lambda arm, metric: comparisons.get(arm),
        judged=comparisons.get,
    )


def effect(kind: str, delta: float, verdict: str = "") -> Any:
    return SimpleNamespace(
        kind=kind, delta=delta, verdict=verdict, fresh_seeds=None, next_action=""
    )


# ---------------------------------------------------------------- the margin


@pytest.mark.parametrize(
    ("a", "b", "margin"),
    [
        (effect("helps", -0.05), effect("hurts", 0.0123456), 0.0062),
        (effect("hurts", 0.05), effect("equal", 0.001), 0.025),
        (effect("undecided", 0.001), effect("helps", -0.02), 0.01),
        (None, effect("helps", -0.02), 0.01),
    ],
)
def test_the_margin_is_half_of_the_smallest_effect_that_is_told_from_zero(
    a: Any, b: Any, margin: float
) -> None:
    assert confirm.half_the_smallest(outcome_of(a=a, b=b), []) == margin


def test_a_selected_point_sets_the_margin_though_nothing_is_judged() -> None:
    judged = effect("none", -0.04, NOT_JUDGED.text)
    outcome = outcome_of(a=judged, b=effect("none", 0.001, NOT_JUDGED.text))
    assert confirm.half_the_smallest(outcome, ["a"]) == 0.02
    for arms, named in (
        ([], judged),
        (["a"], effect("none", 0.0, NOT_JUDGED.text)),
        (["a"], effect("undecided", -0.04, "undecided")),
    ):
        for detect in (None, 0.0):
            with pytest.raises(UserError, match="no effect is told apart from zero"):
                confirm.half_the_smallest(outcome_of(a=named), arms, detect)
        assert confirm.half_the_smallest(outcome_of(a=named), arms, 0.05) == 0.025
    assert confirm.half_the_smallest(outcome, ["a"], 0.05) == 0.02


def test_a_second_confirmation_has_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {"mini": 1}
    monkeypatch.setattr("harness.store.plans.read_plan", lambda results, name: taken.get(name))
    assert confirm.unused_name(Path("again/two.yaml"), tmp_path) == "two"
    for file, why in (("again/mini.yaml", "has an experiment mini"), ("my file.yaml", "name")):
        with pytest.raises(UserError, match=why):
            confirm.unused_name(Path(file), tmp_path)


# ---------------------------------------------------------------- seeds


def planned(
    monkeypatch: pytest.MonkeyPatch, outcome: Any, difference: float, **known: Any
) -> tuple[int, str]:
    """The seeds for two arms of an experiment of which this is known."""
    assumed = SimpleNamespace(
        **{"sd": 0.004, "step_ms": 200.0, "slope": SimpleNamespace(per_step=1e-4)} | known
    )
    monkeypatch.setattr("harness.cli.power.known_of", lambda e, results: assumed)
    e: Any = SimpleNamespace(name="mini", primary=outcome.primary, prior_noise=None)
    return confirm.planned_seeds(e, outcome, Path("results"), difference, 2)


def test_seeds_are_planned_by_the_noise_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    n, why = planned(monkeypatch, outcome_of(n=2), 0.005)
    assert n == seeds_needed(0.005, sd=0.004, n_arms=2)
    assert why == f"{n} seeds detect 0.005 of loss with power 0.8 over 2 arms (sd 0.004)"


def test_a_margin_in_seconds_is_that_of_the_steps_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds are 50 steps of 200 ms, each worth 0.0001 of loss."""
    n, why = planned(monkeypatch, outcome_of("time_to_target"), 10.0)
    assert n == seeds_needed(0.005, sd=0.004, n_arms=2)
    assert why.startswith(f"{n} seeds detect 10 s to target with power 0.8 over 2 arms")
    with pytest.raises(UserError, match="'mini' has no step time yet"):
        planned(monkeypatch, outcome_of("time_to_target"), 10.0, step_ms=None)


def test_step_times_are_planned_by_the_better_of_their_own_and_their_paired_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = upper_sd(2.0, 3)
    for paired, sd in ((math.inf, own), (2.0, own), (1.9, 1.9)):
        with monkeypatch.context() as patch:
            patch.setattr(confirm, "paired_step_sd", lambda outcome: paired)  # noqa: B023
            n, why = planned(patch, outcome_of("step_ms"), 5.0)
        assert n == seeds_needed(5.0, sd=sd, n_arms=2)
        assert why == f"{n} seeds detect 5 ms a step with power 0.8 over 2 arms (sd {sd:.4g})"


def test_what_cannot_be_planned_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcome, difference, words in (
        (outcome_of(n=1), 0.005, "fewer than two finished runs of its baseline"),
        (outcome_of(), 1e-6, "1000 seeds do not detect 1e-06 of loss at an sd of 0.004: give a"),
        (outcome_of(), -1.0, "--detect: seeds for a difference of -1.0"),
    ):
        with pytest.raises(UserError, match=words):
            planned(monkeypatch, outcome, difference)


def test_the_seeds_that_a_page_asks_for_are_those_of_the_arm_that_needs_most() -> None:
    def asks(seeds: int | None, detect: str) -> Any:
        action = f"ablate confirm --detect {detect}: {seeds} fresh seeds"
        return SimpleNamespace(fresh_seeds=seeds, next_action=action)

    two = outcome_of(a=asks(9, "0.25"), b=asks(12, "0.25"))
    assert confirm.asked_on_page(two, 0.25) == (
        12,
        "12 seeds with power 0.8, as its page asks, decide a and b at 0.25",
    )
    one = confirm.asked_on_page(outcome_of(a=asks(9, "0.25"), b=asks(12, "0.255")), 0.25)
    assert one == (9, "9 seeds with power 0.8, as its page asks, decide a at 0.25")
    for none in (outcome_of(a=asks(9, "0.5")), outcome_of(a=asks(None, "0.25")), outcome_of()):
        assert confirm.asked_on_page(none, 0.25) is None


def timed(log_ms: list[float], blocks: Any = (0, 1, 2)) -> Sample:
    return Sample(values=np.array(log_ms), blocks=tuple(blocks))


def test_paired_noise_is_that_of_the_arm_that_pairs_worst_for_one_run() -> None:
    base = timed([0.0, 0.1, 0.05])

    def compared(of_arm: Sample, mean: float = 100.0) -> Any:
        return SimpleNamespace(of_arm=of_arm, of_baseline=base, mean_baseline=mean)

    near, far = timed([0.01, 0.12, 0.05]), timed([0.0, 0.2, -0.05])
    differences = np.array([0.0, 0.1, -0.1])
    expected = 100.0 * upper_sd(float(differences.std(ddof=1)), 3) / math.sqrt(2)
    for a, b in ((near, far), (far, near)):
        outcome = outcome_of(a=compared(a), b=compared(b))
        assert confirm.paired_step_sd(outcome) == pytest.approx(expected)
    two = compared(timed([0.0, 0.2], (0, 1)))
    of_two = 100.0 * upper_sd(float(np.std([0.0, 0.1], ddof=1)), 2) / math.sqrt(2)
    assert confirm.paired_step_sd(outcome_of(a=two, b=two)) == pytest.approx(of_two)
    for other in (None, compared(timed([0.0], (0,))), compared(timed([1.0, 1.1, 1.05]))):
        assert confirm.paired_step_sd(outcome_of(a=compared(far), b=other)) == math.inf


@pytest.mark.parametrize(
    ("used", "seeds"),
    [
        ({0, 1, 999, 1003}, 3),
        ({1000}, [1001, 1002, 1003]),
        ({0, 1002}, [1003, 1004, 1005]),
        (set(), 3),
        ({1001, 2000}, [2001, 2002, 2003]),
    ],
)
def test_fresh_seeds_are_none_that_have_results(
    monkeypatch: pytest.MonkeyPatch, used: set[int], seeds: Any
) -> None:
    monkeypatch.setattr("harness.store.looks.seeds_with_results", lambda results, plan: used)
    assert confirm.fresh_seeds(PLAN, Path("results"), 3) == seeds


# ---------------------------------------------------------------- the file


def test_the_new_files_keys_are_the_old_ones_with_what_was_set() -> None:
    data = {"name": "mini", "base": "r07", "set": {"x.a": 1}, "changes": {"a": 1, "b": 2}}
    keys = confirm.confirmatory(
        data, {"x.b": 2, "primary": "step_ms"}, PLAN, [], seeds=4, margin=0.01
    )
    assert keys == {
        **data,
        "name": "mini_confirm",
        "question": "Confirmed on fresh seeds: Why?",
        "seeds": 4,
        "margin": 0.01,
        "confirm": True,
        "primary": "step_ms",
        "set": {"x.a": 1, "x.b": 2},
    }
    one = confirm.confirmatory(data, {}, PLAN, ["b"], seeds=4, margin=0.01)
    assert (one["design"], one["arms"], one["set"]) == ("explicit", {"b": ["b"]}, {"x.a": 1})
    assert one["question"].startswith("Confirmed on fresh seeds, 1 of 2 arms of mini, whose runs")
    both = confirm.confirmatory(data, {}, PLAN, ["a", "b"], seeds=4, margin=0.01)
    assert both["question"] == "Confirmed on fresh seeds: Why?"


def test_what_was_explored_at_a_scale_is_what_is_confirmed_there() -> None:
    tiny = {"seeds": 9, "margin": 1.0, "budgets": [7], "set": {"x.a": 1}}
    data = {"scale": "tiny", "at_scale": {"tiny": tiny, "gpt2": {"seeds": 8}}}
    keys = confirm.confirmatory(data, {}, PLAN, [], seeds=4, margin=0.01)
    assert keys["at_scale"] == {
        "tiny": {"budgets": [7], "set": {"x.a": 1}},
        "gpt2": {"seeds": 8},
    }
    assert "budgets" not in keys
    halved = replace(PLAN, halving=Halving(one_in=2, budgets=(5, 10), n_points=8), budgets=(10,))
    keys = confirm.confirmatory(data, {}, halved, ["a"], seeds=4, margin=0.01)
    assert (keys["budgets"], keys["at_scale"]["tiny"]) == ([10], {"set": {"x.a": 1}})
    assert "1 of 8 arms" in keys["question"]


def test_a_file_that_says_something_else_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "x.yaml"
    for _ in range(2):
        confirm.write_experiment(path, "# why\n", {"name": "x", "about": "«ä»"})
    assert path.read_text().startswith("# why\nname: x\n") and "«ä»" in path.read_text()
    with pytest.raises(UserError, match=r"x\.yaml exists and says something else"):
        confirm.write_experiment(path, "# why\n", {"name": "y"})
    assert yaml.safe_load(path.read_text())["name"] == "x"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"foreign": True}, "what is not our own trainer's is confirmed by a file with"),
        ({"imported": True}, "imported logs cannot be"),
        ({}, "mini confirms already; its report is what it has to say"),
    ],
)
def test_what_nothing_can_follow_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, bool], words: str
) -> None:
    (tmp_path / "mini.yaml").write_text("name: mini\nconfirm: true\n")
    monkeypatch.setattr("harness.store.plans.read_plan", lambda *_: replace(PLAN, **kind))
    with pytest.raises(UserError, match=words):
        confirm.exploratory_file(str(tmp_path / "mini.yaml"), tmp_path)


def test_what_was_explored_is_followed_by_its_file_with_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mini.yaml"
    path.write_text("name: mini\n")
    for plan in (None, PLAN):
        monkeypatch.setattr("harness.store.plans.read_plan", lambda *_, plan=plan: plan)
        file = confirm.exploratory_file(str(path), tmp_path)
        assert (file.path, file.data) == (path, {"name": "mini"})
    loaded = load_experiment("quickstart", device="cpu")
    config = plain(loaded.baseline.config)
    explored = replace(PLAN, baseline_config=config, command="ablate run x --set a=1")
    confirm.check_same_settings(file, loaded, explored)
    with pytest.raises(UserError) as refused:
        confirm.check_same_settings(file, loaded, replace(explored, baseline_config={}))
    assert str(refused.value) == (
        f"{path}: quickstart was run with other settings: repeat its --set options"
        " (ablate run x --set a=1)"
    )


def test_a_halving_is_confirmed_at_its_end_and_by_a_point_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = ["a at x2"]
    monkeypatch.setattr("reports.page.selection.chosen_points", lambda explored: chosen)
    explored: Any = SimpleNamespace(plan=PLAN)

    def refusal(loaded: Any, arms: list[str], of: Any = None) -> str:
        try:
            confirm.check_selected(loaded, explored, outcome_of(**of or {"a": 1}), arms)
        except UserError as error:
            return str(error)
        return ""

    ended, going = (
        SimpleNamespace(path="x.yaml", halving=SimpleNamespace(is_last=last))
        for last in (True, False)
    )
    for loaded in (going, SimpleNamespace(path="x.yaml", halving=None)):
        assert "the halving of x.yaml has not ended" in refusal(loaded, ["a"])
    assert refusal(ended, []) == "confirm: name the selected point: --arm 'a at x2'"
    assert refusal(ended, ["c"]) == "--arm c: no point of the last rung; there is: ['a', 'b']"
    assert refusal(ended, ["c", "a"]) == refusal(ended, ["a"]) == ""
    chosen.clear()
    assert "has not ended" in refusal(ended, ["a"])


@pytest.mark.parametrize(
    ("estimand", "given", "margin", "detect", "seeds"),
    [
        ("at-rate", {}, 0.25, 0.25, [1007, 1008]),
        ("retuned", {}, 0.25, 0.25, 2),
        ("at-rate", {"margin": 0.5}, 0.5, 0.5, [1007, 1008]),
        ("at-rate", {"detect": 0.125}, 0.25, 0.125, [1007, 1008]),
    ],
)
def test_what_was_explored_becomes_a_file_with_its_reason_and_the_next_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    estimand: str,
    given: dict[str, float],
    margin: float,
    detect: float,
    seeds: Any,
) -> None:
    """Of an experiment that declares no margin: half of 0.5 sets it."""
    monkeypatch.chdir(tmp_path)
    loaded = SimpleNamespace(name="mini", margin=None, halving=None, estimand=estimand)
    file = SimpleNamespace(
        path=tmp_path / "files" / "mini.yaml",
        data={"name": "mini", "changes": {"a": 1, "b": 2}, "plugins": ["own.py", "../other.py"]},
    )
    outcome = outcome_of(a=effect("helps", -0.5), b=effect("hurts", 2.0))
    asked: list[Any] = []

    def seeds_for(e: Any, outcome: Any, results: Path, difference: float, n_arms: int) -> Any:
        asked.append((difference, n_arms))
        return 2, "2 seeds are enough"

    for name, made in {
        "exploratory_file": lambda *_: file,
        "read_experiment": lambda *_: loaded,
        "current_part": lambda e, results: e,
        "check_same_settings": lambda *_: None,
        "planned_seeds": seeds_for,
        "fresh_seeds": lambda plan, results, n: [1007, 1008],
    }.items():
        monkeypatch.setattr(confirm, name, made)
    explored = SimpleNamespace(plan=PLAN)
    monkeypatch.setattr("harness.cli.lookup.load_for_report", lambda *_, **__: explored)
    monkeypatch.setattr("harness.cli.lookup.compared", lambda explored: outcome)
    confirm.confirm("mini.yaml", results=Path("results"), **given)
    path = Path("experiments/mini_confirm.yaml")
    said = f"{path}: 2 seeds are enough\nnext: ablate plan {path}\n"
    assert capsys.readouterr().out == said
    text = path.read_text()
    assert text.startswith("# Follows from mini: 2 seeds are enough. Seeds that no exploratory run")
    written = yaml.safe_load(text)
    assert (written["margin"], written["seeds"]) == (margin, seeds)
    assert written["plugins"] == [str(tmp_path / "files" / "own.py"), str(tmp_path / "other.py")]
    assert "--set" not in text and "set" not in written
    assert asked == [(detect, 2)]
    confirm.confirm("mini.yaml", results=Path("results"), arms=["b"], out=Path("b.yaml"))
    assert asked[1:] == [(0.25, 1)]
    assert yaml.safe_load(Path("b.yaml").read_text())["arms"] == {"b": ["b"]}
    taken = {"mini_confirm": PLAN}  # it was asked again before
    monkeypatch.setattr("harness.store.plans.read_plan", lambda results, name: taken.get(name))
    confirm.confirm("mini.yaml", results=Path("results"), out=Path("again.yaml"))
    assert yaml.safe_load(Path("again.yaml").read_text())["name"] == "again"
    assert yaml.safe_load(Path("b.yaml").read_text())["name"] == "mini_confirm"
    selected: list[Any] = []
    monkeypatch.setattr(confirm, "check_selected", lambda *of: selected.append(of))
    confirm.confirm("mini.yaml", results=Path("results"), out=Path("again.yaml"))
    assert selected == []
    loaded.halving = SimpleNamespace()
    confirm.confirm("mini.yaml", results=Path("results"), arms=["b"], out=Path("halved.yaml"))
    assert selected == [(loaded, explored, outcome, ["b"])]
