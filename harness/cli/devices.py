"""The device of an experiment: part of its plan, and another one is taken only where asked for."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.run.document import Content

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.run.plan import Plan

DEVICES = ("cpu", "cuda")
KEY = "device"  # of --set


def asked_device(overrides: Content, device: str | None) -> str | None:
    """What --set device= says, taken out of the overrides. device: what the executor says."""
    asked = overrides.pop(KEY, None)
    if asked is None:
        return device
    if asked not in DEVICES:
        raise UserError(f"--set device={asked}: must be {' or '.join(DEVICES)}")
    if device not in (None, asked):
        raise UserError(
            f"--set device={asked}: cluster.yaml says {device}: change it there, or leave this out"
        )
    return str(asked)


def sets_device(settings: Sequence[str] | None) -> bool:
    """Whether --set says the device."""
    return any(setting.partition("=")[0].strip() == KEY for setting in settings or ())


def device_of_plan(plan: "Plan", results: Path) -> str | None:
    """What an experiment was planned for; older plans do not say it, but their runs do."""
    from harness.run.read import read_config

    if plan.device is not None:
        return plan.device
    for run in plan.runs:
        with suppress(OSError, ValueError):  # it has none, or a damaged one: another tells
            return str(read_config(results / "runs" / run.run_id).get(KEY))
    return None


def planned_device(name: str, results: Path) -> str | None:
    """What an experiment in the results folder was planned for; None where it is not there."""
    from harness.store.plans import read_plan

    plan = read_plan(results, name)
    return None if plan is None else device_of_plan(plan, results)


def refuse_other_device(e: "Experiment", results: Path, settings: Sequence[str] | None) -> None:
    """Raises UserError where the experiment was planned for another device, and nobody asks."""
    if sets_device(settings):
        return
    for name in dict.fromkeys((e.name, e.grid.name if e.grid else e.name)):
        planned = planned_device(name, results)
        if planned in DEVICES and planned != e.device:
            raise UserError(
                f"experiment '{name}' was planned on {planned}, and this call would plan it anew "
                f"on {e.device}: {_cure(str(planned))}, or ask for it with --set device={e.device}"
            )


def _cure(planned: str) -> str:
    if planned == "cuda":
        return "see why nvidia-smi shows no GPU here"
    return "hide the GPUs (CUDA_VISIBLE_DEVICES=)"
