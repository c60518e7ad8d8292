"""Which version of this program wrote a page: a digest of all that makes one."""

import hashlib
from functools import cache
from pathlib import Path

WRITTEN_BY = "written_by"  # its key in the data of a page
VERSION = "0.1.0"  # of the project, as pyproject.toml and CITATION.cff have it
REPORTS = Path(__file__).resolve().parents[1]
MAKE_PAGES = (".py", ".j2", ".css", ".js")


@cache
def version() -> str:
    """A digest of the code and the templates of the report."""
    digest = hashlib.sha256()
    for path in sorted(REPORTS.rglob("*")):
        if path.suffix in MAKE_PAGES:
            digest.update(f"{path.relative_to(REPORTS).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
