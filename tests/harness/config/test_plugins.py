"""Plug-ins: found, checked, and a stranger to every run that does not name them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness.config import plugins
from harness.config.listing import toggle_rows
from harness.config.plugin_errors import told_in_a_line
from harness.config.run import RunConfig, get, with_fields
from harness.config.schedule import factor_at
from harness.config.validate_schedule import refused_alignment, refused_losses
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.experiment.values import check_plugin_value
from harness.model.tokens import Tokens
from harness.provenance.source import source_of
from harness.training.core import Core

PLUGIN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal
from harness.model.config import toggle

@dataclass(frozen=True, kw_only=True)
class Toggles:
    cap: float | None = toggle(None, record="own", doc="softcap", gt=0, le=100)
    kind: Literal["soft", "hard"] = toggle("soft", record="own", doc="which")
    depth: int = toggle(1, record="own", doc="how deep", ge=1)

def build(model, toggles):
    if toggles.cap is not None:
        model.softcap = toggles.cap
"""
EXPERIMENT = """
name: capped
base: r08
scale: tiny
plugins: [cap.py]
set: {model.n_layer: 2, data.seq_len: 64, data.micro_tokens: 64, data.batch_tokens: 64, data.ranks: 1, data.val_tokens: 64,
      optim.muon_comm: redundant, data.first_batch_twice: false}
changes:
  cap: {plugin.cap.cap: 0.5}
"""


@pytest.fixture(autouse=True)
def _none_in_force(monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "")


@pytest.fixture
def cap(tmp_path) -> Path:
    (tmp_path / "cap.py").write_text(PLUGIN, encoding="utf-8")
    plugins.use([tmp_path / "cap.py"])
    return tmp_path / "cap.py"


