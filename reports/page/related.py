"""Experiments that asked a page's question at other seeds: that confirm it, or that it confirms."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reports.inputs.experiment import Experiment

PAGE_ADDRESS = re.compile(r"(?:\.\./)*(?:[\w.-]+/)*[\w.-]+\.html")  # a page that a link may lead to
CONFIRMED = "Asked again on fresh seeds since, and judged there:"
CONFIRMS = "Asks again, on fresh seeds, what was explored in"


@dataclass(frozen=True, kw_only=True)
class Related:
    """Other experiments in a sentence: its beginning, and each with the address of its page."""

    words: str
    pages: Mapping[str, str]  # name -> relative address; '' where no page was there


def related(experiment: Experiment) -> list[Related]:
    """What to say of experiments that share a change and the baseline, by what was seen of them."""
    sentences, memory = [], experiment.memory
    told = {other.name for other in experiment.confirmations}
    confirmed_by = [name for name in memory.confirmed_by if name not in told]
    for beginning, names in ((CONFIRMED, confirmed_by), (CONFIRMS, memory.confirms)):
        pages = {}
        for name in names:
            pages[name] = address_of(experiment, name)
        if pages:
            sentences.append(Related(words=beginning, pages=pages))
    return sentences


def address_of(experiment: Experiment, name: str) -> str:
    """That of another's page, as a page of this one links it; '' where there is none."""
    address = experiment.pages.get(name, "")
    return address if PAGE_ADDRESS.fullmatch(address) else ""


def with_pages(experiment: Experiment, out: Path, results: Path | None) -> Experiment:
    """With the addresses of the others' pages that are there, as a page at `out` links them.

    results: the folder of results, where an experiment has its page by default."""
    pages = {}
    for name in (*experiment.memory.confirmed_by, *experiment.memory.confirms):
        candidates = [out.parent / f"{name}.html"]
        if results is not None:
            candidates.append(results / "experiments" / name / "report.html")
        for page in candidates:
            if page.is_file():
                pages[name] = Path(os.path.relpath(page, out.parent)).as_posix()
                break
    return replace(experiment, pages=pages)
