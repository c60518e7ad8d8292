"""Log files that a script writes itself, in its clean copy: read as they grow, kept with the run.

Only regular files of the copy are looked at: data that is linked into it is none of them.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from harness.errors import UserError
from harness.foreign.log_lines import LINE_LIMIT
from harness.provenance.redact import redact
from harness.run.digests import short_digest
from harness.run.files import write_text
from harness.run.foreign import OWN_LOG
from harness.run.guarded import IN_FOLDER, ends_in
from harness.store.attempt import RunWriter
from harness.store.errors import ResultsError

KEPT_FOLDER = "logs/**/*"  # what is kept of every run, beside the files of its pattern
MAX_FILES = 64  # that are kept
MAX_NAME = 120  # characters of a name
MAX_KEPT = 8 << 20  # bytes of one: of a longer one its head and its tail
CHUNK = 1 << 16  # bytes that are read at once
NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def check_pattern(pattern: str, where: str) -> None:
    """Raises UserError for a pattern that does not stay in the clean copy, or is none."""
    path = PurePosixPath(pattern)
    leaves = path.is_absolute() or ".." in path.parts
    is_no_glob = any("**" in part and part != "**" for part in path.parts)
    if not path.parts or leaves or is_no_glob:
        raise UserError(
            f"{where}: {pattern!r} must be a pattern of files in the script's own folder, "
            "as in 'logs/*.txt'"
        )


class OwnLogs:
    """The files of a pattern in a clean copy, read as they grow."""

    def __init__(self, copy: Path, pattern: str) -> None:
        self.copy = copy
        self.pattern = pattern
        self.n_bytes = 0  # read of all of them
        self._seen: dict[str, tuple[int, bytes]] = {}  # file -> bytes read, its unfinished line

    def fresh(self, *, at_end: bool = False) -> Iterator[tuple[str, list[bytes]]]:
        """The lines that came since the last look, file by file, some at a time.

        at_end: a last line that is not ended counts too."""
        for name in own_files(self.copy, self.pattern):
            for lines in self._batches_of(name):
                if lines:
                    yield name, lines
            n_read, rest = self._seen.get(name, (0, b""))
            if at_end and rest:
                self._seen[name] = (n_read, b"")
                yield name, [rest]

    def _batches_of(self, name: str) -> Iterator[list[bytes]]:
        n_read, rest = self._seen.get(name, (0, b""))
        with suppress(OSError), _opened(self.copy / name) as file:
            size = os.fstat(file.fileno()).st_size  # what comes later is the next look's
            if size < n_read:  # it was begun anew
                n_read, rest = self._seen[name] = (0, b"")
            file.seek(n_read)
            while n_read < size and (chunk := file.read(CHUNK)):
                n_read += len(chunk)
                self.n_bytes += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LINE_LIMIT:
                    lines.append(rest)
                    rest = b""
                self._seen[name] = (n_read, rest)
                yield [line[:LINE_LIMIT] for line in lines]


def own_files(copy: Path, pattern: str) -> list[str]:
    """The names of a copy's own regular files of a pattern, sorted."""
    names = []
    root = copy.resolve()
    for path in sorted(copy.glob(pattern)):
        with suppress(OSError):  # the script renamed or removed it meanwhile
            inside = path.parent.resolve().is_relative_to(root)
            if inside and stat.S_ISREG(path.lstat().st_mode):
                names.append(path.relative_to(copy).as_posix())
    return names


def _opened(path: Path) -> IO[bytes]:
    """A regular file for reading; never waits for a pipe."""
    return os.fdopen(os.open(path, _FILE), "rb")


def set_aside_own_logs(out: RunWriter) -> None:
    """Move what an attempt before left of its own logs to what is kept of that attempt."""
    for old in sorted(out.run.glob(f"{OWN_LOG}*")):
        before = out.run / "attempts" / str(out.attempt - 1)
        before.mkdir(exist_ok=True)
        os.replace(old, before / old.name)


def keep_own_logs(copy: Path, pattern: str | None, out: RunWriter) -> None:
    """Keep what the script wrote into logs/, and its files of the pattern; said what is not.

    Without secrets, as own-NAME beside log.txt. Raises ResultsError where it cannot be written."""
    names = dict.fromkeys(own_files(copy, KEPT_FOLDER))
    if pattern is not None:
        names |= dict.fromkeys(own_files(copy, pattern))
    kept: set[str] = set()
    for name in names:
        if len(kept) == MAX_FILES or not out.still_mine():
            out.log(f"{name} and later files are not kept: {MAX_FILES} files of a run are")
            return
        try:
            text = _text_of(copy / name)
        except OSError as error:
            out.log(f"{name} cannot be read ({error.strerror}): it is not kept")
            continue
        if text is None:
            out.log(f"{name} is no text: it is not kept")
            continue
        place = _kept_name(name)
        if place in kept:  # of another file: a/b.txt and a-b.txt
            place = f"{OWN_LOG}{short_digest(name)}-{place.removeprefix(OWN_LOG)}"
        kept.add(place)
        try:
            write_text(out.run / place, redact(text), below=IN_FOLDER)
        except OSError as error:
            raise ResultsError(out.store.root, error) from error


def _kept_name(name: str) -> str:
    """own-logs-a.txt of logs/a.txt; of a name that is too long its end."""
    return OWN_LOG + NO_NAME.sub("-", name)[-MAX_NAME:]


def _text_of(path: Path) -> str | None:
    """A file's text, of a long one its head and its tail; None where it is none."""
    with _opened(path) as file:
        head, n_left_out, tail = ends_in(file, MAX_KEPT // 2)
    gap = f"\n[... {n_left_out} bytes are left out here ...]\n" if n_left_out else ""
    content = head + gap.encode() + tail
    if b"\0" in content:
        return None
    return content.decode("utf-8", "replace")