def experiment(tmp_path: Path, text: str = EXPERIMENT):
    (tmp_path / "cap.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "capped.yaml").write_text(text, encoding="utf-8")
    return load_experiment(str(tmp_path / "capped.yaml"), device="cpu")


def test_its_toggles_are_listed_beside_the_others(cap):
    rows = {r["name"]: r for r in toggle_rows()}
    assert rows["plugin.cap.cap"]["doc"] == "softcap"
    assert rows["plugin.cap.kind"]["default"] == "soft"


GOOD = [
    ("cap", 15, 15.0),
    ("cap", None, None),
    ("cap", 0.5, 0.5),
    ("kind", "hard", "hard"),
    ("depth", 3, 3),
]


@pytest.mark.parametrize(("field", "given", "taken"), GOOD)
def test_a_value_that_fits_is_taken_in_its_type(cap, field, given, taken):
    value = check_plugin_value(f"plugin.cap.{field}", given, "here")
    assert value == taken
    assert type(value) is type(taken)


BAD = [
    ("cap", "big", "here: plugin.cap.cap is 'big', but must be a number | null"),
    ("cap", 0, "here: plugin.cap.cap is 0.0, but must be greater than 0"),
    ("cap", 101, "here: plugin.cap.cap is 101.0, but must be at most 100"),
    ("kind", "herd", "here: plugin.cap.kind is 'herd', but must be soft | hard"),
    ("depth", 1.5, "here: plugin.cap.depth is 1.5, but must be an integer"),
    ("depth", True, "here: plugin.cap.depth is true, but must be an integer"),
    ("depth", 0, "here: plugin.cap.depth is 0, but must be at least 1"),
]


@pytest.mark.parametrize(("field", "given", "message"), BAD)
def test_a_value_that_does_not_fit_is_refused_by_name(cap, field, given, message):
    with pytest.raises(UserError) as error:
        check_plugin_value(f"plugin.cap.{field}", given, "here")
    assert str(error.value) == message


def test_an_experiment_refuses_a_value_that_does_not_fit(tmp_path, kept_line):
    with pytest.raises(
        UserError, match=r"capped\.yaml:9: plugin\.cap\.cap is 'big', but must be a number"
    ) as refused:
        experiment(tmp_path, EXPERIMENT.replace("0.5", "big"))
    kept_line(str(refused.value))


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(tmp_path, kept_line):
    with pytest.raises(
        UserError,
        match=r"capped\.yaml:9: plugin\.cap\.cup is not a field .* did you mean 'plugin\.cap\.cap'\?",
    ) as refused:
        experiment(tmp_path, EXPERIMENT.replace("cap.cap", "cap.cup"))
    kept_line(str(refused.value))


@pytest.mark.parametrize(("name", "near"), [("cup.cap", True), ("mine.cap", False)])
def test_the_name_of_a_plug_in_that_is_nearly_right_is_answered_too(
    tmp_path, name, near, kept_line
):
    with pytest.raises(UserError, match="which `plugins` does not name: add plugins") as error:
        experiment(tmp_path, EXPERIMENT.replace("cap.cap", name))
    kept_line(str(error.value))
    assert str(error.value).endswith("; or did you mean 'plugin.cap.cap'?") == near


def test_what_a_plug_in_decides_no_toggle_decides_too(tmp_path):
    hooks = "\ndef loss(logits, targets, toggles):\n    pass\n\ndef order(documents, seed, toggles):\n    pass\n"
    (tmp_path / "cap.py").write_text(PLUGIN + hooks, encoding="utf-8")
    (tmp_path / "capped.yaml").write_text(EXPERIMENT, encoding="utf-8")
    baseline, arm = (
        a.config for a in load_experiment(str(tmp_path / "capped.yaml"), device="cpu").arms
    )
    listed = {"loss.next_tokens": (1.0, 0.5), "loss.prefix_weight": 0.5, "data.alignment": "packed"}
    plain, both = with_fields(baseline, listed), with_fields(arm, listed)
    for config in (arm, plain):
        assert [*refused_losses(config), *refused_alignment(config)] == []
    told = [*refused_losses(both), *refused_alignment(both)]
    of_loss = (
        f"and plug-in {tmp_path / 'cap.py'} both decide what is trained on: leave one of them out"
    )
    assert told == [
        f"loss.next_tokens {of_loss}",
        f"loss.prefix_weight {of_loss}",
        f"data.alignment and plug-in {tmp_path / 'cap.py'} both decide where passes begin: leave one "
        "of them out",
    ]
    alone = with_fields(arm, {**listed, "loss.next_tokens": ()})
    assert [*refused_losses(alone)] == told[1:2]


def test_what_is_no_error_of_a_plug_in_is_told_as_it_is():
    for error in (KeyError("mine"), UserError("a line")):
        with pytest.raises(type(error)) as met, told_in_a_line():
            raise error
        assert met.value is error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_what_a_plug_in_raises_is_told_by_its_innermost_line(tmp_path, error, said):
    fails = "\ndef fails(error):\n    deeper(error)\n\ndef deeper(error):\n    raise error\n"
    file = tmp_path / "cap.py"
    file.write_text(PLUGIN + fails, encoding="utf-8")
    plugins.use([file])
    with pytest.raises(UserError) as met, told_in_a_line():
        plugins.modules()[0].fails(error)
    line = f"{file}:{(PLUGIN + fails).count(chr(10))}"
    assert str(met.value) == f"plug-in {line}: deeper: {said}; see docs/your-idea.md"


def test_a_factor_that_refuses_in_its_own_words_is_not_told_as_a_fault():
    def lr_factor(step, steps, factor, toggles):
        raise UserError("my own words")

    plug = SimpleNamespace(module=SimpleNamespace(lr_factor=lr_factor), toggles=None)
    with pytest.raises(UserError, match=r"^my own words$"):
        factor_at(RunConfig(), 3, [plug])


def test_it_changes_the_arm_that_sets_it_and_no_other(tmp_path):
    baseline, arm = experiment(tmp_path).arms
    assert dict(arm.fields) == {"plugin.cap.cap": 0.5}
    assert get(arm.config, "plugin.cap.cap") == 0.5
    tokens = Tokens(vocab_size=257, separator=256, seq_len=64)
    cores = [Core(a.config, tokens, seed=0) for a in (baseline, arm)]
    assert [core.model.softcap for core in cores] == [None, 0.5]
    assert all(
        torch.equal(a, b) for a, b in zip(*(c.model.parameters() for c in cores), strict=True)
    )


def test_an_experiment_without_plug_ins_puts_none_in_force(tmp_path, cap):
    experiment(
        tmp_path,
        EXPERIMENT.replace("plugins: [cap.py]", "").replace(
            "plugin.cap.cap: 0.5", "model.logit_softcap: 15"
        ),
    )
    assert plugins.modules() == []


def test_its_code_is_part_of_the_source_but_its_comments_are_not(cap):
    before = source_of(plugins.paths()).digest
    cap.write_text(PLUGIN + "\n# a remark\n", encoding="utf-8")
    assert source_of(plugins.paths()).digest == before
    cap.write_text(PLUGIN.replace("le=100", "le=50"), encoding="utf-8")
    assert source_of(plugins.paths()).digest != before


BROKEN = [
    ("x.py", "import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'"),
    ("x.py", "def build(", "SyntaxError"),
    (
        "x.py",
        "a = 1",
        "must define a dataclass Toggles; see docs/your-idea.md",
    ),
    (
        "x.py",
        PLUGIN.replace("def build", "def bild"),
        "changes nothing, its functions are bild: define one or several of build(model, toggles), "
        "loss(logits, targets, toggles)",
    ),
    (
        "x.py",
        PLUGIN + "def loss(logits, targets):\n    return logits.mean()\n",
        "loss must be a function called as loss(logits, targets, toggles): give it these arguments",
    ),
    ("x.py", PLUGIN.replace("def build", "build = 3\ndef bild"), "build must be a function"),
    (
        "x.py",
        PLUGIN.replace('toggle(1, record="own", doc="how deep", ge=1)', "...").replace(
            " = ...", ""
        ),
        "Toggles.depth has no default",
    ),
    ("my-x.py", PLUGIN, "its name is part of its toggles' names"),
    ("x.txt", PLUGIN, "its name is part of its toggles' names"),
]


@pytest.mark.parametrize(("name", "text", "message"), BROKEN)
def test_a_file_that_is_no_plug_in_is_refused(tmp_path, name, text, message, kept_line):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        plugins.use([tmp_path / name])
    python = str(error.value.__cause__)  # whose words are those of its version
    kept_line(str(error.value).replace(f"Error: {python}", "Error: ..."))
    assert str(error.value).startswith(f"plug-in {tmp_path / name}: ")
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path, kept_line):
    with pytest.raises(UserError, match="no such file") as refused:
        plugins.use([tmp_path / "nowhere.py"])
    kept_line(str(refused.value))


