"""Every figure of a page as files that a paper takes in: SVG, PDF and PNG."""

import logging
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import matplotlib

from reports.analysis.types import Comparisons
from reports.figures.base import NARROW, WIDE, Figure
from reports.inputs.experiment import Experiment
from reports.inputs.files import write_out, write_page
from reports.page.by_design import ByDesign
from reports.page.draw import draw_all
from reports.paper.drawing import paper_figure

FILE_KINDS = ("svg", "pdf", "png")
DPI = 300  # of a PNG
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
WRITE_SETTINGS: Any = {
    "svg.fonttype": "none",  # letters stay text
    "svg.hashsalt": "ablate",  # the same runs give the same bytes
    "pdf.fonttype": 42,
    "path.simplify": False,
}


def write_figures(
    experiment: Experiment, outcome: Comparisons, folder: Path, *, narrow: bool, results: Path
) -> list[Path]:
    """Every figure of the page in every kind, and their captions; returns what was written.

    folder: where they go. narrow: as on a phone, for one of a paper's two columns. results: the
    folder of results, in which no link is followed.
    """
    figures, written = draw_all(experiment, outcome, ByDesign.of(experiment, outcome)), []
    width = NARROW if narrow else WIDE
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for figure in figures:
        with matplotlib.rc_context(), warnings.catch_warnings():
            # a matplotlibrc, of the working folder too, changes nothing and starts no LaTeX
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(WRITE_SETTINGS)
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            drawn = paper_figure(figure, width)
            for kind in FILE_KINDS:
                out = folder / f"{figure.key}.{kind}"
                written.append(write_out(out, partial(save, drawn, kind), results=results))
    captions = folder / "captions.md"
    return [*written, write_page(captions, captions_page(figures), results=results)]


def save(drawn: Any, kind: str, file: IO[bytes]) -> None:
    drawn.savefig(file, format=kind, dpi=DPI, metadata=UNDATED[kind])


def captions_page(figures: Sequence[Figure]) -> str:
    """Title, caption and text alternative of every figure."""
    parts = []
    for figure in figures:
        parts.append(f"# {figure.key}\n\n{figure.title}. {figure.caption}\n\n{figure.alt}\n")
    return "\n".join(parts)
