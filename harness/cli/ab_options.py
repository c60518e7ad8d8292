"""What `ablate ab` is told: two scripts or more, how they run, how they are judged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Json, Results
from harness.cli.track import LogTo, asked_trackers
from harness.cli.where import Placement, ScriptCall, chosen_executor
from harness.errors import UserError


@dataclass(frozen=True, kw_only=True)
class AbOptions(Placement):
    """The options of `ablate ab`, as they are typed."""

    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="a script, or a git ref (REF, REF:SCRIPT), with what it is given",
        ),
    ]
    new: Annotated[
        list[str],
        typer.Argument(
            metavar="NEW...",
            help="the same, or a patch of OLD; 'LR=0.1 train.py --wd=0' gives it what OLD lacks",
        ),
    ]
    n: Annotated[
        int | None, typer.Option("-n", help="runs of each (10); at most, with --until")
    ] = None
    pool: Annotated[
        bool,
        typer.Option("--pool", help="OLD runs twice; losses of its earlier runs are borrowed"),
    ] = False
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="decided", help="blocks until it is decided"),
    ] = None
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream", metavar="NAME", help="judge it as the next candidate of many, for --until"
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="B", help="of this call: 3h, 90min, 8gpu-hours, 40runs"),
    ] = None
    margin: Annotated[
        float | None, typer.Option("--margin", metavar="X", help="a smaller difference is none")
    ] = None
    price: Annotated[
        float | None, typer.Option("--price", help="of a GPU-hour, for --budget 25price", min=0.0)
    ] = None
    no_warm_up: Annotated[
        bool, typer.Option("--no-warm-up", help="no discarded run where kernels are not cached")
    ] = False
    fresh: Annotated[
        bool, typer.Option("--fresh", help="so many new runs of each, beside those that there are")
    ] = False
    gpus_per_run: Annotated[
        int, typer.Option("--gpus-per-run", help="GPUs of one run; 0: a CPU run")
    ] = 1
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="K=V", help="environment variable; {seed} is the run's"),
    ] = None
    command: Annotated[
        str | None,
        typer.Option("--command", help="how to start a script: {script}, {gpus}, {seed}"),
    ] = None
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="the interpreter of both; default: ours"),
    ] = None
    container: Annotated[
        str | None,
        typer.Option("--container", metavar="COMMAND", help="words in front of the command"),
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="[NAME=]PATH", help="link this into the clean copy"),
    ] = None
    extra: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PATH", help="copy this too; relative to the script"),
    ] = None
    log: Annotated[
        str | None,
        typer.Option(
            "--log", metavar="PATTERN", help="log files that a script writes itself: 'logs/*.txt'"
        ),
    ] = None
    repo: Annotated[Path, typer.Option("--repo", help="the repository of git refs")] = Path(".")
    script: Annotated[str, typer.Option("--script", help="the script in the repository")] = (
        "train_gpt.py"
    )
    wall_limit: Annotated[
        float | None,
        typer.Option("--wall-limit", help="seconds after which a run is ended as timeout"),
    ] = None
    silence_limit: Annotated[
        float, typer.Option("--silence-limit", help="seconds without output, likewise")
    ] = 3600.0
    retries: Annotated[
        int, typer.Option("--retries", help="further tries of a run that failed")
    ] = 0
    output_limit: Annotated[
        float, typer.Option("--output-limit", help="MiB of output after which a run has failed")
    ] = 1024.0
    max_parallel: Annotated[
        int,
        typer.Option("--max-parallel", help="runs at a time; more than one disturbs their times"),
    ] = 1
    max_gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--max-gpu-hours", metavar="H", help="start nothing if the runs may cost more than this"
        ),
    ] = None
    target: Annotated[float, typer.Option("--target", help="the benchmark's loss")] = 3.28
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", help="the name of the results; default: from OLD and NEW"),
    ] = None
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="PATTERN",
            help="judge this number: 'val_bpb: ([0-9.]+)', json:FIELD of the last line, "
            "file:PATH[:FIELD]; the first given decides",
        ),
    ] = None
    higher: Annotated[
        list[str] | None,
        typer.Option("--higher", metavar="NAME", help="a metric of which higher is better"),
    ] = None
    step_pattern: Annotated[
        str | None,
        typer.Option("--step-pattern", help="how the script prints its step: 'iter ([0-9]+)'"),
    ] = None
    time_pattern: Annotated[
        str | None,
        typer.Option(
            "--time-pattern", help="its training time so far, with the unit: 'clock=(\\S+)'"
        ),
    ] = None
    stop_step: Annotated[
        int | None,
        typer.Option("--stop-step", help="end every run once it is validated at this step"),
    ] = None
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", help="exit 1 if the loss or the time is judged so, e.g. slower"),
    ] = None
    log_to: LogTo = None
    no_report: Annotated[bool, typer.Option("--no-report")] = False
    results: Results = RESULTS
    json: Json = False

    def call(self) -> ScriptCall:
        return ScriptCall(
            place=self,
            results=self.results,
            max_parallel=self.max_parallel,
            max_gpu_hours=self.max_gpu_hours,
            warm=not self.no_warm_up,
            quiet=self.json,
            own_name=True,
        )


def check_options(options: AbOptions) -> None:
    """Raises UserError for an option that can be seen to be wrong by itself."""
    from harness.cli.compare import check_word
    from harness.experiment.keys import check_name

    chosen_executor(options)
    if options.n is not None:
        _check_least("-n", options.n, 1)
    _check_until(options)
    _check_least("--gpus-per-run", options.gpus_per_run, 0)
    _check_least("--retries", options.retries, 0)
    _check_least("--max-parallel", options.max_parallel, 1)
    if options.wall_limit is not None:
        _check_positive("--wall-limit", options.wall_limit)
    _check_positive("--silence-limit", options.silence_limit)
    _check_positive("--output-limit", options.output_limit)
    if options.python and options.container:
        raise UserError(
            "--python and --container: name one of them; the container's own python3 is used in it"
        )
    check_word(options.fail_on)
    asked_trackers(options.log_to)
    if options.experiment is not None:
        check_name(options.experiment, "--experiment")


def _check_until(options: AbOptions) -> None:
    from harness.experiment.keys import check_name

    if options.until not in (None, "decided"):
        raise UserError(f"--until {options.until}: there is only --until decided")
    if options.until is None and options.budget is not None:
        raise UserError(f"--budget {options.budget}: is for --until decided")
    if options.until and options.fail_on:
        raise UserError("--fail-on: --until decided has exit codes of its own")
    if options.stream is not None:
        if options.until is None:
            raise UserError("--stream: needs --until decided, whose evidence holds in a stream")
        check_name(options.stream, "--stream")
    if options.pool and not options.is_here:
        raise UserError(
            "--pool: borrows from runs on nodes like this one: leave it out, or --executor"
        )
    if options.pool and options.fresh:
        raise UserError("--pool and --fresh: name one of them; --fresh borrows nothing")
    if options.margin is not None:
        _check_positive("--margin", options.margin)


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{name} {value}: must be at least {least}")


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"{name} {value:g}: must be above zero")