def test_two_files_of_one_name_are_refused(tmp_path, cap, kept_line):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cap.py").write_text(PLUGIN, encoding="utf-8")
    with pytest.raises(UserError, match="two files of one name") as refused:
        plugins.use([cap, tmp_path / "other" / "cap.py"])
    kept_line(str(refused.value))


@pytest.mark.parametrize("hook", ["loss", "optimizers", "order"])
def test_what_two_plug_ins_both_decide_is_refused_where_both_are_on(tmp_path, hook, kept_line):
    arguments = ", ".join(plugins.HOOKS[hook])
    files = []
    for name in ("one", "two"):
        files.append(tmp_path / f"{name}.py")
        text = PLUGIN + f"\ndef {hook}({arguments}):\n    pass\n"
        files[-1].write_text(text, encoding="utf-8")
    plugins.use(files)
    assert [plug.module.NAME for plug in plugins.switched_on({"two.cap": 1.0})] == ["two"]
    assert plugins.switched_on({"two.cap": None, "one.depth": 1}) == []
    assert plugins.switched_on({}) == []
    with pytest.raises(UserError) as refused:
        plugins.switched_on({"one.cap": 1.0, "two.kind": "hard"})
    kept_line(str(refused.value))


def test_two_plug_ins_that_both_change_the_network_go_together(tmp_path):
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    for file in files:
        file.write_text(PLUGIN, encoding="utf-8")
    plugins.use(files)
    both = plugins.switched_on({"one.cap": 1.0, "two.cap": 2.0})
    assert [(plug.module.NAME, plug.toggles.cap) for plug in both] == [("one", 1.0), ("two", 2.0)]
    assert both[0].hook("build") is both[0].module.build and both[0].hook("loss") is None
