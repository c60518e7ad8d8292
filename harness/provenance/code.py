"""The kept code of foreign trainers."""

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.provenance.source import Source, zipped
from harness.run.archive import check_size, unpacked
from harness.run.code import CODE_LIMIT, code_digest
from harness.run.digests import short_digest
from harness.run.guarded import KEPT, MIB, MOST_OF_OTHERS, read_bytes


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

    def write(self, folder: Path) -> None:
        """Write a clean copy, what opens with #! as a program."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if content[:2] == b"#!":
                path.chmod(0o755)

    def zipped(self) -> bytes:
        """The same bytes for the same files; raises UserError where they are no code, but data."""
        cure = "name less of it; data is linked"
        try:
            check_size(len(self.files), sum(map(len, self.files.values())))
        except ValueError as error:
            raise UserError(f"the code of {self.script}: {error}: {cure}") from None
        content = zipped(self.files)
        if len(content) > MOST_OF_OTHERS:
            size = f"{len(content) / MIB:.0f} MiB, more than the {MOST_OF_OTHERS // MIB} MiB"
            raise UserError(
                f"the code of {self.script}: its archive has {size} that one may: {cure}"
            )
        return content


def read_code(archive: Path, script: str, *, digest: str | None) -> Code:
    """The code that `Code.zipped` was kept of. Raises UserError where it is gone or another."""
    code = Code(script=script, files=archived(archive))
    if code.source.digest != digest:
        raise UserError(
            f"{archive}: is not the code that its name says: bring the script back, or start anew"
        )
    return code


def archived(archive: Path) -> dict[str, bytes]:
    """The files of an archive; raises UserError where it is none, or beyond all bounds."""
    try:
        return unpacked(read_bytes(archive, below=KEPT))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"{archive}: the code that ran is gone or damaged ({reason}): bring the script back,"
            " or start anew"
        ) from None


def _digest(name: str, content: bytes) -> str:
    if name.endswith(".py") and len(content) <= CODE_LIMIT:
        with suppress(SyntaxError, ValueError, RecursionError):  # of another Python, or not text
            return code_digest(content.decode("utf-8"))
    return short_digest(content.hex())  # every byte counts
