"""What `ablate run` is asked for."""

from dataclasses import dataclass
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Exp, Results, SeedCount, Set, Trust
from harness.cli.track import LogTo
from harness.cli.where import Placement


@dataclass(frozen=True, kw_only=True)
class RunOptions(Placement):
    """What the user asks of `ablate run`."""

    experiment: Exp
    seeds: SeedCount = None
    gpus_per_run: Annotated[
        int | None,
        typer.Option("--gpus-per-run", help="processes of one run on each of its nodes"),
    ] = None
    nodes_per_run: Annotated[
        int,
        typer.Option(
            "--nodes-per-run", min=1, help="nodes of one run, with --executor slurm or ray"
        ),
    ] = 1
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", help="runs at a time; default: as many as fit")
    ] = None
    settings: Set = None
    worker: Annotated[str, typer.Option(help="warm (one process takes run after run) or fresh")] = (
        "warm"
    )
    wall_limit: Annotated[
        float | None,
        typer.Option("--wall-limit", help="seconds after which a run is ended as timeout"),
    ] = None
    oom_retries: Annotated[
        int,
        typer.Option(
            "--oom-retries",
            help="times a run out of memory is tried again with half the tokens in a pass",
        ),
    ] = 0
    max_gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--max-gpu-hours",
            metavar="H",
            help="start nothing if the estimate is more than this",
        ),
    ] = None
    price: Annotated[float | None, typer.Option(help="of a GPU-hour, for --dry-run", min=0.0)] = (
        None
    )
    log_to: LogTo = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and stop")] = False
    print_script: Annotated[
        bool,
        typer.Option("--print-script", help="print the job scripts of --executor slurm and stop"),
    ] = False
    no_report: Annotated[bool, typer.Option("--no-report")] = False
    trust: Trust = False
    results: Results = RESULTS

    def for_some_executors(self) -> list[str]:
        given = super().for_some_executors()
        if self.nodes_per_run > 1:
            given.append("--nodes-per-run")
        if self.print_script:
            given.append("--print-script")
        return given

    @property
    def world_size(self) -> int | None:
        """Processes of a run, on all of its nodes; None where the experiment says it."""
        if self.nodes_per_run > 1:
            return (self.gpus_per_run or 1) * self.nodes_per_run
        return self.gpus_per_run
