"""Factors wherever a field has a number, and axes without changes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment

HEAD = "name: exp\nbase: r07\nscale: tiny\n"


def load(folder: Path, text: str, **overrides: object) -> Experiment:
    path = folder / "exp.yaml"
    path.write_text(HEAD + text)
    return load_experiment(str(path), device="cpu", overrides=overrides)


def test_axes_alone_are_a_sweep_of_the_baseline(tmp_path: Path) -> None:
    e = load(tmp_path, "axes: {optim.muon_lr: [x0.5, x1], model.n_layer: [4, 8]}\n")
    own = e.baseline.config.optim.muon_lr
    found = [(a.name, a.config.optim.muon_lr, a.config.model.n_layer) for a in e.arms]
    assert found == [
        ("baseline", own, 8),
        ("baseline @ muon_lr x0.5, n_layer 4", own / 2, 4),
        ("baseline @ muon_lr x0.5, n_layer 8", own / 2, 8),
        ("baseline @ muon_lr x1, n_layer 4", own, 4),
    ]
    same = load(tmp_path, "design: factorial\naxes: {optim.muon_lr: [x0.5, x1]}\n")
    assert [arm.name for arm in same.arms] == ["baseline", "baseline @ muon_lr x0.5"]


def test_a_factor_is_on_what_the_arm_has_otherwise(tmp_path: Path) -> None:
    text = (
        "changes:\n  half: {optim.muon_lr: x0.5}\n  more: {optim.muon_lr: 0.08}\n"
        "  deep: {model.n_layer: x1.3}\n"
        "design: explicit\narms: [[half], [more], [half, more], [deep]]\n"
    )
    plain = load(tmp_path, text)
    rates = {arm.name: arm.config.optim.muon_lr for arm in plain.arms}
    own = plain.baseline.config.optim.muon_lr
    assert rates["half"] == own / 2
    assert rates["more"] == 0.08
    assert rates["half + more"] == 0.04  # whichever comes first
    assert {a.name: a.config.model.n_layer for a in plain.arms}["deep"] == 10  # of 8, rounded
    halved = load(tmp_path, "changes: {half: {optim.muon_lr: x0.5}}\nset: {optim.muon_lr: x0.5}\n")
    assert [arm.config.optim.muon_lr for arm in halved.arms] == [own / 2, own / 4]
    assert halved.departures == {"optim.muon_lr": own}
    given = load(tmp_path, "changes: {a: r08.untied_head}\n", **{"optim.muon_lr": "x3"})
    assert given.baseline.config.optim.muon_lr == 3 * own


def test_a_factor_on_the_steps_takes_cooldown_and_warm_up_along(tmp_path: Path) -> None:
    text = "changes: {a: r08.untied_head}\n"
    whole = load(tmp_path, text).baseline.config.schedule
    half = load(tmp_path, text + "set: {schedule.steps: x0.5}\n").baseline.config.schedule
    number = load(tmp_path, text + f"set: {{schedule.steps: {round(whole.steps / 2)}}}\n")
    assert half == number.baseline.config.schedule
    assert half.cooldown_steps is not None and whole.cooldown_steps is not None
    assert abs(half.cooldown_steps - whole.cooldown_steps / 2) <= 1
    text += "set: {schedule.cooldown_steps: x0.5, schedule.steps: x0.5}\n"
    both = load(tmp_path, text).baseline.config.schedule
    assert (both.steps, both.cooldown_steps) == (half.steps, round(half.cooldown_steps / 2))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "changes: {cap: {model.logit_softcap: x0.5}}\n",
            r"exp\.yaml:4: model\.logit_softcap is off",
        ),
        ("changes: {a: {model.activation: x2}}\n", r"model\.activation is 'x2', but must be gelu"),
        ("changes: {a: {model.n_layer: x0}}\n", r"model\.n_layer is 'x0', but must be an integer"),
        (
            "changes: {a: {model.n_layer: x2}}\naxes: {model.n_layer: [4, 8]}\n",
            r"change 'a' sets model\.n_layer, which an axis moves in every arm",
        ),
        (
            "changes: {a: {optim.muon_lr: 0.1}}\nset: {optim.muon_lr: x2}\n",
            r"change 'a' sets optim\.muon_lr, which `set` fixes for every arm",
        ),
    ],
)
def test_what_a_factor_cannot_be_is_one_line(
    tmp_path: Path, text: str, said: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=said) as refused:
        load(tmp_path, text)
    kept_line(str(refused.value))


PLUGIN = """
from dataclasses import dataclass
from harness.model.config import toggle

@dataclass(frozen=True)
class Toggles:
    weight: float = toggle(0.5, record="mine", doc="of a loss")

def build(model, toggles):
    pass
"""


def test_a_plug_ins_number_may_be_an_axis_and_have_a_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_PLUGINS", "")
    (tmp_path / "mine.py").write_text(PLUGIN)
    text = "plugins: [mine.py]\naxes: {plugin.mine.weight: [0.25, 1]}\n"
    arms = load(tmp_path, text).arms
    assert [dict(arm.config.plugin) for arm in arms] == [
        {},
        {"mine.weight": 0.25},
        {"mine.weight": 1.0},
    ]
    text = "plugins: [mine.py]\nchanges: {half: {plugin.mine.weight: x0.5}}\n"
    assert dict(load(tmp_path, text).arms[1].config.plugin) == {"mine.weight": 0.25}


def test_a_factor_leaves_zero_at_zero_and_a_number_that_is_written_whole_is_not_rounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_PLUGINS", "")
    (tmp_path / "mine.py").write_text(PLUGIN.replace("0.5", "1"))
    text = "set: {schedule.warmup_steps: x2}\nchanges: {less: {plugin.mine.weight: x0.25}}\n"
    e = load(tmp_path, "plugins: [mine.py]\n" + text)
    assert e.baseline.config.schedule.warmup_steps == 0
    assert dict(e.arms[1].config.plugin) == {"mine.weight": 0.25}


WEIGHT = '    weight: float = toggle(0.5, record="mine", doc="of a loss")\n'
OTHERS = """
    depth: int = toggle(3, record="mine", doc="layers")
    cap: float | None = toggle(None, record="mine", doc="of logits")
"""


def test_a_plug_ins_whole_number_stays_whole_and_what_is_off_has_no_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    monkeypatch.setenv("ABLATE_PLUGINS", "")
    assert WEIGHT in PLUGIN
    (tmp_path / "mine.py").write_text(PLUGIN.replace(WEIGHT, OTHERS))
    head = "plugins: [mine.py]\n"
    e = load(tmp_path, head + "axes: {plugin.mine.depth: [x0.5, x1.5]}\n")
    depths = [arm.config.plugin.get("mine.depth") for arm in e.arms]
    assert depths == [None, 2, 4] and [type(depth) for depth in depths[1:]] == [int, int]
    more = load(tmp_path, head + "changes: {more: {plugin.mine.depth: x2}}\n").arms[1]
    assert dict(more.config.plugin) == {"mine.depth": 6}
    text = "changes: {on: {plugin.mine.cap: 15}}\naxes: {plugin.mine.cap: [x1, x2]}\n"
    caps = {arm.name: arm.config.plugin.get("mine.cap") for arm in load(tmp_path, head + text).arms}
    assert caps == {"baseline": None, "on": 15.0, "on @ mine.cap x2": 30.0}
    with pytest.raises(UserError, match="is off") as refused:
        load(tmp_path, head + "changes: {half: {plugin.mine.cap: x0.5}}\n")
    kept_line(str(refused.value))
