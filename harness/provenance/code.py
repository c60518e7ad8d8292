"""The kept code of foreign trainers."""

import ast
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.provenance.source import Source, code_digest, zipped
from harness.run.digests import short_digest


@dataclass(frozen=True, kw_only=True)
class Code:
    """The files of a trainer by their path in a clean copy, patches applied.

    `script` is the one that is run.
    """

    script: str
    files: Mapping[str, bytes]

    @property
    def source(self) -> Source:
        """Digests that comments, docstrings and layout do not move, where a file is Python."""
        digests = {name: _digest(name, content) for name, content in sorted(self.files.items())}
        return Source(digest=short_digest([self.script, digests]), files=digests)

    def imports(self, package: str) -> bool:
        """Whether the script needs a package.

        It imports it at its top, where nothing catches that it is missing.
        """
        try:
            top = ast.parse(self.files[self.script]).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        for statement in top:
            modules: list[str] = []
            if isinstance(statement, ast.Import):
                modules = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom) and not statement.level:
                modules = [statement.module or ""]
            for module in modules:
                if module.partition(".")[0] == package:
                    return True
        return False

    def zipped(self) -> bytes:
        """The same bytes for the same files."""
        return zipped(self.files)


def unzip(archive: Path, folder: Path) -> None:
    """Write a clean copy, what opens with #! as a program.

    Names that lead out of the folder are refused by zipfile.
    """
    with zipfile.ZipFile(archive) as zipped:
        for name in zipped.namelist():
            path = Path(zipped.extract(name, folder))
            if zipped.read(name)[:2] == b"#!":
                path.chmod(0o755)


def read_code(archive: Path, script: str) -> Code:
    """The code that `Code.zipped` was kept of. Raises UserError where it is gone."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            return Code(
                script=script, files={name: zipped.read(name) for name in zipped.namelist()}
            )
    except (OSError, zipfile.BadZipFile):
        raise UserError(
            f"{archive}: the code that ran is gone or damaged: bring the script back, or start anew"
        ) from None


def _digest(name: str, content: bytes) -> str:
    if name.endswith(".py"):
        with suppress(SyntaxError, ValueError, RecursionError):  # of another Python, or not text
            return code_digest(content.decode("utf-8"))
    return short_digest(content.hex())  # every byte counts
