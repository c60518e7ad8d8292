"""The embedded corpus: the source files of the running CPython's standard library.

Real text that every machine has.
Its content differs between Python versions (and distributions), and so does its fingerprint.
"""

import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from harness.corpora.corpus import Corpus
from harness.corpora.shard_writer import CorpusWriter, OnProgress, quiet, split_roles
from harness.corpora.text import TextFile, by_hash, file_blocks
from harness.corpora.tokenizers import open_tokenizer
from harness.errors import UserError

NOT_ITS_OWN = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
TABLES_AND_EXTRAS = {  # or shipped apart
    "encodings",
    "lib2to3",
    "idlelib",
    "turtledemo",
    "ensurepip",
    "tkinter",
    "distutils",
}
SKIPPED_PREFIXES = ("config-", "_sysconfigdata")


def prepare_stdlib(folder: Path, progress: OnProgress = quiet) -> Corpus:
    """One document per file, bytes as tokens, split by whole files.

    Files come in the order of a hash of their path.
    """
    stdlib = Path(sysconfig.get_path("stdlib"))
    by_content: dict[bytes, TextFile] = {}
    for text in by_hash(source_files(stdlib)):
        by_content[text.path.read_bytes()] = text  # copies could fall into training and validation
    texts = list(by_content.values())
    if not texts:
        raise UserError(
            f"{sysconfig.get_path('stdlib')}: no source files of the standard library here: use a "
            "Python that ships them"
        )
    roles = split_roles([text.size for text in texts])
    with CorpusWriter(folder, open_tokenizer("bytes")) as writer:
        for done, (text, role) in enumerate(zip(texts, roles), 1):
            writer.add(role, file_blocks(text.path))
            progress(done, len(texts))
        return writer.finish(
            f"standard library of {platform.python_implementation()} {platform.python_version()}"
        )


def source_files(stdlib: Path) -> Iterator[TextFile]:
    """Every .py file of the library proper that is a plain file and not empty."""
    for here, folders, files in os.walk(stdlib):
        folders[:] = filter(is_library, folders)
        for name in files:
            path = Path(here, name)
            if not name.endswith(".py") or name.startswith(SKIPPED_PREFIXES) or path.is_symlink():
                continue
            size = path.stat().st_size
            if size:
                yield TextFile(path=path, key=path.relative_to(stdlib).as_posix(), size=size)


def is_library(folder: str) -> bool:
    if folder in NOT_ITS_OWN or folder in TABLES_AND_EXTRAS:
        return False
    return not folder.startswith(SKIPPED_PREFIXES)
