"""What is asked of a foreign trainer, and how it is started: checked before anything runs."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from harness.errors import UserError
from harness.foreign.own_logs import check_pattern
from harness.node.slots import Slot
from harness.provenance import interpreters
from harness.provenance.code import Code
from harness.provenance.interpreters import check_braces, fill
from harness.run.document import Content, Document
from harness.run.foreign import TrainerSpec
from harness.run.readings import Readings
from harness.run.spec import RunSpec
from harness.runner.process import TORCHRUN_VARIABLES

COMMAND = "torchrun --standalone --nproc-per-node {gpus} {script}"
# the environment's own Python -> what its interpreter is told
PYTHON = {"python": (), "python3": (), "torchrun": ("-m", "torch.distributed.run")}
OTHER_PYTHON = re.compile(r"(?:.*/)?(python[\d.]*|torchrun)")
OF_A_SHELL = ("|", "||", "&&", ";", "&", "<", ">", ">>", "2>", "2>&1", "&>")


@dataclass(frozen=True, kw_only=True)
class ForeignTrainer:
    """What is asked of a foreign trainer: `trainer` in a run's configuration and identity."""

    command: str
    script: str  # its path in the clean copy
    args: tuple[str, ...]
    env: Mapping[str, str]
    patches: tuple[str, ...]  # their file names
    data: Mapping[str, str]  # place in the clean copy -> path
    gpus: int
    # {python: PATH} or {container: COMMAND}; empty: this environment
    environment: Mapping[str, str]
    log: str | None = None  # pattern of the log files that it writes itself
    readings: Readings | None = None  # None: the benchmark's lines alone

    @classmethod
    def of(cls, spec: TrainerSpec) -> Self:
        """What a trainer that was written so asks for."""
        return cls(
            command=spec.command,
            script=spec.script_name,
            args=spec.args,
            env=spec.env,
            patches=tuple(patch.name for patch in spec.patches),
            data=spec.data,
            gpus=spec.gpus,
            environment=spec.environment,
            log=spec.log,
            readings=spec.readings,
        )

    @classmethod
    def of_run(cls, spec: RunSpec) -> Self:
        """What a run was asked for."""
        content: Document = spec.config["trainer"]
        given = {**content, "args": tuple(content["args"]), "patches": tuple(content["patches"])}
        if "readings" in given:
            given["readings"] = Readings.from_mapping(given["readings"])
        return cls(**given)

    def to_mapping(self) -> Content:
        """As a run's configuration holds it."""
        content = {**asdict(self), "args": list(self.args), "patches": list(self.patches)}
        if self.log is None:
            del content["log"]  # runs keep their names
        del content["readings"]
        if self.readings is not None:
            content["readings"] = self.readings.to_mapping()
        return content

    @property
    def container(self) -> str:
        """The words in front of the command, empty where there are none."""
        return self.environment.get("container", "")

    @property
    def seeded(self) -> bool:
        """Whether the script is told its seed; else its runs share no number with other arms'."""
        return interpreters.asks_for(
            "seed", self.command, *self.args, *self.env.values(), self.container
        )


def placeholders(trainer: ForeignTrainer, *, seed: int, copy: Path) -> Mapping[str, object]:
    """What the placeholders stand for in a run of this seed whose clean copy lies at `copy`."""
    return {
        "script": trainer.script,
        "gpus": max(1, trainer.gpus),
        "seed": seed,
        "copy": copy.absolute(),
    }


def command_of(trainer: ForeignTrainer, values: Mapping[str, object]) -> list[str]:
    """The words of the command as it is started, those of a container in front."""
    program, *arguments = [
        fill(word, values) for word in (*shlex.split(trainer.command), *trainer.args)
    ]
    if program in PYTHON:
        python = interpreters.start_of(trainer.environment, values)
        return [*python, *PYTHON[program], *arguments]
    return [*interpreters.prefix(trainer.environment, values), program, *arguments]


