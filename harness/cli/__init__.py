"""The commands, one module per subject.

Each imports what it needs when it runs, so that --help answers at once.
"""

from importlib import import_module, metadata
from typing import Annotated

import typer

from harness.cli.panels import PanelGroup
from harness.cli.said import give_json

app = typer.Typer(
    name="ablate",
    cls=PanelGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "Which change of a GPT speedrun really helps, by how much, in time and in loss, and how"
        " sure are we?"
    ),
)


def print_version(asked: bool) -> None:
    """The version of this program, on a line of its own."""
    if asked:
        print(f"ablate {metadata.version('speedrun-ablations')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show where an error came from")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    """Options of every command; --debug is read by harness/__main__.py, wherever it stands."""


SUBJECTS = (
    "ab",
    "bench",
    "box",
    "compare",
    "confirm",
    "data",
    "experiments",
    "history",
    "imports",
    "log",
    "noise",
    "plan",
    "push",
    "report",
    "rerun",
    "results",
    "run",
    "site",
    "split",
    "status",
    "submission",
    "toggles",
    "tools",
    "track",
)
for subject in SUBJECTS:  # they register their commands
    import_module(f"harness.cli.{subject}")
give_json(app)
