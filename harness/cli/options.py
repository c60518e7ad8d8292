"""Options and exit codes that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.table import JSON_HELP

Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]

AcceptStale = Annotated[
    bool, typer.Option("--accept-stale", help="count runs of an older source; the page says so")
]

Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="look at every file and digest, code and environments too; what is not sound is named",
    ),
]
RESULTS = Path("results")
Exp = Annotated[
    str,
    typer.Argument(
        metavar="EXP",
        help="a YAML path, a name in experiments/, or a name in the results folder",
    ),
]
Results = Annotated[Path, typer.Option("--results", help="the results folder")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="override a field for every arm, or a key of the file",
    ),
]
SeedCount = Annotated[
    int | None, typer.Option("--seeds", help="number of seeds instead of the file's")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="execute what the results folder names, though it was not launched here by you",
    ),
]
EXIT_FAILED = 1
EXIT_STOPPED = {"interrupted": 130, "preempted": 143}  # as shells say it: 128 + SIGINT, + SIGTERM