def variables_of(
    trainer: ForeignTrainer, slot: Slot, values: Mapping[str, object]
) -> dict[str, str]:
    """The command's environment variables: ours, this run's devices, then the trainer's own."""
    variables = dict(os.environ)
    for name in TORCHRUN_VARIABLES:
        variables.pop(name, None)
    if not trainer.gpus:
        variables.setdefault("OMP_NUM_THREADS", str(slot.threads))
    variables |= slot.variables
    variables["PYTHONUNBUFFERED"] = "1"
    variables["PATH"] = interpreters.search_path(trainer.environment)
    for name, text in trainer.env.items():
        variables[name] = fill(text, values)
    return variables


# ---------------------------------------------------------------- checks


def check_start(trainer: ForeignTrainer, code: Code, *, where: str) -> None:
    """Raises UserError for a command that cannot be started or would not do what it says."""
    _check_placeholders(trainer, where)
    program = _program_of(trainer.command, where)
    if program not in PYTHON and "container" not in trainer.environment:
        _check_program(program, trainer, code, where)
    _check_torch(program, trainer, code, where)
    if trainer.log is not None:
        check_pattern(trainer.log, f"{where}: log")


def check_command(command: str, script: str, *, where: str) -> None:
    """Raises UserError for words that start nothing, or not the script of an arm.

    script: its file name."""
    check_braces(command, where)
    _program_of(command, where)
    named = {Path(word).name for word in re.findall(r"[\w./-]+", command)}
    if not re.search(r"(?<!{){script}(?!})", command) and not {script, Path(script).stem} & named:
        raise UserError(
            f"{where}: {command} does not start the script, so that all arms would be one: "
            "write {script} where its name belongs"
        )


def _program_of(command: str, where: str) -> str:
    """What a command starts; raises UserError where that is nothing, a shell's or a Python's."""
    try:
        parts = shlex.split(command)
    except ValueError:
        raise UserError(f"{where}: the command has a quote that is not closed: {command}") from None
    if not parts:
        raise UserError(f"{where}: the command is empty: leave it out for {COMMAND}")
    _check_no_shell(parts, where)
    program = parts[0]
    if program not in PYTHON:
        _check_no_other_python(program, where)
    return program


def _check_placeholders(trainer: ForeignTrainer, where: str) -> None:
    check_braces(trainer.command, f"{where}: the command")
    check_braces(trainer.container, f"{where}: the container")
    for argument in trainer.args:
        check_braces(argument, f"{where}: argument {argument}")
    for name, text in trainer.env.items():
        check_braces(text, f"{where}: variable {name}")


def _check_no_shell(parts: list[str], where: str) -> None:
    of_a_shell = [word for word in parts if word in OF_A_SHELL]
    if "=" in parts[0]:
        of_a_shell.append(parts[0])
    if of_a_shell:
        raise UserError(
            f"{where}: '{of_a_shell[0]}' in the command needs a shell, and none reads it: "
            "start one with bash -c 'COMMAND'; env (--env) sets variables"
        )


def _check_no_other_python(program: str, where: str) -> None:
    """A Python that is not the environment's own would run versions that nobody asked."""
    other = OTHER_PYTHON.fullmatch(program)
    if other is not None:
        name = other[1].rstrip(".0123456789")
        raise UserError(
            f"{where}: the command starts {program}, whose versions would not be recorded: "
            f"write {name}, and name its interpreter as environment (--python PATH)"
        )


def _check_program(program: str, trainer: ForeignTrainer, code: Code, where: str) -> None:
    if "/" in program and not os.path.isabs(program):
        if os.path.normpath(program) not in code.files:
            raise UserError(
                f"{where}: the command starts {program}, which is not in the clean copy: "
                "add it with `with` (--with)"
            )
        return
    if "{" in program:
        return
    path = trainer.env.get("PATH", interpreters.search_path(trainer.environment))
    if shutil.which(program, path=path) is None:
        raise UserError(
            f"{where}: the command starts {program}: no such program: install it, or give its path"
        )


def _check_torch(program: str, trainer: ForeignTrainer, code: Code, where: str) -> None:
    if program == "torchrun":
        needs = "torchrun"
    elif code.imports("torch"):
        needs = code.script
    else:
        return
    if "torch" not in interpreters.lock_of(trainer.environment).versions:
        python = shlex.join(interpreters.start_of(trainer.environment))
        raise UserError(
            f"{where}: {python} has no torch, which {needs} needs: "
            "install it there, or name another environment"
        )
