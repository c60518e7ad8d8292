"""Whatever lies in a results folder is opened here, whoever filled the folder.

A folder from elsewhere may hold links that lead out of it, pipes that nobody writes to, devices
without an end, files of any size. So nothing in it is reached by following a link: the folder
itself may be one, everything below it is opened name by name from the handle of the folder above.
Files are regular ones of bounded size.

below: how many names at the end of a path lie in the results folder; links are followed before
them alone. runs/ID/FILE and experiments/NAME/FILE are three.
"""

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import IO

from harness.errors import UserError

IN_ROOT, KEPT, IN_FOLDER, OF_ATTEMPT = 1, 2, 3, 5  # names below a results folder
MIB = 1 << 20
MOST = {  # bytes of a file by its name
    "result.json": 2 * MIB,
    "config.yaml": 2 * MIB,
    "environment.json": 8 * MIB,
    "owner.json": MIB,
    "progress.json": MIB,
    "metrics.jsonl": 256 * MIB,
    "log.txt": 1024 * MIB,
    "checkpoint.pt": 64 * 1024 * MIB,
    "trunk.pt": 512 * 1024 * MIB,
}
MOST_OF_OTHERS = 64 * MIB
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = MIB
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPENDED = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RefusedFileError(UserError, OSError):
    """Something in a results folder that is not opened, and why."""

    def __init__(self, number: int, reason: str, path: str) -> None:
        super().__init__(number, reason, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def is_name(text: object) -> bool:
    """Whether a text can be the name of a run, an experiment or a kept file.

    It leads nowhere else and no command takes it for an option.
    """
    return isinstance(text, str) and NAME.fullmatch(text) is not None


def most_bytes(path: Path | str) -> int:
    """How large a file of this name may be."""
    return MOST.get(os.path.basename(path), MOST_OF_OTHERS)


@contextmanager
def folder_of(path: Path | str, below: int) -> Iterator[tuple[int, str]]:
    """A handle of the folder that a path stands in, and its last name."""
    given = str(path)
    parts = given.rsplit("/", below)
    above = "."
    if len(parts) > below:
        above = parts.pop(0) or "/"
    handle = os.open(above, _FOLDER)
    try:
        for n_after, name in zip(range(len(parts) - 1, 0, -1), parts, strict=False):
            inner = _inner(handle, name, given.rsplit("/", n_after)[0])
            os.close(handle)
            handle = inner
        _check_part(parts[-1], given)
        yield handle, parts[-1]
    finally:
        os.close(handle)


def _inner(handle: int, name: str, path: str) -> int:
    """The handle of a folder in a folder. path: its own, for what goes wrong."""
    _check_part(name, path)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(handle, name):
            raise _link(path) from None
        raise OSError(error.errno, error.strerror, path) from None


def _check_part(name: str, path: str) -> None:
    if name in ("", ".", ".."):
        raise RefusedFileError(errno.EINVAL, "leads out of the results folder", path)


def _is_link(handle: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.lstat(name, dir_fd=handle).st_mode)
    return False


def _link(path: str) -> RefusedFileError:
    return RefusedFileError(errno.ELOOP, "links in a results folder are not followed", path)


def open_file(path: Path | str, *, below: int = IN_FOLDER) -> int:
    """The descriptor of a regular file of bounded size; raises OSError where it is none."""
    given = str(path)
    with folder_of(path, below) as (handle, name):
        try:
            _check_regular(os.lstat(name, dir_fd=handle), given)
            descriptor = os.open(name, _FILE, dir_fd=handle)
        except RefusedFileError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _link(given) from None
            raise OSError(error.errno, error.strerror, given) from None
    try:
        _check_regular(os.fstat(descriptor), given)  # it may be another one by now
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_to_append(path: Path | str, *, below: int = IN_FOLDER) -> int:
    """The descriptor of a regular file that grows at its end, made where it is missing."""
    given = str(path)
    with folder_of(path, below) as (handle, name):
        try:
            descriptor = os.open(name, _APPENDED, 0o666, dir_fd=handle)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _link(given) from None
            raise OSError(error.errno, error.strerror, given) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedFileError(errno.EINVAL, "is no regular file", given)
    return descriptor


def _check_regular(facts: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(facts.st_mode):
        raise _link(path)
    if not stat.S_ISREG(facts.st_mode):
        raise RefusedFileError(errno.EINVAL, "is no regular file", path)
    if facts.st_size > most_bytes(path):
        raise _too_large(path)


def _too_large(path: str) -> RefusedFileError:
    reason = f"is larger than the {most_bytes(path) // MIB} MiB that such a file may have"
    return RefusedFileError(errno.EFBIG, reason, path)


def chunks_of(path: Path | str, *, below: int = IN_FOLDER) -> Iterator[bytes]:
    """The content of a file, piece by piece.

    Raises OSError, at once, where it is missing or must not be opened; later, where it grew too
    large meanwhile.
    """
    file = os.fdopen(open_file(path, below=below), "rb", buffering=0)
    return _pieces(file, str(path))


def _pieces(file: RawIOBase, path: str) -> Iterator[bytes]:
    left = most_bytes(path)
    with file:
        while piece := file.read(_CHUNK):
            left -= len(piece)
            if left < 0:
                raise _too_large(path)
            yield piece


def read_bytes(path: Path | str, *, below: int = IN_FOLDER) -> bytes:
    """A file's content; raises OSError where it is missing or must not be opened."""
    return b"".join(chunks_of(path, below=below))


def read_text(path: Path | str, *, below: int = IN_FOLDER) -> str:
    """A file's text; raises OSError, or ValueError where it is not UTF-8."""
    return read_bytes(path, below=below).decode()


def ends_of(path: Path | str, most: int, *, below: int = IN_FOLDER) -> tuple[bytes, int, bytes]:
    """The first bytes of a file and the last, at most so many of each.

    Between them: how many are left out.
    """
    with os.fdopen(open_file(path, below=below), "rb") as file:
        return ends_in(file, most)


def ends_in(file: IO[bytes], most: int) -> tuple[bytes, int, bytes]:
    """The same of an open file."""
    head = file.read(most)
    size = os.fstat(file.fileno()).st_size
    n_left_out = max(0, size - len(head) - most)
    file.seek(len(head) + n_left_out)
    return head, n_left_out, file.read(most)


def facts_of(
    folder: Path | str, names: Sequence[str], *, below: int = IN_FOLDER
) -> list[os.stat_result]:
    """The facts of regular files of a folder; raises OSError where one is missing or none.

    below: of the files.
    """
    given = str(folder)
    with folder_of(f"{given}/.facts", below) as (handle, _):
        facts = []
        for name in names:
            of_file = os.lstat(name, dir_fd=handle)
            _check_regular(of_file, f"{given}/{name}")
            facts.append(of_file)
        return facts


def is_file(path: Path | str, *, below: int = IN_FOLDER) -> bool:
    """Whether there is a regular file; raises OSError where nobody can tell, behind a link too."""
    try:
        with folder_of(path, below) as (handle, name):
            return stat.S_ISREG(os.lstat(name, dir_fd=handle).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def check_folder(folder: Path | str, *, below: int) -> None:
    """Raise OSError where a folder is missing, or a link."""
    with folder_of(f"{folder}/.names", below + 1):
        return


def entries_in(folder: Path | str, *, below: int) -> dict[str, str]:
    """What a folder holds: name -> "folder", "file", or "other": links, pipes, devices.

    below: of the folder. Empty where there is none; raises OSError where it is a link, or cannot be
    read.
    """
    kinds = {}
    try:
        with folder_of(f"{folder}/.names", below + 1) as (handle, _), os.scandir(handle) as entries:
            for entry in entries:
                kinds[entry.name] = "other"
                if entry.is_dir(follow_symlinks=False):
                    kinds[entry.name] = "folder"
                elif entry.is_file(follow_symlinks=False):
                    kinds[entry.name] = "file"
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return dict(sorted(kinds.items()))


def remove(path: Path | str, *, below: int) -> None:
    """Delete a file or a link, or a folder whole; nothing that a link leads to.

    A folder is renamed first, so that no half of it can be taken for a run.
    """
    try:
        with folder_of(path, below) as (handle, name):
            facts = os.lstat(name, dir_fd=handle)
            if not stat.S_ISDIR(facts.st_mode):
                os.unlink(name, dir_fd=handle)
                return
            grave = f".removed-{name}-{uuid.uuid4().hex[:8]}"
            os.rename(name, grave, src_dir_fd=handle, dst_dir_fd=handle)
            shutil.rmtree(grave, dir_fd=handle)
    except FileNotFoundError:
        return


def copy_file(source: Path | str, place: Path, *, below: int = IN_FOLDER) -> None:
    """A regular file's content into a new file. below: of the source."""
    pieces = chunks_of(source, below=below)
    with place.open("xb") as file:
        file.writelines(pieces)


def folders_in(folder: Path | str, *, below: int) -> list[str]:
    """The names of the folders in a folder, sorted; those that are links or no names are not named.

    below: of the folder.
    """
    entries = entries_in(folder, below=below)
    return [name for name, kind in entries.items() if kind == "folder" and is_name(name)]


def experiments_in(results: Path | str) -> list[str]:
    """The names of the experiments of a results folder, those that cannot be read among them."""
    folder = f"{results}/experiments"
    names = []
    for name, kind in entries_in(folder, below=IN_ROOT).items():
        place = f"{folder}/{name}/experiment.json"
        if is_name(name) and (kind == "other" or (kind == "folder" and _may_be(place))):
            names.append(name)
    return names


def _may_be(path: str) -> bool:
    """Whether something has this name, or nobody can tell."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True
