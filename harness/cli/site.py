"""A site of findings, the history and chosen experiments: a folder to put anywhere."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, AcceptStale, Results
from harness.errors import UserError

FINDINGS = Path("docs/findings")


@app.command()
def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="where it is written")],
    experiments: Annotated[
        list[str] | None, typer.Argument(metavar="[EXP...]", help="experiments to show on it")
    ] = None,
    findings: Annotated[
        Path, typer.Option("--findings", help="a folder of findings: pages and texts")
    ] = FINDINGS,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
) -> None:
    """Write a site of the findings, the history and chosen experiments, with an index."""
    from harness.cli.report import load_page, write_loaded
    from reports.page.site import EXPERIMENTS, may_become_site, write_site

    if not findings.is_dir():
        raise UserError(f"--findings {findings}: is no folder; name one that holds findings")
    if not may_become_site(folder):
        raise UserError(
            f"{folder}: holds files that are no site of ours: name an empty folder, or a new one"
        )
    for name in experiments or ():
        loaded = load_page([name], results, accept_stale)
        write_loaded(loaded, results, folder / EXPERIMENTS / f"{loaded[0].name}.html")
    print(write_site(folder, findings))
