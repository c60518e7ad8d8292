"""Two real steps of every arm between our own plain scripts: in forks of a process that has torch."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
import torch

from harness.foreign import smoke_hook
from harness.foreign.command import ForeignTrainer
from harness.foreign.smoke_steps import SmokeLimits, StepTaker
from harness.node.slots import Slot
from harness.split.groups import take_apart
from harness.split.smoke import TwoSteps, smoke
from harness.split.source import normal
from tests import small_plain

ROOT = Path(__file__).resolve().parents[3]


def plain(name: str) -> str:
    return normal((ROOT / f"benchmarks/{name}_plain.py").read_text(encoding="utf-8"), where=name)


def forked(text: str, folder: Path) -> TwoSteps:
    """Two steps of a plain script, small, watched as `--smoke` watches them."""
    script, told = folder / "train.py", folder / "told.jsonl"
    script.write_text(text)
    told.unlink(missing_ok=True)
    pid = os.fork()
    if not pid:
        try:
            torch.set_num_threads(1)
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            smoke_hook.Watch(torch, str(told)).install()
            small_plain.main(str(script))
        except BaseException as error:  # whatever a variant does
            told.write_text(json.dumps({"error": repr(error)}))
        os._exit(1)
    os.waitpid(pid, 0)
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    steps = max((line["steps"] for line in lines if "steps" in line), default=0)
    reason = next((line["error"] for line in lines if "error" in line), None)
    if reason is None and steps < smoke_hook.STEPS:
        reason = "it took no two steps"
    return TwoSteps(
        reason=reason,
        steps=steps,
        losses=tuple(line["loss"] for line in lines if "loss" in line),
        norms=tuple(norm for line in lines for norm in line.get("norms", ())),
    )


@pytest.mark.slow
@pytest.mark.long
def test_nine_tenths_of_the_arms_between_two_records_take_two_steps(tmp_path: Path) -> None:
    net = torch.nn.Linear(1, 1)  # what an optimizer imports at its first step, once for all forks
    net(torch.ones(1, 1)).sum().backward()
    torch.optim.Adam(net.parameters(), fused=True).step()
    old, new = plain("r08"), plain("r18")
    found = smoke(
        take_apart(old, new), old, new, lambda text: forked(text, tmp_path), lambda line: None
    )
    assert found.repeats
    assert found.old.norms != found.new.norms
    assert len(found.arms) >= 40
    assert len(found.failed) <= 0.1 * len(found.arms), [
        (arm.arm, arm.outcome.reason) for arm in found.failed
    ]


@pytest.mark.slow
def test_a_record_takes_two_small_steps_by_a_command_and_an_environment() -> None:
    shim = Path(small_plain.__file__).absolute()
    trainer = ForeignTrainer(
        command=f"{shlex.quote(sys.executable)} {shlex.quote(str(shim))} {{script}}",
        script="train.py", args=(), env={"SMALL": f"{small_plain.SIZES} n_layer=2"}, patches=(), data={}, gpus=0, environment={},
    )  # fmt: skip
    limits = SmokeLimits(wall_s=300, memory_mib=1e6)
    taker = StepTaker(trainer=trainer, modules={}, slot=Slot(held=(), threads=1), limits=limits)
    outcome = taker.take(plain("r18"))
    assert (outcome.reason, outcome.steps, len(outcome.norms)) == (None, 2, 2)
