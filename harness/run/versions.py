"""The version of everything that is written for others to read.

A file says the version of its format as `schema`; one that says none is of the first. What an
earlier release wrote is read as it was meant; what a later one wrote is refused in one line, for
nobody knows what it means.
"""

from collections.abc import Mapping
from typing import Any

from harness.errors import UserError

FIRST = 1  # without a seal, where there is one now
RESULT = 2  # result.json; since 2 every file of a run is under its seal
CONFIG = 1  # config.yaml
PLAN = 2  # experiment.json; since 2 it has a seal
LOCK = 2  # plan.lock; in the first a bare list
LEDGER = 2  # a row of ledger.jsonl; since 2 it has a seal
PAGE = 2  # the data of a report, as its `format`
CLAIM = 1  # owner.json of an attempt
ARCHIVE = 1  # code/*.zip, in the comment of the archive


class NewerError(UserError):
    """Something that a later release has written."""


def version_of(content: Any) -> int:
    """The version that a file's content says; raises ValueError for one that is none."""
    version = content.get("schema", 1) if isinstance(content, Mapping) else 1
    if type(version) is not int or version < 1:
        raise ValueError(f"schema {version!r} is no version")
    return version


def check_version(content: Any, newest: int, what: object) -> int:
    """The version of some content; raises NewerError where a later release wrote it.

    what: the file, in words.
    """
    version = version_of(content)
    if version > newest:
        raise NewerError(
            f"{what}: format {version} of a later release, this one reads up to {newest}: "
            "read it with that release"
        )
    return version
