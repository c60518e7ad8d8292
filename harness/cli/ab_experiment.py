"""Two trainer scripts as an experiment: what was typed, checked, and the two arms that it names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.foreign import TrainerSpec

MAX_NAME = 100  # characters of an experiment's name


@dataclass(frozen=True, kw_only=True)
class AbOptions:
    """What was typed: two scripts, how they run, how they are judged."""

    old: str
    new: str
    n_runs: int  # of each
    gpus_per_run: int
    env: tuple[str, ...]  # NAME=VALUE
    command: str | None
    python: str | None
    container: str | None
    data: tuple[str, ...]  # PATH or NAME=PATH
    extra: tuple[str, ...]
    repo: Path
    script: str
    wall_limit_s: float | None
    silence_limit_s: float
    retries: int
    max_parallel: int
    max_gpu_hours: float | None
    target: float
    experiment: str | None
    fail_on: str | None
    no_report: bool
    results: Path
    json: bool


# ---------------------------------------------------------------- checks


def check_options(options: AbOptions) -> None:
    """Raises UserError for an option that can be seen to be wrong by itself."""
    from harness.cli.compare import check_word
    from harness.experiment.keys import check_name

    _check_least("-n", options.n_runs, 1)
    _check_least("--gpus-per-run", options.gpus_per_run, 0)
    _check_least("--retries", options.retries, 0)
    _check_least("--max-parallel", options.max_parallel, 1)
    if options.wall_limit_s is not None:
        _check_positive("--wall-limit", options.wall_limit_s)
    _check_positive("--silence-limit", options.silence_limit_s)
    if options.python and options.container:
        raise UserError(
            "--python and --container: name one of them; the container's own python3 is used in it"
        )
    check_word(options.fail_on)
    if options.experiment is not None:
        check_name(options.experiment, "--experiment")


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{name} {value}: must be at least {least}")


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"{name} {value:g}: must be above zero")


# ---------------------------------------------------------------- the experiment


def ab_experiment(options: AbOptions) -> "ForeignExperiment":
    """The experiment that compares two scripts; raises UserError where one is not to be had."""
    from harness.foreign.arm import make_arm
    from harness.foreign.collect import data_fingerprint
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.foreign import TrainerLimits
    from harness.run.plan import Target

    variables = _variables(options.env)
    written = [trainer_of(text, options, variables) for text in (options.old, options.new)]
    old_name, new_name = arm_names(options.old, options.new)
    old = make_arm(old_name, written[0], where=f"OLD {options.old}")
    new = make_arm(new_name, written[1], changes=("new",), baseline=old, where=f"NEW {options.new}")
    return ForeignExperiment(
        name=_experiment_name(options, old_name, new_name),
        question=f"Is {new_name} better than {old_name}?",
        design="explicit",
        arms=(old, new),
        seeds=tuple(range(options.n_runs)),
        target=Target(val_loss=options.target),
        primary="val_loss",
        margin=None,
        confirm=False,
        fingerprint=data_fingerprint(Path(path) for path in old.trainer.data.values()),
        limits=TrainerLimits(
            wall_s=options.wall_limit_s,
            silence_s=options.silence_limit_s,
            retries=options.retries,
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
        extra=options.extra,
        data=linked(options.data, here) if options.data else default_data(folder, here),
        gpus=options.gpus_per_run,
        environment=located(environment, here),
    )


def _refuse_missing_script(path: Path, text: str, repo: Path) -> None:
    """Raises UserError for what looks like a script, and is no ref either."""
    from harness.errors import near
    from harness.foreign.collect import commit_of

    if path.suffix and commit_of(repo, text.partition(":")[0]) is None:
        scripts = [str(script) for script in sorted(path.parent.glob(f"*{path.suffix}"))]
        raise UserError(
            f"{text}: no commit of {repo.absolute()}, and no such script{near(text, scripts)}"
        )


def _variables(texts: tuple[str, ...]) -> dict[str, str]:
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
