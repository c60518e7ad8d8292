"""What the user asks of `ablate split`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Json, Results
from harness.errors import UserError

LIMIT_S = 600.0  # of an arm that takes two steps


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Its arguments and options."""

    old: Annotated[
        str | None,
        typer.Argument(metavar="[OLD]", help="a script, a git ref (REF, REF:SCRIPT), a folder"),
    ] = None
    new: Annotated[str | None, typer.Argument(metavar="NEW", help="the same")] = None
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="the folder to write")
    ] = None
    parents: Annotated[
        list[str] | None,
        typer.Option(
            "--parents",
            metavar="DIR|REFS",
            help="candidates for OLD: scripts of a folder, refs (a,b or A..B); the nearest is OLD",
        ),
    ] = None
    check: Annotated[
        Path | None, typer.Option("--check", metavar="DIR", help="check a folder that was edited")
    ] = None
    prune: Annotated[
        Path | None,
        typer.Option("--prune", metavar="DIR", help="say which parts can go, after its runs"),
    ] = None
    margin: Annotated[
        float | None, typer.Option("--margin", help="of --prune: the loss that does not matter")
    ] = None
    smoke: Annotated[
        Path | None,
        typer.Option(
            "--smoke", metavar="DIR", help="let every arm of a folder take two real steps"
        ),
    ] = None
    smoke_command: Annotated[
        str | None,
        typer.Option("--smoke-command", help="with --smoke, instead of the experiment's command"),
    ] = None
    smoke_env: Annotated[
        list[str] | None,
        typer.Option("--smoke-env", metavar="NAME=VALUE", help="with --smoke; several times"),
    ] = None
    smoke_limit: Annotated[
        float | None,
        typer.Option("--smoke-limit", help=f"seconds of one arm; default: {LIMIT_S:g}", min=1.0),
    ] = None
    smoke_memory: Annotated[
        float | None,
        typer.Option(
            "--smoke-memory",
            help="GiB of one arm; default: four fifths of what is free",
            min=0.001,
        ),
    ] = None
    command: Annotated[
        str | None,
        typer.Option("--command", help="how to start a script: {script}, {gpus}, {seed}"),
    ] = None
    gpus_per_run: Annotated[
        int, typer.Option("--gpus-per-run", help="GPUs of one run; 0: a CPU run", min=0)
    ] = 1
    repo: Annotated[Path, typer.Option("--repo", help="the repository of git refs")] = Path(".")
    script: Annotated[str, typer.Option("--script", help="the script in the repository")] = (
        "train_gpt.py"
    )
    results: Results = RESULTS
    json: Json = False

    def check_alone(self) -> None:
        """Raises UserError for what does not go together."""
        folders = {"--check": self.check, "--prune": self.prune, "--smoke": self.smoke}
        asked = [option for option, folder in folders.items() if folder is not None]
        if asked == ["--check", "--prune"]:
            raise UserError("--check and --prune: one after the other")
        if len(asked) > 1:
            raise UserError(f"{asked[1]}: checks the folder first: leave {asked[0]} out")
        of_smoke = (self.smoke_command, self.smoke_env or None, self.smoke_limit, self.smoke_memory)
        if "--smoke" not in asked and any(given is not None for given in of_smoke):
            raise UserError(
                "--smoke-command, --smoke-env, --smoke-limit, --smoke-memory: go with --smoke DIR: "
                "name its folder"
            )
        if "--prune" not in asked and self.margin is not None:
            raise UserError("--margin: goes with --prune DIR: name its folder")
        of_scripts = (self.old, self.out, self.parents, self.command)
        if asked and any(given is not None for given in of_scripts):
            raise UserError(
                f"{asked[0]}: reads a folder alone: leave OLD, NEW, --parents, --command and -o out"
            )
