"""A history, record by record: the public benchmark's, or a chain of arms of your own."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.lookup import keep_if_writable, load_for_report
from harness.cli.options import RESULTS, AcceptStale, Results
from harness.errors import UserError

if TYPE_CHECKING:
    from reports.inputs.history import Link

ATLAS_PAGE = Path("docs/findings/history/history.html")
ATLAS = "ablate atlas CHECKOUT"
ATLAS_TITLE = "The public benchmark's history, record by record"
ATLAS_ABOUT = (
    "Every record of the NanoGPT speedrun (github.com/KellerJordan/modded-nanogpt) says that a "
    "small GPT reaches one loss in less time, or fewer steps. Here each is held against the one "
    "before it, or against a baseline that its authors ran beside it: do its own logs show the "
    "gain, beyond the noise of single runs?"
)


@app.command()
def atlas(
    checkout: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CHECKOUT]", help="a checkout of the public repository: reads its logs again"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="the tables of figures: read, or with CHECKOUT written; default ours"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("-o", help="the page")] = ATLAS_PAGE,
) -> None:
    """Judge every public record against the one before, from figures or from the logs."""
    from reports.analysis.chain import chain_rows
    from reports.inputs.files import write_page
    from reports.inputs.history import HISTORY, read_history
    from reports.inputs.noise import TRACK, benchmark_noise
    from reports.page.history import write_history
    from reports.page.history_pairs import pairs_text

    folder = data or HISTORY
    if checkout is not None:
        _write_figures(checkout, folder)
    links, figures = read_history(folder)
    noise = benchmark_noise()
    chains = {}
    for track, of_track in links.items():
        chains[track] = chain_rows(of_track, figures.get(track, {}), noise)
    written = write_history(chains, noise, out, title=ATLAS_TITLE, command=ATLAS, about=ATLAS_ABOUT)
    print(written)
    rows = chains.get(TRACK, [])
    if any(row.link.earlier for row in rows):
        pairs = pairs_text(rows, command=ATLAS)
        print(write_page(out.with_suffix(".pairs.md"), pairs))


def _write_figures(checkout: Path, folder: Path) -> None:
    from harness.foreign.history import rows_of_history
    from reports.inputs.history import HISTORY_KEYS, LINK_KEYS, PRINTED_KEYS, write_rows

    with TemporaryDirectory(prefix="ablate-atlas-") as scratch:
        read = rows_of_history(checkout, Path(scratch))
    write_rows(folder / "runs.csv", HISTORY_KEYS, map(asdict, read.runs))
    write_rows(folder / "records.csv", LINK_KEYS, map(asdict, read.records))
    write_rows(folder / "printed.csv", PRINTED_KEYS, map(asdict, read.printed))


@app.command()
def chain(
    experiment: Annotated[str, typer.Argument(metavar="EXP")],
    parents: Annotated[
        Path | None,
        typer.Option("--parents", help="YAML: arm -> the arm it is held against, or null"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", help="the page; default results/experiments/EXP/chain.html"),
    ] = None,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
) -> None:
    """Hold each imported arm against the one before, or against the parent that a file names."""
    from reports.analysis.chain import chain_rows
    from reports.analysis.chain_arms import chain_links, figures_of_experiment
    from reports.inputs.noise import benchmark_noise
    from reports.page.history import write_history

    loaded = load_for_report(experiment, results, accept_stale)
    if not loaded.plan.imported:
        raise UserError(
            f"{experiment}: a chain is for imported logs, of which no block and no node is known; "
            f"`ablate compare {loaded.name}` holds arms that ran here against their baseline"
        )
    named = None if parents is None else _read_parents(parents)
    try:
        links: list[Link] = chain_links(loaded.plan, named)
    except ValueError as error:
        raise UserError(f"{parents}: {error}") from None
    if loaded.plan.evidence is None:
        keep_if_writable(loaded.plan, results, look="chain")
    noise = benchmark_noise()
    rows = chain_rows(links, figures_of_experiment(loaded), noise)
    page = out or results / "experiments" / loaded.name / "chain.html"
    written = write_history(
        {loaded.name: rows},
        noise,
        page,
        title=loaded.name,
        command=f"ablate chain {loaded.name}",
        results=results,
    )
    print(written)


def _read_parents(path: Path) -> dict[str, str]:
    """Arm -> parent, '' for none; raises UserError for a file that says something else."""
    from harness.yamlfile import YamlFile

    content = YamlFile(path).data
    return {str(arm): str(parent or "") for arm, parent in content.items()}
