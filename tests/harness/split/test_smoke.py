"""Two steps of every arm: what fails gets what it needs, what does nothing is called so, nothing is left behind."""

import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from harness.errors import UserError
from harness.foreign.command import ForeignTrainer
from harness.foreign.smoke_steps import SmokeLimits, StepTaker, memory_of
from harness.node.slots import Slot
from harness.split.groups import ChangeGroup, merged_circles, take_apart
from harness.split.smoke import MOST_TRIES, Smoke, TwoSteps, in_words, smoke
from harness.split.source import normal
from tests.foreign_bench import ablate

OLD = """\
import os
width = 4
size = 4
rate = 1
for step in range(9):
    assert width == size, "sizes differ"
    print(f"step:{step}/9 train_loss:{3 - step * rate / 10:.4f} train_time:{step}ms")
"""
NEW = (
    OLD.replace("width = 4", "width = 8")
    .replace("size = 4", "size = 8")
    .replace("rate = 1", "rate = 2")
)
NEW = NEW.replace("import os", "import os\nlate = step = 0")


def executed(text: str) -> TwoSteps:
    """What a variant of the scripts does, by its own values."""
    values: dict[str, int] = {}
    exec(text.split("for step")[0], values)
    if values["width"] != values["size"]:
        return TwoSteps(reason="AssertionError: sizes differ", steps=0)
    return TwoSteps(reason=None, steps=2, losses=(3.0, float(values["rate"])))


def smoked(old: str, new: str, take: Callable[[str], TwoSteps] = executed) -> Smoke:
    old, new = normal(old, where="OLD"), normal(new, where="NEW")
    return smoke(take_apart(old, new), old, new, take, lambda line: None)


def test_groups_that_fail_without_each_other_are_one_and_what_does_nothing_is_called_so() -> None:
    found = smoked(OLD, NEW)
    assert not found.failed
    assert (found.passed_at_first, len(found.first)) == (4, 8)
    assert {group.name for group in found.parts.groups} == {"late", "width", "rate"}
    assert [in_words(need) for need in found.found] == [
        "width and size are one group now (atom 2): AssertionError: sizes differ"
    ]
    same = {arm.arm: arm.same_as for arm in found.arms}
    assert same["width alone"] == "OLD"
    assert same["all but width"] == "NEW"
    assert same["rate alone"] == "NEW"
    assert found.repeats


def test_a_need_in_one_direction_names_the_atom_that_is_lacking() -> None:
    def take(text: str) -> TwoSteps:
        fails = "use = 1" in text and "made = 1" not in text
        return TwoSteps(reason="NameError: made" if fails else None, steps=2, losses=(1.0,))

    old = "use = 0\nmade = 0\nother = 0\nfor x in [1]:\n    print(use, made, other)\n"
    found = smoked(old, old.replace("0", "1"), take)
    needs = {group.name: group.needs for group in found.parts.groups}
    assert needs == {"use": ("made",), "made": (), "other": ()}
    assert [(need.group, need.needs, need.atoms) for need in found.found] == [
        ("use", ("made",), (1,))
    ]


