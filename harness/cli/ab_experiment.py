"""Trainer scripts as an experiment: the arms that a command line names."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.ab_name import with_own_name
from harness.cli.ab_options import AbOptions
from harness.cli.ab_sides import Side, names_of
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.foreign import TrainerSpec
    from harness.run.readings import OwnMetric, Readings

MAX_NAME = 100  # characters of an experiment's name


def ab_experiment(options: AbOptions) -> "ForeignExperiment":
    """The experiment that compares the scripts; raises UserError where one is not to be had."""
    from harness.foreign.arm import make_arm
    from harness.foreign.experiment import ForeignExperiment
    from harness.provenance.data import data_fingerprint
    from harness.run.foreign import TrainerLimits
    from harness.run.plan import Target

    sides = [Side.of(text) for text in (options.old, *options.new)]
    names = names_of(sides)
    of_old = trainer_of(sides[0], options)
    old = make_arm(names[0], of_old, where=f"OLD {options.old}")
    arms = [old]
    for name, side in zip(names[1:], sides[1:], strict=True):
        change = "new" if len(sides) == 2 else name
        spec = trainer_of(side, options, old=of_old)
        arms.append(make_arm(name, spec, changes=(change,), baseline=old, where=f"NEW {side.text}"))
    metrics = [] if old.written.readings is None else old.written.readings.metrics
    e = ForeignExperiment(
        name=_experiment_name(options, names),
        question=_question(names),
        design="explicit",
        arms=tuple(arms),
        parents={},
        seeds=(),  # those that the call plans
        target=Target(val_loss=options.target) if judges_loss(metrics) else None,
        primary=metrics[0].name if metrics else "val_loss",
        margin=options.margin,
        confirm=False,
        fingerprint=data_fingerprint(Path(path) for path in old.trainer.data.values()),
        limits=TrainerLimits(
            wall_s=options.wall_limit,
            silence_s=options.silence_limit,
            retries=options.retries,
            output_mib=options.output_limit,
        ),
    )
    return with_own_name(e, options.results)


def _question(names: Sequence[str]) -> str:
    """What is asked of the arms, the baseline first."""
    old, *news = names
    if len(news) == 1:
        return f"Is {news[0]} better than {old}?"
    return f"Which of {', '.join(news)} is better than {old}?"


def trainer_of(
    side: Side, options: AbOptions, *, old: "TrainerSpec | None" = None
) -> "TrainerSpec":
    """The trainer that OLD or NEW names: a script, a ref of the repository, or a patch of OLD.

    old: None for OLD itself."""
    from harness.foreign.arm import SCRIPT, default_data, linked
    from harness.foreign.command import COMMAND
    from harness.provenance.interpreters import located
    from harness.run.foreign import TrainerSpec

    if side.patch is not None:
        if old is None:
            raise UserError(f"OLD {side.text}: is a patch: name the script that it is for")
        return replace(
            old,
            patches=(*old.patches, side.patch),
            args=(*old.args, *side.args),
            env={**old.env, **side.env},
        )
    here, text = Path.cwd(), side.place
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
        args=side.args,
        env={**_variables(options.env or []), **side.env},
        extra=tuple(options.extra or ()),
        data=linked(options.data, here) if options.data else default_data(folder, here),
        gpus=options.gpus_per_run,
        environment=located(environment, here),
        log=options.log,
        readings=readings_of(options),
    )


def readings_of(options: AbOptions) -> "Readings | None":
    """What is read of the scripts beside the benchmark's lines, None where nothing is asked."""
    from harness.foreign.own_metrics import check_readings, read_metric
    from harness.run.readings import Readings

    higher = options.higher or []
    metrics = []
    for text in options.metric or []:
        metrics.append(read_metric(text, higher=higher, where=f"--metric {text}"))
    readings = Readings(
        metrics=tuple(metrics),
        step_pattern=options.step_pattern,
        time_pattern=options.time_pattern,
        stop_step=options.stop_step,
    )
    check_readings(readings, higher=higher, where="--metric")
    if readings == Readings():
        return None
    return readings


def judges_loss(metrics: "Sequence[OwnMetric]") -> bool:
    """Whether what decides is the validation loss, which the benchmark's target is about."""
    return not metrics or metrics[0].name == "val_loss"


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


def _experiment_name(options: AbOptions, names: Sequence[str]) -> str:
    """The name that was given, else one made of the arms'."""
    if options.experiment:
        return options.experiment
    parts = ["ab"]
    for name in names:
        parts.append(re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-."))
    return "-".join(parts)[:MAX_NAME]
