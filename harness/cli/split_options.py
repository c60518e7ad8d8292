"""What the user asks of `ablate split`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import Json
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
    json: Json = False

    @property
    def of_folder(self) -> Path | None:
        """The folder that is there already; None where one is to be written.

        Raises UserError for what does not go together."""
        if self.check is None:
            return None
        if self.old is not None or self.out is not None or self.parents:
            raise UserError("--check: reads a folder alone: leave OLD, NEW, --parents and -o out")
        return self.check
