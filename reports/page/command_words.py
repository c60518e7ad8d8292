"""A command as another reader types it: without the folders of the machine where it was typed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from shlex import join, split
from typing import Any

OF_RESULTS = "RESULTS"  # the folder of results, wherever another reader has it
WHOLE_PATH = r"~?/(?:[^/\s\"',:=]+/)*[^/\s\"',:=]+"
PATH = re.compile(rf"(?<![\w.:/~]){WHOLE_PATH}")  # not of an address
IN_ARGUMENTS = re.compile(rf"(?<![^\s\"'=,]){WHOLE_PATH}")  # of a script


def without_folders(command: str) -> str:
    """The command with a file's name in place of its whole path, RESULTS for that of the results.

    Files of one name in several folders keep as much of their paths as tells them apart. A command
    that a shell could not read is left as it is.
    """
    try:
        parts = [split(part) for part in command.split(" && ")]
    except ValueError:
        return command
    whole = [path for typed in parts for _, path in paths_of(typed) if path]
    for word in chain.from_iterable(parts):
        whole += IN_ARGUMENTS.findall(word.partition("@")[2])
    if not whole:
        return command
    return " && ".join(join(shorter_words(typed, whole)) for typed in parts)


def paths_of(typed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word's option, in front of `=` or as the word before, and its whole path; '' for none.

    A path ends at an `@`: what follows are arguments of the file.
    """
    before = ""
    for word in typed:
        option, _, value = word.rpartition("=")
        path = value.partition("@")[0]
        yield option or before, path if PurePath(path).is_absolute() else ""
        before = word


def shorter_words(typed: Sequence[str], whole: Sequence[str]) -> Iterator[str]:
    """The words of one command; whole: every whole path of the line."""
    for word, (option, path) in zip(typed, paths_of(typed), strict=True):
        if path:
            name = OF_RESULTS if option == "--results" else tail(path, whole)
            word = word.replace(path, name, 1)
        file, at, arguments = word.partition("@")
        yield file + at + IN_ARGUMENTS.sub(lambda inner: tail(inner[0], whole), arguments)


def tail(path: str, whole: Sequence[str]) -> str:
    """The end of a path that none of the others has: its name, with folders where it has to."""
    parts = PurePath(path).parts[1:]
    others = [PurePath(other).parts for other in whole if other != path]
    for n in range(1, len(parts)):
        if all(other[-n:] != parts[-n:] for other in others):
            return "/".join(parts[-n:])
    return "/".join(parts) or path


def without_paths(value: Any, whole: Sequence[str] = ()) -> Any:
    """A value of JSON with a name in place of every whole path in its texts.

    whole: the paths from which a name tells its own, with as much of its folders as that takes.
    """
    if isinstance(value, str):
        return PATH.sub(lambda path: tail(path[0], whole), value) if "/" in value else value
    if isinstance(value, Mapping):
        return {key: without_paths(each, whole) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(each, whole) for each in value]
    return value


def whole_paths(value: Any) -> Iterator[str]:
    """Every whole path in the texts of a value of JSON."""
    if isinstance(value, str):
        yield from PATH.findall(value) if "/" in value else ()
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(whole_paths, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(whole_paths, value))
