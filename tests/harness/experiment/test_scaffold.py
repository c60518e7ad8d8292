"""`ablate new-change`: what it writes works as it is, and it overwrites nothing."""

import ast
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from harness.__main__ import main
from harness.config import plugins
from harness.experiment.experiment import load_experiment
from harness.experiment.laws import LAWS, SEQ_LEN, UPDATES, Subject, Trained
from harness.experiment.scaffold import KINDS
from harness.model.heads import Attention

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ablate(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


def python(here: Path, *arguments: str, exits: int = 0) -> str:
    """Run Python in the working directory; returns what it prints. exits: as it must."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exits, done.stdout + done.stderr
    return done.stdout


def test_the_files_are_named_and_the_next_commands_said(here, capsys):
    assert ablate("new-change", "idea") == 0
    said = capsys.readouterr().out
    for name in ("idea.py", "experiments/idea.yaml", "test_idea.py"):
        assert (here / name).is_file()
        assert name in said
    assert said.index("make idea.py your own") < said.index("ablate plan idea")
    assert said.index("ablate plan idea") < said.index("ablate run idea")
    assert "NAME" not in "".join(
        p.read_text(encoding="utf-8") for p in here.rglob("*idea*") if p.is_file()
    )


@pytest.mark.parametrize("missing", [True, False])
def test_where_pytest_is_missing_what_installs_it_is_said(here, capsys, monkeypatch, missing):
    if missing:
        monkeypatch.setitem(sys.modules, "pytest", None)
    ablate("new-change", "idea")
    assert ("needs pytest: pip install pytest" in capsys.readouterr().out) == missing


def test_its_experiment_loads_by_name_and_sets_its_toggle(here):
    ablate("new-change", "idea")
    baseline, *arms = load_experiment("idea", device="cpu").arms
    assert [dict(arm.fields) for arm in arms] == [{"plugin.idea.opened": o} for o in (0.9, 0.5)]
    assert not baseline.config.plugin


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_example_of_less_than_forty_lines_under_a_name_of_ones_own(here, kind):
    ablate("new-change", "idea", "--kind", kind)
    example = (ROOT / "experiments" / "ideas" / f"{KINDS[kind]}.py").read_text(encoding="utf-8")
    written = (here / "idea.py").read_text(encoding="utf-8")
    shown, own = (ast.parse(text) for text in (example, written))
    docstring = ast.get_docstring(shown)
    assert docstring is not None and ast.get_docstring(own) == docstring.replace(
        KINDS[kind], "idea", 1
    )
    assert [ast.dump(node) for node in own.body[1:]] == [
        ast.dump(node).replace(f"plugin.{KINDS[kind]}.", "plugin.idea.") for node in shown.body[1:]
    ]
    lines = (ROOT / "experiments" / "ideas" / f"{KINDS[kind]}.yaml").read_text().splitlines()
    (question,) = [line for line in lines if line.startswith("question: ")]
    assert question in (here / "experiments" / "idea.yaml").read_text().splitlines()
    assert written.count("\n") < 40
    baseline, *arms = load_experiment("idea", device="cpu").arms
    assert arms
    assert all(name.startswith("plugin.idea.") for arm in arms for name in arm.fields)
    shown = load_experiment(f"ideas/{KINDS[kind]}", device="cpu")
    assert [arm.name for arm in shown.arms] == [arm.name for arm in (baseline, *arms)]


def test_a_kind_that_is_none_is_answered_with_those_there_are(here, capsys, kept_line):
    assert ablate("new-change", "idea", "--kind", "los") == 2
    said = capsys.readouterr().err
    assert "--kind los: no such kind; did you mean 'loss'?" in said
    kept_line(said)
    assert not list(here.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_its_law_test_passes_as_it_is(here, kind):
    ablate("new-change", "idea", "--kind", kind)
    assert f"{len(LAWS)} passed" in python(
        here, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_idea.py"
    )


@pytest.mark.slow
def test_a_bad_plug_in_is_one_line_of_its_law_test_and_no_traceback(here):
    ablate("new-change", "idea", "--kind", "optimizer")
    file = here / "idea.py"
    file.write_text(file.read_text().replace('"lr": toggles.lr', '"lr": None'))
    options = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
    said = python(here, *options, "test_idea.py", exits=1)
    (line,) = [line for line in said.splitlines() if line.startswith("plug-in")]
    assert "idea.py: optimizers gives the group of blocks.0." in line
    assert "the lr None, but must give a finite number" in line
    assert "hooks.py" not in said


HOOKED = "attn.register_forward_hook(scaled)"
TWICE = "lambda ids, window=None: 2 * GPT.logits(model, ids, window)"
BREAKS = {
    # law: the kind, what is replaced in its files, by what
    "off_is_the_preset": ("model", HOOKED, f"{HOOKED}\n    Attention.forward = leaks"),
    "an_arm_differs_from_the_baseline": ("loss", "toggles.weight * log_z", "0.0 * log_z"),
    "the_same_seed_is_the_same_run": ("data", "default_rng(seed)", "default_rng()"),
    "no_weight_that_was_there_begins_elsewhere": (
        "model",
        HOOKED,
        f"{HOOKED}; attn.out.weight.init = 'normal'",
    ),
    "no_position_sees_the_future": ("model", "inputs[0].float()", "inputs[0].float().flip(1)"),
    "every_parameter_learns": ("model", "inputs[0].float() @ attn.gate", "inputs[0][..., 0] * 0"),
    "validation_is_plain_cross_entropy": ("model", HOOKED, f"{HOOKED}; model.logits = {TWICE}"),
}
LEAKS = """

def leaks(attn: Any, *inputs: Any, forward: Any = Attention.forward) -> Any:
    branch, own_v = forward(attn, *inputs)
    return 2 * branch, own_v
"""


def test_every_law_has_what_breaks_it():
    assert BREAKS.keys() == LAWS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("law", BREAKS)
def test_its_laws_bite(here, law, monkeypatch):
    kind, old, new = BREAKS[law]
    monkeypatch.setattr(Attention, "forward", Attention.forward)  # put back what a plug-in changes
    ablate("new-change", "idea", "--kind", kind)
    text = (here / "idea.py").read_text(encoding="utf-8")
    assert old in text
    (here / "idea.py").write_text(text.replace(old, new) + LEAKS * (kind == "model"))
    file = here / "experiments" / "idea.yaml"
    if law == "validation_is_plain_cross_entropy":  # which then passes the network's logits by
        file.write_text(file.read_text().replace("set: {", "set: {model.loss_rows: 64, "))
    with pytest.raises(AssertionError):
        LAWS[law](Subject(file, here))


def test_a_validation_is_held_against_plain_cross_entropy_of_the_logits():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    x, y = torch.zeros(2, 3), torch.arange(6).view(2, 3) % 5
    plain = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    for off in (0.0, 0.1, -0.1):
        arm = SimpleNamespace(val=(x, y), logits=lambda _: logits, val_loss=plain + off)
        says = r"arm on: val_loss is 0\.1 off plain cross-entropy"
        with pytest.raises(AssertionError, match=says) if off else nullcontext():
            LAWS["validation_is_plain_cross_entropy"](SimpleNamespace(arms={"on": arm}))


REFUSED = {
    "my-idea": "did you mean 'my_idea'?",
    "class": "cannot name a Python file",
    "3d": "cannot name a Python file",
    "../idea": "cannot name a Python file",
    "größe": "cannot name a Python file",
    "": "cannot name a Python file",
    "x" * 81: "cannot name a Python file",
    "torch": "torch.py would hide the module 'torch': choose another name, such as my_torch",
    "model": "would hide the module 'model'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_name_is_refused_in_one_line(here, capsys, name, kept_line):
    assert ablate("new-change", name) == 2
    said = capsys.readouterr().err
    assert REFUSED[name] in said
    assert said.count("\n") == 1
    assert not list(here.iterdir())
    kept_line(said)


@pytest.mark.parametrize("taken", ["idea.py", "experiments/idea.yaml", "test_idea.py"])
def test_nothing_is_overwritten(here, capsys, taken, kept_line):
    (here / taken).parent.mkdir(exist_ok=True)
    (here / taken).write_text("mine", encoding="utf-8")
    assert ablate("new-change", "idea") == 2
    said = capsys.readouterr().err
    assert f"{taken}: is there already" in said
    kept_line(said)
    assert [p for p in here.rglob("*") if p.is_file()] == [here / taken]
    assert (here / taken).read_text(encoding="utf-8") == "mine"


SIZES = (
    "data.corpus=own",
    "data.batch_tokens=256",
    "data.micro_tokens=256",
    "data.val_tokens=1024",
    "schedule.steps=6",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_its_experiment_runs_and_is_known_as_finished(here, monkeypatch, kind):
    monkeypatch.setenv("ABLATE_DATA", str(here / "data"))
    ablate("new-change", "idea", "--kind", kind)
    python(
        here,
        "-m",
        "harness",
        "data",
        "prepare",
        "text",
        str(ROOT / "harness"),
        str(ROOT / "model"),
        "--name",
        "own",
    )
    small = [argument for size in SIZES for argument in ("--set", size)]
    out = python(
        here,
        "-m",
        "harness",
        "run",
        "idea",
        "--seeds",
        "1",
        "--max-parallel",
        "1",
        "--no-report",
        *small,
    )
    n_arms = len(load_experiment("idea", device="cpu").arms)
    assert f"{n_arms} runs, 0 diverged" in out
    rows = json.loads(python(here, "-m", "harness", "status", "idea", "--json"))
    assert [r["status"] for r in rows] == ["finished"] * n_arms


def test_laws_ask_every_arm_about_what_the_baseline_has_and_about_what_is_new():
    zeros, ones = torch.zeros(2), torch.ones(2)
    start = {"head": zeros, "idle": zeros}
    baseline = SimpleNamespace(initial=start, after=start, learning={"head"})
    weights = LAWS["no_weight_that_was_there_begins_elsewhere"]
    learns, sees = LAWS["every_parameter_learns"], LAWS["no_position_sees_the_future"]
    for law, initial, learning, broken in (
        (weights, {"head": zeros, "gate": ones}, (), None),
        (weights, {"head": ones, "gate": ones}, (), "arm a begins with another head"),
        (learns, {"idle": zeros, "gate": ones}, {"gate"}, None),
        (learns, {"idle": zeros, "gate": ones}, set(), "arm a: gate has no gradient"),
        (learns, start, set(), "arm a: head has no gradient"),
        (sees, start, set(), "arm a: a position sees what comes after it"),
    ):
        arm = SimpleNamespace(initial=initial, after=initial, learning=learning)
        arm.sees_the_future = lambda: True
        subject = SimpleNamespace(baseline=baseline, arms={"a": arm})
        with pytest.raises(AssertionError, match=broken) if broken else nullcontext():
            law(subject)


@pytest.mark.parametrize(
    ("differs", "factors", "broken"),
    [(False, [1.0, 0.5], True), (True, [1.0, 0.5], False), (False, [1.0, 0.7], False)],
)
def test_an_arm_that_trains_as_the_baseline_does_is_named(differs, factors, broken):
    law = LAWS["an_arm_differs_from_the_baseline"]
    baseline = SimpleNamespace(factors=lambda: [1.0, 0.5])
    arm = SimpleNamespace(differs=lambda other: differs, factors=lambda: factors)
    said = pytest.raises(AssertionError, match="arm a trains as the baseline does")
    with said if broken else nullcontext():
        law(SimpleNamespace(baseline=baseline, arms={"a": arm}))
    with pytest.raises(AssertionError, match="no arm of the experiment sets a field"):
        law(SimpleNamespace(baseline=baseline, arms={}))


@pytest.mark.parametrize(("leak", "sees"), [(0.0, False), (1e-7, False), (1e-3, True)])
def test_a_small_leak_from_later_positions_is_seen_and_a_rounding_is_none(leak, sees):
    trained = object.__new__(Trained)
    trained.val = (torch.zeros(1, SEQ_LEN, dtype=torch.int64),)
    trained.logits = lambda ids: leak * ids[0, -1] * torch.ones(1, SEQ_LEN, 3)
    assert trained.sees_the_future() is sees


def test_the_laws_are_asked_of_every_arm_that_a_plug_in_is_on_in(tmp_path):
    ideas = Path(__file__).resolve().parents[3] / "experiments" / "ideas"
    subject = Subject(ideas / "z_loss.yaml", tmp_path)
    assert subject.arms and subject.configs.keys() == subject.arms.keys()
    assert "baseline" not in subject.arms
    for trained in (subject.baseline, *subject.arms.values()):
        assert trained.losses.shape == (UPDATES,) and len(trained.batches) == UPDATES + 1
        steps = trained.core.config.schedule.steps
        assert len(trained.factors()) == steps and trained.factors()[0] == 1.0
    trains_again = ("off_is_the_preset", "the_same_seed_is_the_same_run")
    for law in LAWS.keys() - {*trains_again}:
        LAWS[law](subject)
