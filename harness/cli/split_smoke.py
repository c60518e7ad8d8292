"""`ablate split --smoke`: two real steps of every arm of a folder."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.split_options import LIMIT_S, SplitOptions
from harness.cli.table import print_table
from harness.errors import UserError
from harness.run.document import Content

if TYPE_CHECKING:
    from harness.foreign.command import ForeignTrainer
    from harness.foreign.smoke_steps import StepTaker
    from harness.split.folder import Folder
    from harness.split.smoke import Smoke, TwoSteps

FREE_SHARE = 0.8
MIB_OF_GIB = 1024
EXPERIMENT = "experiment.yaml"
SHOWN = 3  # losses of an arm


@dataclass(frozen=True, kw_only=True)
class Smoked:
    """A folder after its smoke."""

    folder: "Folder"
    smoke: "Smoke"
    kept: Path | None  # changes.yaml as it was, where it was changed

    @property
    def code(self) -> int:
        """The exit code."""
        return 1 if self.smoke.failed else 0

    def to_mapping(self) -> Content:
        from harness.split.smoked import smoke_mapping

        return smoke_mapping(self.smoke)

    def tell(self, options: SplitOptions) -> None:
        """What every arm did, and what became of the groups."""
        from harness.split.smoke import in_words

        if options.json:
            return
        smoke = self.smoke
        rows = [_row("OLD", smoke.old, ""), _row("NEW", smoke.new, "")]
        for arm in smoke.arms:
            said = f"no effect: as {arm.same_as}" if arm.same_as else ""
            rows.append(_row(arm.arm, arm.outcome, arm.outcome.reason or said))
        print_table(rows)
        if not smoke.repeats:
            print("OLD did something else when it ran again: what has no effect cannot be told")
        for need in smoke.found:
            print(f"found: {in_words(need)}")
        if self.kept is not None:
            print(f"{self.folder.path}: changes.yaml has what was found; as it was: {self.kept}")
        before = ""
        if smoke.found:
            n_first = len(smoke.first)
            before = f"; {smoke.passed_at_first} of {n_first} before anything was found"
        n_passed = len(smoke.arms) - len(smoke.failed)
        print(f"{n_passed} of {len(smoke.arms)} arms took two steps{before}")


def smoke_folder(folder: "Folder", options: SplitOptions) -> Smoked:
    """Let every arm take two steps; raises UserError where a parent cannot."""
    from harness.split.smoke import smoke
    from harness.split.smoked import KeptSteps, smoke_mapping, with_found

    taker = _taker(folder, options)
    asked = {
        "trainer": taker.trainer.to_mapping(),
        "modules": {name: content.hex() for name, content in taker.modules.items()},
        "versions": _versions(taker.trainer),
    }
    n_taken = 0

    def take(text: str) -> "TwoSteps":
        nonlocal n_taken
        outcome = taker.take(text)
        n_taken += 1
        said = outcome.reason or f"{outcome.steps} steps"
        print(f"arm {n_taken}: {said}, {outcome.seconds:.0f} s", file=sys.stderr)
        return outcome

    kept_steps = KeptSteps(folder.path, take, asked=asked)
    result = smoke(
        folder.parts,
        folder.old,
        folder.new,
        kept_steps.steps,
        lambda line: print(f"found: {line}", file=sys.stderr),
    )
    new, kept = with_found(folder, result)
    kept_steps.last = smoke_mapping(result)
    kept_steps.write()
    return Smoked(folder=new, smoke=result, kept=kept)


def _taker(folder: "Folder", options: SplitOptions) -> "StepTaker":
    """How scripts are started: as the experiment says, but for what the user says."""
    import psutil

    from harness.foreign.command import ForeignTrainer, check_start
    from harness.foreign.experiment import read_trainer
    from harness.foreign.smoke_steps import SmokeLimits, StepTaker
    from harness.node.slots import Slot, find_cpus, find_gpus
    from harness.provenance.code import Code

    trainer = ForeignTrainer.of(read_trainer(folder.path / EXPERIMENT))
    gpus = tuple(find_gpus()[:1]) if trainer.gpus else ()
    trainer = replace(
        trainer,
        script=folder.script,
        command=options.smoke_command or trainer.command,
        env={**trainer.env, **_variables(options)},
        gpus=len(gpus),
    )
    modules = dict(folder.modules())
    files = {**modules, folder.script: folder.new.encode()}
    check_start(trainer, Code(script=folder.script, files=files), where="--smoke")
    wall_s = LIMIT_S if options.smoke_limit is None else options.smoke_limit
    memory = psutil.virtual_memory().available / (1 << 20) * FREE_SHARE
    if options.smoke_memory is not None:
        memory = options.smoke_memory * MIB_OF_GIB
    return StepTaker(
        trainer=trainer,
        modules=modules,
        slot=Slot(held=gpus, gpus=gpus, threads=find_cpus()),
        limits=SmokeLimits(wall_s=wall_s, memory_mib=memory),
    )


def _variables(options: SplitOptions) -> dict[str, str]:
    """Those of --smoke-env."""
    variables = {}
    for given in options.smoke_env or ():
        name, equals, value = given.partition("=")
        if not equals or not name:
            raise UserError(f"--smoke-env {given}: write NAME=VALUE")
        variables[name] = value
    return variables


def _versions(trainer: "ForeignTrainer") -> str:
    """A digest of what is installed where it runs."""
    from harness.provenance import interpreters

    return interpreters.lock_of(trainer.environment).digest


def _row(arm: str, outcome: "TwoSteps", said: str) -> Content:
    return {
        "arm": arm,
        "steps": outcome.steps,
        "losses": " ".join(f"{loss:.5g}" for loss in outcome.losses[:SHOWN]) or "-",
        "gradients": " ".join(f"{norm:.3g}" for norm in outcome.norms) or "-",
        "seconds": f"{outcome.seconds:.1f}",
        "": said,
    }
