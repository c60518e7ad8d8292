"""A change of your own, out of the tree."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app


@app.command("new-change")
def new_change(name: Annotated[str, typer.Argument(help="of the change; NAME.py is its file")]) -> None:
    """Write a plug-in, its experiment and its law test into the working directory; they run as they are."""
    from harness.scaffold import new_change as write

    for path in write(name, Path.cwd()):
        print(path.relative_to(Path.cwd()))
    print(f"next: pytest test_{name}.py; ablate run {name}; then make {name}.py your own (docs/add-a-toggle.md)")