@pytest.mark.parametrize(
    ("limit", "is_found"), [(MOST_TRIES, True), (2, True), (1, False), (0, False)]
)
def test_of_a_need_with_several_atoms_those_that_are_lacking_are_named_unless_it_takes_long(
    limit: int, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name and what asks for it are one group, of which the name is what lacks."""

    def take(text: str) -> TwoSteps:
        fails = "use = 1" in text and "make(3)" not in text
        return TwoSteps(reason="TypeError: k" if fails else None, steps=2, losses=(1.0,))

    monkeypatch.setattr("harness.split.smoke.MOST_TRIES", limit)
    old = "use = 0\nprint(use)\n"
    found = smoked(old, f"k = make(3)\n{old.replace('0', '1')}other(k)\n", take)
    [need] = found.found
    assert (need.group, need.needs, need.reason) == ("use", ("k",), "TypeError: k")
    assert need.atoms == ((0,) if is_found else (0, 2))
    assert ("(atom 0)" if is_found else "(atoms 0, 2)") in in_words(need)


def test_a_neutral_part_without_which_the_baseline_fails_is_a_change() -> None:
    def take(text: str) -> TwoSteps:
        fails = "import new" in text and "size = 2" not in text
        return TwoSteps(reason="ImportError" if fails else None, steps=2, losses=(1.0,))

    old = "import os\nimport sys\nsize = 1\nfor x in [1]:\n    print(size, os, sys)\n"
    found = smoked(
        old, old.replace("import os", "import os\nimport new").replace("1", "2", 1), take
    )
    by_name = {group.name: group for group in found.parts.groups}
    [imported] = [group for group in by_name.values() if group.kind == "learning" and group.needs]
    assert imported.needs == ("size",)
    assert not found.failed


def test_an_arm_that_the_static_check_refuses_took_no_step_and_no_time() -> None:
    """A name that is global in one part, and asked for in another function by the next."""
    old = "def f():\n    return 1\n\ndef g():\n    return 2\n\nf()\ng()\n"
    new = old.replace("return 1", "global k\n    k = 3\n    return 1").replace(
        "return 2", "return k"
    )
    took = TwoSteps(reason=None, steps=2, losses=(1.0,), seconds=1.5)
    found = smoked(old, new, lambda text: took)
    refused = [arm.outcome for arm in found.first if arm.outcome.reason is not None]
    assert refused
    for outcome in refused:
        assert "is given nowhere" in (outcome.reason or "")
        assert (outcome.steps, outcome.seconds, outcome.losses) == (0, 0.0, ())
    assert {arm.outcome for arm in found.first} == {took, *refused} and not found.failed


def test_what_never_repeats_has_no_arm_without_effect() -> None:
    n = iter(range(1000))
    found = smoked(OLD, NEW, lambda text: TwoSteps(reason=None, steps=2, losses=(next(n),)))
    assert not found.repeats
    assert {arm.same_as for arm in found.arms} == {None}


@pytest.mark.parametrize(("parent", "rate"), [("OLD", 1), ("NEW", 2)])
def test_a_parent_that_fails_ends_it(
    parent: str, rate: int, kept_line: Callable[[str], None]
) -> None:
    def take(text: str) -> TwoSteps:
        return TwoSteps(reason="no such device" if f"rate = {rate}" in text else None, steps=2)

    said = f"{parent}: does not take two steps: no such device"
    with pytest.raises(UserError, match=said) as error:
        smoked(OLD, NEW, take)
    kept_line(str(error.value))


def test_groups_in_a_circle_are_one() -> None:
    parts = take_apart("a = 0\nb = 0\nc = 0\nf(a, b, c)\n", "a = 1\nb = 1\nc = 1\nf(a, b, c)\n")
    needs = {"a": ("b",), "b": ("a",), "c": ("a", "b")}
    groups = []
    for group in parts.groups:
        fields = {**vars(group), "needs": needs[group.name]}
        groups.append(ChangeGroup(**fields))
    merged = merged_circles(type(parts)(**{**vars(parts), "groups": tuple(groups)}))
    assert [(g.name, len(g.atoms), g.needs) for g in merged.groups] == [
        ("a", 2, ()),
        ("c", 1, ("a",)),
    ]
    assert merged_circles(parts) is parts


# ---------------------------------------------------------------- real processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(OLD)
    Path("new.py").write_text(NEW.replace("rate = 2", "rate = 1"))
    assert (
        ablate(
            "split",
            "old.py",
            "new.py",
            "-o",
            "parts",
            "--command",
            "python {script}",
            "--gpus-per-run",
            0,
        )
        == 0
    )
    return tmp_path / "parts"


def test_a_folder_is_mended_and_what_passed_is_not_run_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("split", "--smoke", folder, "--json") == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["smoke"]["passed"] == len(told["smoke"]["arms"])
    assert told["smoke"]["first"] == {"passed": 2, "arms": 6}
    assert told["smoke"]["old"]["losses"][:2] == [3.0, 2.9]
    assert json.loads((folder / "smoke.json").read_text())["smoke"] == told["smoke"]
    assert {group["group"] for group in told["groups"]} == {"late", "width"}
    assert "found: width and size are one group now" in said.err
    assert yaml.safe_load((folder / "changes.yaml").read_text())["groups"].keys() == {
        "late",
        "width",
    }
    assert "size" in yaml.safe_load((folder / "changes.yaml.1").read_text())["groups"]
    assert not (folder / "patches/size.patch").exists()
    assert ablate("split", "--check", folder) == 0
    capsys.readouterr()
    assert ablate("split", "--smoke", folder) == 0
    again = capsys.readouterr()
    assert "arm 1" not in again.err
    assert "before anything was found" not in again.out
    assert "no effect: as " in again.out
    assert not (folder / "changes.yaml.2").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--smoke-command", "python -c 'import nowhere'"), "No module named 'nowhere'"),
        (("--smoke-command", "python -c 'x = 1'"), "it ended without a step"),
        (("--smoke-command", "python -c 'import time; time.sleep(60)'", "--smoke-limit", 1), "longer than its limit of 1 s"),
        (("--smoke-command", "python -c 'import time; time.sleep(60)'", "--smoke-memory", 0.001), "more memory than its limit"),
        (("--smoke-command", "nowhere {script}"), "no such program"),
        (("--smoke-env", "A"), "--smoke-env A: write NAME=VALUE"),
        (("--check", "parts"), "leave --check out"),
    ],
)  # fmt: skip
def test_what_cannot_be_smoked_gets_a_line(
    words: tuple[object, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "changes.yaml").read_text()
    capsys.readouterr()
    assert ablate("split", "--smoke", folder, *words) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("arm ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert (folder / "changes.yaml").read_text() == before


def test_a_smoke_has_the_variables_and_the_limits_that_are_asked_for_or_else_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    class Taker:
        def __init__(self, **how: Any) -> None:
            asked.append(how)
            self.trainer, self.modules = how["trainer"], how["modules"]

        def take(self, text: str) -> TwoSteps:
            return TwoSteps(reason=None, steps=2, losses=(float(len(text)),))

    free = SimpleNamespace(available=10 * 2**30)
    monkeypatch.setattr("harness.foreign.smoke_steps.StepTaker", Taker)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr("harness.node.slots.find_gpus", lambda: ["3", "4"])
    monkeypatch.setattr("harness.node.slots.find_cpus", lambda: 6)
    assert ablate("split", "--smoke", folder) == 0
    more = ("--smoke-env", "A=1", "--smoke-env", "B=x=y", "--smoke-limit", 7, "--smoke-memory", 2)
    assert ablate("split", "--smoke", folder, *more) == 0
    first, second = asked
    assert first["limits"] == SmokeLimits(wall_s=600.0, memory_mib=8192.0)
    assert second["limits"] == SmokeLimits(wall_s=7.0, memory_mib=2048.0)
    assert first["slot"] == Slot(held=(), gpus=(), threads=6), "a run on no GPU sees none"
    env = first["trainer"].env
    assert second["trainer"].env == {**env, "A": "1", "B": "x=y"}
    assert ablate("split", "--smoke", folder, "--smoke-env", "=1") == 2
    content = yaml.safe_load((folder / "experiment.yaml").read_text())
    content["trainer"]["gpus"] = 2
    (folder / "experiment.yaml").write_text(yaml.safe_dump(content))
    assert ablate("split", "--smoke", folder) == 0
    assert asked[-1]["slot"] == Slot(held=("3",), gpus=("3",), threads=6)
    assert asked[-1]["trainer"].gpus == 1, "one is enough for two steps"


TRAINED = """\
import torch

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(1000):
    loss = net(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
raise SystemExit("it was not ended after two steps")
"""
OWN_OPTIMIZER = """\
import torch

net = torch.nn.Linear(4, 1)
for step in range(1000):
    (net(torch.ones(2, 4)).square().mean() / 0.5).backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.01 * p.grad
    net.zero_grad()
raise SystemExit("it was not ended after two steps")
"""


LIMIT_S = 200.0


def step_taker() -> StepTaker:
    trainer = ForeignTrainer(
        command="python {script}", script="train.py", args=(), env={}, patches=(), data={}, gpus=0, environment={}
    )  # fmt: skip
    limits = SmokeLimits(wall_s=LIMIT_S, memory_mib=1e6)
    modules = {"lib/data.py": b"", "lib/net.py": b""}
    return StepTaker(trainer=trainer, modules=modules, slot=Slot(held=(), threads=1), limits=limits)


AT_ONCE = 'print("".join(f"step:{n}/9 train_loss:{9 - n} train_time:1ms\\n" for n in range(9)))\n'
TO_TWO = AT_ONCE.replace("range(9)", "range(3)") + "import time\ntime.sleep(1000)\n"


def test_losses_printed_after_two_steps_do_not_count_however_quickly_they_come() -> None:
    taker = step_taker()
    waits = taker.take(TO_TWO)
    assert taker.take(AT_ONCE).losses == waits.losses == (9.0, 8.0, 7.0)
    assert waits.seconds < LIMIT_S  # its second step ended it


def test_a_script_that_prints_no_step_took_none_and_its_last_words_are_why() -> None:
    outcome = step_taker().take("raise SystemExit('no such file: tokens.bin')\n")
    assert (outcome.steps, outcome.losses) == (0, ())
    assert "no such file: tokens.bin" in (outcome.reason or "")


def test_a_loss_that_is_no_number_is_no_step() -> None:
    outcome = step_taker().take(AT_ONCE.replace("{9 - n}", "nan"))
    assert outcome.reason == "its loss or its gradients are not finite within two steps"
    assert outcome.steps == 2 and math.isnan(outcome.losses[0])


def test_the_memory_of_a_script_is_that_of_all_under_it() -> None:
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; true'; true"]) as outer:
        process = psutil.Process(outer.pid)
        while len(process.children(recursive=True)) < 2:
            time.sleep(0.01)
        inner, sleep = process.children(recursive=True)
        both = (inner.memory_info().rss + sleep.memory_info().rss) / 2**20
        assert memory_of(process) == pytest.approx(both, rel=0.2)
        assert memory_of(process) > inner.memory_info().rss / 2**20
        # the last one first would let the others end by themselves
        for one in (process, inner, sleep):
            one.kill()
    assert memory_of(process) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("text", "n_norms"), [(TRAINED, 2), (OWN_OPTIMIZER, 0)])
def test_torch_is_watched_from_inside_and_ended_after_two_steps(text: str, n_norms: int) -> None:
    taker = step_taker()
    outcome = taker.take(text)
    assert outcome.reason is None
    assert outcome.steps == 2
    assert len(outcome.losses) == 3
    assert outcome.losses[2] < outcome.losses[0]
    assert len(outcome.norms) == n_norms
    assert taker.take(text).measured == outcome.measured
