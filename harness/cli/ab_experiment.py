"""Two trainer scripts as an experiment: the two arms that a command line names."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.ab_options import AbOptions
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.foreign import TrainerSpec

MAX_NAME = 100  # characters of an experiment's name


def ab_experiment(options: AbOptions) -> "ForeignExperiment":
    """The experiment that compares two scripts; raises UserError where one is not to be had."""
    from harness.foreign.arm import make_arm
    from harness.foreign.collect import data_fingerprint
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.foreign import TrainerLimits
    from harness.run.plan import Target

    variables = _variables(options.env or [])
    written = [trainer_of(text, options, variables) for text in (options.old, options.new)]
    old_name, new_name = arm_names(options.old, options.new)
    old = make_arm(old_name, written[0], where=f"OLD {options.old}")
    new = make_arm(new_name, written[1], changes=("new",), baseline=old, where=f"NEW {options.new}")
    return ForeignExperiment(
        name=_experiment_name(options, old_name, new_name),
        question=f"Is {new_name} better than {old_name}?",
        design="explicit",
        arms=(old, new),
        parents={},
        seeds=tuple(range(options.n)),
        target=Target(val_loss=options.target),
        primary="val_loss",
        margin=None,
        confirm=False,
        fingerprint=data_fingerprint(Path(path) for path in old.trainer.data.values()),
        limits=TrainerLimits(
            wall_s=options.wall_limit,
            silence_s=options.silence_limit,
            retries=options.retries,
            output_mib=options.output_limit,
        ),
    )


def trainer_of(text: str, options: AbOptions, variables: Mapping[str, str]) -> "TrainerSpec":
    """The trainer that OLD or NEW names: a script, or a ref of the repository."""
    from harness.foreign.arm import SCRIPT, default_data, linked
    from harness.foreign.command import COMMAND
    from harness.provenance.interpreters import located
    from harness.run.foreign import TrainerSpec

    here = Path.cwd()
    path = Path(text)
    file: Path | None = None
    repo: Path | None = None
    ref: str | None = None
    script = SCRIPT
    if path.is_file():
        file = path.absolute()
        folder = file.parent
    else:
        _refuse_missing_script(path, text, options.repo)
        folder = repo = options.repo.absolute()
        ref, _, script_in_ref = text.partition(":")
        script = script_in_ref or options.script
    environment = {}
    if options.python:
        environment["python"] = options.python
    if options.container:
        environment["container"] = options.container
    return TrainerSpec(
        file=file,
        repo=repo,
        ref=ref,
        script=script,
        command=COMMAND if options.command is None else options.command,
        env=variables,
        extra=tuple(options.extra or ()),
        data=linked(options.data, here) if options.data else default_data(folder, here),
        gpus=options.gpus_per_run,
        environment=located(environment, here),
    )


def _refuse_missing_script(path: Path, text: str, repo: Path) -> None:
    """Raises UserError for what looks like a script, and is no ref either."""
    from harness.errors import near
    from harness.foreign.commits import commit_of

    if path.suffix and commit_of(repo, text.partition(":")[0]) is None:
        scripts = [str(script) for script in sorted(path.parent.glob(f"*{path.suffix}"))]
        raise UserError(
            f"{text}: no commit of {repo.absolute()}, and no such script{near(text, scripts)}"
        )


def _variables(texts: list[str]) -> dict[str, str]:
    """--env NAME=VALUE, by name."""
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UserError(f"--env {text}: must be NAME=VALUE, for example --env SEED={{seed}}")
        variables[name] = value
    return variables


def _experiment_name(options: AbOptions, old_name: str, new_name: str) -> str:
    """The name that was given, else one made of the arms'."""
    if options.experiment:
        return options.experiment
    parts = ["ab"]
    for name in (old_name, new_name):
        parts.append(re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-."))
    return "-".join(parts)[:MAX_NAME]


def arm_names(old: str, new: str) -> tuple[str, str]:
    """Short names that tell two arms apart: the scripts' stems, else the texts as given."""
    old_stem, new_stem = _stem(old), _stem(new)
    if old_stem != new_stem:
        return old_stem, new_stem
    if old != new:
        return old, new
    return old, f"{new} again"


def _stem(text: str) -> str:
    path = Path(text)
    if path.is_file():
        return path.stem
    return text
