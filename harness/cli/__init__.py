"""The commands, one module per subject; each imports what it needs when it runs, so that --help answers at once."""

import typer

app = typer.Typer(
    name="ablate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Which change of a GPT speedrun really helps, by how much, in time and in loss, and how sure are we?",
)

from harness.cli import catalogue, data, pages, runs, scaffold, tools  # noqa: E402, F401  (they register their commands)
