"""Where the runs of a call are made, and where finished ones are sent."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.executors import DEFAULT, EXECUTORS, ExecutorRow
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.runner.executor import ExecutorOptions


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What the user says of that, of whatever runs."""

    executor: Annotated[str, typer.Option(help=" or ".join(EXECUTORS))] = DEFAULT
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="settings for --executor slurm; default: cluster.yaml here",
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="of a Ray cluster, with --executor ray: auto, or HOST:PORT; "
            "default: this machine's",
        ),
    ] = None
    push: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="DEST",
            help="send every finished run there at once: a folder, HOST:FOLDER, a URL",
        ),
    ] = None
    pull: Annotated[
        bool, typer.Option("--pull", help="before planning bring in what --push's DEST has")
    ] = False

    def for_some_executors(self) -> list[str]:
        """The options that were given and that not every executor has."""
        given = []
        if self.cluster is not None:
            given.append("--cluster")
        if self.address is not None:
            given.append("--address")
        return given

    @property
    def is_here(self) -> bool:
        return self.executor == DEFAULT


@dataclass(frozen=True, kw_only=True)
class ScriptCall:
    """How one call of the command line runs scripts."""

    place: Placement
    results: Path  # the results folder
    max_parallel: int = 1  # a single run has its node of a cluster to itself: its time counts
    max_gpu_hours: float | None = None  # nothing starts that may cost more; None allows any
    warm: bool = False  # one that compiles kernels has a discarded run before its first on a node
    quiet: bool = False  # standard output is for JSON
    own_name: bool = False  # NameTakenError where other scripts have the name


def chosen_executor(where: Placement) -> ExecutorRow:
    """The row of --executor; raises UserError for options that do not fit it or one another."""
    if where.executor not in EXECUTORS:
        raise UserError(f"--executor {where.executor}: must be {' or '.join(EXECUTORS)}")
    chosen = EXECUTORS[where.executor]
    for name, row in EXECUTORS.items():
        for option in where.for_some_executors():
            if option in row.options and option not in chosen.options:
                raise UserError(
                    f"{' and '.join(row.options)} are for --executor {name}: add that, "
                    "or leave them out"
                )
    if where.pull and where.push is None:
        raise UserError("--pull brings in what --push sends: say with --push DEST where that is")
    return chosen


def asked_of_executor(where: Placement) -> "ExecutorOptions":
    """What an executor is asked for, whatever runs."""
    from harness.provenance.redact import redact
    from harness.runner.executor import ExecutorOptions
    from harness.runner.slurm.cluster import read_cluster

    cluster = None
    if "--cluster" in EXECUTORS[where.executor].options:
        cluster = read_cluster(where.cluster)
    return ExecutorOptions(
        command=redact(shlex.join(["ablate", *sys.argv[1:]])),
        cluster=cluster,
        address=where.address,
    )
