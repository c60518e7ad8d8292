"""What the user asks of `ablate split`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Json, Results
from harness.errors import UserError


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

    @property
    def of_folder(self) -> Path | None:
        """The folder that is there already; None where one is to be written.

        Raises UserError for what does not go together."""
        if self.check is None and self.prune is None:
            return None
        option = "--check" if self.prune is None else "--prune"
        if self.old is not None or self.out is not None or self.parents:
            raise UserError(f"{option}: reads a folder alone: leave OLD, NEW, --parents and -o out")
        if self.check is not None and self.prune is not None:
            raise UserError("--check and --prune: one after the other")
        if self.prune is not None and self.json:
            raise UserError("--prune: says it in lines alone: leave --json out")
        return self.check or self.prune
