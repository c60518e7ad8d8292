"""Two trainer scripts against each other, as they are."""

import re
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.ab_table import house_verdict, print_verdict
from harness.cli.foreign import JUDGED, run_foreign, stop_if_stopped, tell_failed
from harness.cli.options import Json
from harness.cli.table import print_json
from harness.errors import UserError

RESULTS = Path("results")


@app.command()
def ab(
    old: Annotated[str, typer.Argument(metavar="OLD", help="a script, or a git ref (REF, REF:SCRIPT) of the repository")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="a script, or a git ref")],
    n: Annotated[int, typer.Option("-n", help="runs of each")] = 10,
    gpus_per_run: Annotated[int, typer.Option("--gpus-per-run", help="GPUs of one run; 0: a CPU run")] = 1,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="K=V", help="environment variable; {seed} is the run's")
    ] = None,
    command: Annotated[str | None, typer.Option("--command", help="how to start a script: {script}, {gpus}, {seed}")] = None,
    python: Annotated[str | None, typer.Option("--python", metavar="PATH", help="the interpreter of both; default: ours")] = None,
    container: Annotated[str | None, typer.Option("--container", metavar="COMMAND", help="words in front of the command")] = None,
    data: Annotated[list[str] | None, typer.Option("--data", metavar="[NAME=]PATH", help="link this into the clean copy")] = None,
    extra: Annotated[
        list[str] | None, typer.Option("--with", metavar="PATH", help="copy this too; relative to the script")
    ] = None,
    repo: Annotated[Path, typer.Option("--repo", help="the repository of git refs")] = Path("."),
    script: Annotated[str, typer.Option("--script", help="the script in the repository")] = "train_gpt.py",
    wall_limit: Annotated[
        float | None, typer.Option("--wall-limit", help="seconds after which a run is ended as timeout")
    ] = None,
    silence_limit: Annotated[float, typer.Option("--silence-limit", help="seconds without output, likewise")] = 3600.0,
    retries: Annotated[int, typer.Option("--retries", help="further tries of a run that failed")] = 0,
    max_parallel: Annotated[int, typer.Option("--max-parallel", help="runs at a time; more than one disturbs their times")] = 1,
    max_gpu_hours: Annotated[
        float | None, typer.Option("--max-gpu-hours", metavar="H", help="start nothing if the runs may cost more than this")
    ] = None,
    target: Annotated[float, typer.Option("--target", help="the benchmark's loss")] = 3.28,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="the name of the results; default: from OLD and NEW")
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", help="exit 1 if the loss or the time is judged so, e.g. slower")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report")] = False,
    results: Annotated[Path, typer.Option("--results", help="the results folder")] = RESULTS,
    json: Json = False,
) -> None:
    """Two trainer scripts as they are, interleaved on this node, judged by the house table and the benchmark's rules."""
    from dataclasses import replace

    from harness.cli.compare import check_word
    from harness.errors import near
    from harness.experiment.keys import check_name
    from harness.foreign.arm import Side, default_data, linked
    from harness.foreign.collect import commit_of, data_fingerprint
    from harness.foreign.command import COMMAND
    from harness.foreign.experiment import ForeignExperiment
    from harness.foreign.trainer import Limits
    from harness.provenance.interpreters import located

    for name, value, least in (
        ("-n", n, 1),
        ("--gpus-per-run", gpus_per_run, 0),
        ("--retries", retries, 0),
        ("--max-parallel", max_parallel, 1),
    ):
        if value < least:
            raise UserError(f"{name} {value}: must be at least {least}")
    for name, limit in (("--wall-limit", wall_limit), ("--silence-limit", silence_limit)):
        if limit is not None and not limit > 0:
            raise UserError(f"{name} {limit:g}: must be above zero")
    if python and container:
        raise UserError("--python and --container: name one of them; the container's own python3 is used in it")
    check_word(fail_on)
    if experiment is not None:
        check_name(experiment, "--experiment")
    here = Path.cwd()
    variables = dict(_variable(text) for text in env or [])
    shared = {
        "command": COMMAND if command is None else command,
        "env": variables,
        "gpus": gpus_per_run,
        "extra": tuple(extra or ()),
        "environment": located({k: v for k, v in {"python": python, "container": container}.items() if v}, here),
    }
    sides = []
    for text in (old, new):
        path, (ref, _, inside) = Path(text), text.partition(":")
        if path.suffix and not path.is_file() and commit_of(repo, ref) is None:
            there = [str(p) for p in sorted(path.parent.glob(f"*{path.suffix}"))]
            raise UserError(f"{text}: no commit of {repo.absolute()}, and no such script{near(text, there)}")
        place = {"file": path.absolute()} if path.is_file() else {"repo": repo.absolute(), "ref": ref, "script": inside or script}
        folder = path.absolute().parent if path.is_file() else repo.absolute()
        sides.append(Side(**place, **shared, data=linked(data, here) if data else default_data(folder, here)))  # type: ignore[arg-type]
    names = arm_names(old, new)
    first = sides[0].arm(names[0], where=f"OLD {old}")
    second = sides[1].arm(names[1], ("new",), baseline=first, where=f"NEW {new}")
    label = experiment or "ab-" + "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") for name in names)
    judged = ForeignExperiment(
        name=label[:100], question=f"Is {names[1]} better than {names[0]}?", design="explicit",
        arms=(replace(first, changes=()), second), seeds=tuple(range(n)), target={"val_loss": target, "reason": None},
        primary="val_loss", margin=None, confirm=False, fingerprint=data_fingerprint(map(Path, first.trainer["data"].values())),
        limits=Limits(wall_s=wall_limit, silence_s=silence_limit, retries=retries),
    )  # fmt: skip
    summary, planned, store = run_foreign(judged, results, max_parallel=max_parallel, max_gpu_hours=max_gpu_hours, quiet=json)
    stop_if_stopped(summary, judged, planned, store)
    verdict = house_verdict(judged, results, target, no_report=no_report)
    n_failed = tell_failed(summary, planned, store, quiet=json)
    print_json(verdict) if json else print_verdict(verdict)
    words = [c["verdict"] for c in verdict["comparisons"] if c["metric"] in JUDGED]
    failed_on = fail_on is not None and (not words or any(w.startswith(fail_on) for w in words))  # nothing to judge is no pass
    raise typer.Exit(1 if n_failed or failed_on else 0)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UserError(f"--env {text}: must be NAME=VALUE, for example --env SEED={{seed}}")
    return name, value


def arm_names(old: str, new: str) -> tuple[str, str]:
    """Short names that tell two sides apart: the scripts' stems, else the texts as they were given."""
    stems = [Path(t).stem if Path(t).is_file() else t for t in (old, new)]
    pair = stems if stems[0] != stems[1] else [old, new]
    return pair[0], pair[1] if pair[0] != pair[1] else f"{pair[1]} again"
