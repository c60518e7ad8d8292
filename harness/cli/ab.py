"""Two trainer scripts against each other, as they are."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.ab_experiment import AbOptions, ab_experiment, check_options
from harness.cli.ab_table import Verdict, judge, print_verdict, verdict_mapping
from harness.cli.foreign import JUDGED, run_foreign, stop_if_stopped, tell_failed
from harness.cli.options import RESULTS, Json, Results
from harness.cli.table import print_json

Old = Annotated[
    str,
    typer.Argument(
        metavar="OLD", help="a script, or a git ref (REF, REF:SCRIPT) of the repository"
    ),
]
New = Annotated[str, typer.Argument(metavar="NEW", help="a script, or a git ref")]
Runs = Annotated[int, typer.Option("-n", help="runs of each")]
GpusPerRun = Annotated[int, typer.Option("--gpus-per-run", help="GPUs of one run; 0: a CPU run")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="K=V", help="environment variable; {seed} is the run's"),
]
Command = Annotated[
    str | None,
    typer.Option("--command", help="how to start a script: {script}, {gpus}, {seed}"),
]
Python = Annotated[
    str | None,
    typer.Option("--python", metavar="PATH", help="the interpreter of both; default: ours"),
]
Container = Annotated[
    str | None,
    typer.Option("--container", metavar="COMMAND", help="words in front of the command"),
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="[NAME=]PATH", help="link this into the clean copy"),
]
Extra = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PATH", help="copy this too; relative to the script"),
]
Repo = Annotated[Path, typer.Option("--repo", help="the repository of git refs")]
Script = Annotated[str, typer.Option("--script", help="the script in the repository")]
WallLimit = Annotated[
    float | None,
    typer.Option("--wall-limit", help="seconds after which a run is ended as timeout"),
]
SilenceLimit = Annotated[
    float, typer.Option("--silence-limit", help="seconds without output, likewise")
]
Retries = Annotated[int, typer.Option("--retries", help="further tries of a run that failed")]
MaxParallel = Annotated[
    int,
    typer.Option("--max-parallel", help="runs at a time; more than one disturbs their times"),
]
MaxGpuHours = Annotated[
    float | None,
    typer.Option(
        "--max-gpu-hours", metavar="H", help="start nothing if the runs may cost more than this"
    ),
]
TargetLoss = Annotated[float, typer.Option("--target", help="the benchmark's loss")]
ExperimentName = Annotated[
    str | None,
    typer.Option("--experiment", help="the name of the results; default: from OLD and NEW"),
]
FailOn = Annotated[
    str | None,
    typer.Option("--fail-on", help="exit 1 if the loss or the time is judged so, e.g. slower"),
]
NoReport = Annotated[bool, typer.Option("--no-report")]


HELP = (
    "Two trainer scripts as they are, interleaved on this node, "
    "judged by the house table and the benchmark's rules."
)


@app.command(help=HELP)
def ab(
    old: Old,
    new: New,
    n: Runs = 10,
    gpus_per_run: GpusPerRun = 1,
    env: Env = None,
    command: Command = None,
    python: Python = None,
    container: Container = None,
    data: Data = None,
    extra: Extra = None,
    repo: Repo = Path("."),
    script: Script = "train_gpt.py",
    wall_limit: WallLimit = None,
    silence_limit: SilenceLimit = 3600.0,
    retries: Retries = 0,
    max_parallel: MaxParallel = 1,
    max_gpu_hours: MaxGpuHours = None,
    target: TargetLoss = 3.28,
    experiment: ExperimentName = None,
    fail_on: FailOn = None,
    no_report: NoReport = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Judge two trainer scripts as they are: its options, checked and followed by `run_ab`."""
    options = AbOptions(
        old=old,
        new=new,
        n_runs=n,
        gpus_per_run=gpus_per_run,
        env=tuple(env or ()),
        command=command,
        python=python,
        container=container,
        data=tuple(data or ()),
        extra=tuple(extra or ()),
        repo=repo,
        script=script,
        wall_limit_s=wall_limit,
        silence_limit_s=silence_limit,
        retries=retries,
        max_parallel=max_parallel,
        max_gpu_hours=max_gpu_hours,
        target=target,
        experiment=experiment,
        fail_on=fail_on,
        no_report=no_report,
        results=results,
        json=json,
    )
    raise typer.Exit(run_ab(options))


def run_ab(options: AbOptions) -> int:
    """Check, run what is missing, judge, print; returns the exit code."""
    check_options(options)
    experiment = ab_experiment(options)
    summary, planned, store = run_foreign(
        experiment,
        options.results,
        max_parallel=options.max_parallel,
        max_gpu_hours=options.max_gpu_hours,
        quiet=options.json,
    )
    stop_if_stopped(summary, experiment, planned, store)
    verdict = judge(experiment, options.results, options.target, no_report=options.no_report)
    n_failed = tell_failed(summary, planned, store, quiet=options.json)
    if options.json:
        print_json(verdict_mapping(verdict))
    else:
        print_verdict(verdict)
    if n_failed or _fails_on(verdict, options.fail_on):
        return 1
    return 0


def _fails_on(verdict: Verdict, fail_on: str | None) -> bool:
    """Whether the loss or the time is judged so; nothing to judge is no pass."""
    if fail_on is None:
        return False
    verdicts = [c["verdict"] for c in verdict.comparisons if c["metric"] in JUDGED]
    return not verdicts or any(said.startswith(fail_on) for said in verdicts)
