"""The clean copy that a trainer's run works in, and what is told of its machine."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.foreign.command import ForeignTrainer, command_of, placeholders
from harness.foreign.linked_data import link_data
from harness.provenance import interpreters
from harness.provenance.code import Code
from harness.provenance.machine import describe_environment
from harness.run.document import Content
from harness.run.spec import RunSpec
from harness.store.attempt import RunWriter


def clean_copy(code: Code, data: Mapping[str, str], folder: Path) -> None:
    """The trainer's code alone, data as links; data: place in it -> path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code.write(folder)
    link_data(data, folder)


def copy_of(out: RunWriter) -> Path:
    """Where an attempt's clean copy lies while it runs."""
    return out.folder / "copy"


def environment_of(spec: RunSpec, copy: Path) -> Content:
    """environment.json: this machine's, with the versions and the command of the trainer."""
    trainer = ForeignTrainer.of_run(spec)
    command = command_of(trainer, placeholders(trainer, seed=spec.seed, copy=copy))
    described = describe_environment(shlex.join(command)).to_json()
    versions = dict(interpreters.lock_of(trainer.environment).versions)
    if trainer.environment:
        described["packages"] = []
        described["python"] = versions.get("python")
    described["lock"] = versions
    described["torch"] = versions.get("torch")
    described["trainer"] = trainer.to_mapping()
    return described
