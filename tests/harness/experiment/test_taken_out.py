"""Taking a part out of a recipe is one line: what requires the part goes with it, and `plan` names it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from harness.cli.plan import print_notes
from harness.config.presets import MODERN
from harness.config.requires import OFF
from harness.config.run import flat, plain_value, toggles
from harness.errors import UserError
from harness.experiment.configs import Configs
from harness.experiment.experiment import load_experiment
from harness.experiment.file import ExperimentFile

CLOCK = {"schedule.cooldown_frac", "schedule.extension_steps"}  # the other lists are as long
NOT_ALONE = {"r58": CLOCK, MODERN: CLOCK | {"model.paired_heads", "model.value_embed"}}  # gate_rule


def experiment(folder: Path, base: str, **changes: object) -> Path:
    file = folder / "parts.yaml"
    keys = {"name": "parts", "question": "What is each worth?", "base": base, "scale": "tiny"}
    file.write_text(yaml.safe_dump({**keys, "changes": changes}))
    return file


@pytest.mark.parametrize("base", NOT_ALONE)
def test_whatever_a_recipe_has_switched_on_is_taken_out_in_one_line(
    base: str, tmp_path: Path
) -> None:
    file = experiment(tmp_path, base, rate={"optim.muon_lr": 0.01})
    values = flat(load_experiment(str(file), device="cpu").baseline.config)
    parts = {
        name: plain_value(f.default)
        for name, f in toggles()
        if f.default in OFF and values[name] not in OFF
    }
    assert len(parts) > 60
    file = experiment(tmp_path, base, **{name: {name: off} for name, off in parts.items()})
    configs = Configs(
        ExperimentFile(file, ("name", "question", "base", "scale", "changes"), {}), "cpu"
    )
    assert {name for name in parts if configs.refusal((name,))} == NOT_ALONE[base]


def test_what_requires_a_part_goes_with_it_and_what_the_change_says_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = experiment(
        tmp_path, "r58", skip={"model.skip_layers": []}, yarn={"model.window_yarn": False}
    )
    e = load_experiment(str(file), device="cpu")
    skip, yarn = e.arms[1:]
    assert skip.gone[:2] == ("model.skip_gate", "optim.skip_gate_rule")
    assert yarn.gone == ("schedule.yarn_until",)
    assert set(skip.fields) == {"model.skip_layers", *skip.gone}
    assert {name: flat(skip.config)[name] for name in skip.gone} == {
        name: f.default for name, f in toggles() if name in skip.gone
    }
    print_notes(e)
    lines = capsys.readouterr().out.splitlines()
    with_it = "what requires what it switches off goes with it"
    settings = ", ".join(skip.gone[1:])
    assert f"skip: {with_it}: model.skip_gate (true to false), {settings}" in lines
    [of_yarn] = [line for line in lines if line.startswith("yarn:")]
    assert re.fullmatch(rf"yarn: {with_it}: schedule\.yarn_until \(\d+ to null\)", of_yarn)


def test_what_a_change_itself_sets_does_not_go(tmp_path: Path) -> None:
    fields = {"model.smear": False, "optim.smear_gate_lr": 0.1}
    with pytest.raises(
        UserError, match=r"optim\.smear_gate_lr=0\.1 requires model.smear to be true"
    ):
        load_experiment(str(experiment(tmp_path, "r58", out=fields)), device="cpu")
    factor = {"model.smear": False, "optim.smear_gate_lr": "x2"}
    with pytest.raises(UserError, match=r"optim\.smear_gate_lr=.* requires model.smear to be true"):
        load_experiment(str(experiment(tmp_path, "r58", out=factor)), device="cpu")


def test_only_what_is_switched_off_takes_something_with_it(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    """Another value of what something requires is no wish to lose that."""
    with pytest.raises(UserError, match=r"requires optim\.matrix_optimizer to be muon") as refused:
        load_experiment(
            str(experiment(tmp_path, "r58", adamw={"optim.matrix_optimizer": "adamw"})),
            device="cpu",
        )
    kept_line(str(refused.value))


def test_together_parts_take_out_what_each_takes_out_and_it_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = experiment(tmp_path, "r58", smear={"model.smear": False}, skip={"model.skip_layers": []})
    file.write_text(file.read_text() + "design: factorial\n")
    e = load_experiment(str(file), device="cpu")
    smear, skip, both = e.arms[1:]
    assert {*both.gone} == {*smear.gone, *skip.gone}
    print_notes(e)
    lines = [line for line in capsys.readouterr().out.splitlines() if "goes with it" in line]
    assert [line.partition(":")[0] for line in lines] == [smear.name, skip.name]


def test_what_still_does_not_fit_is_refused_with_what_went(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    fields = {"model.value_embed": None}
    said = r"optim\.gate_rule=adam is of the gates .* \(model\.value_mix, .* went with what it"
    with pytest.raises(UserError, match=said) as refused:
        load_experiment(str(experiment(tmp_path, MODERN, out=fields)), device="cpu")
    kept_line(str(refused.value))


def test_axes_that_move_nothing_in_an_arm_are_refused_by_its_name(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    file = experiment(tmp_path, "r58", out={"model.smear": False})
    file.write_text(file.read_text() + "axes: {optim.smear_gate_lr: [x0.5, x2]}\n")
    with pytest.raises(
        UserError, match="the axes move nothing in arm 'out': leave it out"
    ) as refused:
        load_experiment(str(file), device="cpu")
    kept_line(str(refused.value))
