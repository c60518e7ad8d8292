"""How a foreign trainer is started: the words of its command and its variables, checked before anything runs."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import UserError
from harness.node.slots import Slot
from harness.provenance import interpreters
from harness.provenance.code import Code
from harness.provenance.interpreters import check_braces, fill
from harness.run.spec import RunSpec
from harness.runner.process import TORCHRUN_VARIABLES

COMMAND = "torchrun --standalone --nproc-per-node {gpus} {script}"
PYTHON = {"python": (), "python3": (), "torchrun": ("-m", "torch.distributed.run")}  # the environment's own
OTHER_PYTHON = re.compile(r"(?:.*/)?(python[\d.]*|torchrun)")
OF_A_SHELL = ("|", "||", "&&", ";", "&", "<", ">", ">>", "2>", "2>&1", "&>")


def values_of(spec: RunSpec, copy: Path) -> dict[str, object]:
    """What the placeholders stand for in a run whose clean copy lies at `copy`."""
    trainer = spec.config["trainer"]
    return {"script": trainer["script"], "gpus": max(1, trainer["gpus"]), "seed": spec.seed, "copy": copy.absolute()}


def command_of(spec: RunSpec, copy: Path) -> list[str]:
    """The words of the command as it is started, those of a container in front."""
    trainer, values = spec.config["trainer"], values_of(spec, copy)
    first, *rest = (fill(word, values) for word in (*shlex.split(trainer["command"]), *trainer["args"]))
    if first in PYTHON:
        return [*interpreters.start_of(trainer["environment"], values), *PYTHON[first], *rest]
    return [*interpreters.prefix(trainer["environment"], values), first, *rest]


def variables_of(spec: RunSpec, slot: Slot, copy: Path) -> dict[str, str]:
    """The environment variables of the command: ours, this run's devices, then what the trainer asks for."""
    trainer, values = spec.config["trainer"], values_of(spec, copy)
    inherited = {k: v for k, v in os.environ.items() if k not in TORCHRUN_VARIABLES}
    on_cpu = {"OMP_NUM_THREADS": str(slot.threads)} if not trainer["gpus"] and "OMP_NUM_THREADS" not in inherited else {}
    return {
        **inherited,
        **on_cpu,
        "CUDA_VISIBLE_DEVICES": ",".join(slot.gpus),
        "PYTHONUNBUFFERED": "1",
        "PATH": interpreters.search_path(trainer["environment"]),
        **{k: fill(v, values) for k, v in trainer["env"].items()},
    }


def check_start(
    command: str, args: Sequence[str], env: Mapping[str, str], environment: Mapping[str, str], code: Code, *, where: str
) -> None:
    """Raises UserError, in one line, for a command that cannot be started or would not do what it says."""
    texts = [("the command", command), ("the container", environment.get("container", ""))]
    for place, text in (*texts, *((f"argument {a}", a) for a in args), *((f"variable {k}", v) for k, v in env.items())):
        check_braces(text, f"{where}: {place}")
    try:
        words = shlex.split(command)
    except ValueError:
        raise UserError(f"{where}: the command has a quote that is not closed: {command}") from None
    if not words:
        raise UserError(f"{where}: the command is empty: leave it out for {COMMAND}")
    program = words[0]
    if alien := next((w for w in words if w in OF_A_SHELL), program if "=" in program else None):
        raise UserError(
            f"{where}: '{alien}' in the command needs a shell, and none reads it: start one with bash -c 'COMMAND'; env (--env) "
            "sets variables"
        )
    if program not in PYTHON and (other := OTHER_PYTHON.fullmatch(program)):
        raise UserError(
            f"{where}: the command starts {program}, whose versions would not be recorded: write "
            f"{other[1].rstrip('.0123456789')}, and name its interpreter as environment (--python PATH)"
        )
    if program not in PYTHON and "container" not in environment:
        _check_program(program, env.get("PATH", interpreters.search_path(environment)), code, where)
    needs = "torchrun" if program == "torchrun" else code.script if code.imports("torch") else None
    if needs and "torch" not in interpreters.lock_of(environment).versions:
        started = shlex.join(interpreters.start_of(environment))
        raise UserError(f"{where}: {started} has no torch, which {needs} needs: install it there, or name another environment")


def _check_program(program: str, path: str, code: Code, where: str) -> None:
    if "/" in program and not os.path.isabs(program):
        if os.path.normpath(program) not in code.files:
            raise UserError(f"{where}: the command starts {program}, which is not in the clean copy: add it with `with` (--with)")
    elif "{" not in program and shutil.which(program, path=path) is None:
        raise UserError(f"{where}: the command starts {program}: no such program: install it, or give its path")
