"""`data.cache: local`: a corpus copied to the node's own disk, once per node.

So that runs do not read it over the network.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from harness.corpora.corpus import Corpus, read_corpus
from harness.corpora.lock import lock
from harness.errors import UserError
from harness.run.digests import file_digest
from harness.run.files import write_text, write_whole

COPY_BYTES = 1 << 22  # copied in one go
WITHOUT = "set data.cache to none"


def cache_root() -> Path:
    """Where copies lie on this node.

    The environment's ABLATE_CACHE, else a folder of this user's in the temporary one.
    """
    if os.environ.get("ABLATE_CACHE"):
        return Path(os.environ["ABLATE_CACHE"])
    return Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}"


def cache_locally(corpus: Corpus, directory: Path | str | None = None) -> Corpus:
    """The corpus from `directory` (cache_root), copied there first unless it is.

    Who comes while another copies waits for it. The copy is checked against the sha256 of
    corpus.json on the way; what a killed process left half copied is copied anew. Raises
    UserError for a full disk, a folder that cannot be written, or a damaged source.
    """
    root = Path(directory or cache_root())
    digest = file_digest(corpus.folder / "corpus.json")  # held-out text is not in the fingerprint
    folder = root / f"{corpus.name}-{digest[:16]}"
    try:
        with lock(folder):
            if not (folder / "corpus.json").exists():
                copy(corpus, folder)
    except OSError as error:
        raise UserError(
            f"{error.filename or root}: {error.strerror}: make {root} writable, name another "
            f"folder in ABLATE_CACHE, or {WITHOUT}"
        ) from None
    return read_corpus(folder)


def copy(corpus: Corpus, folder: Path) -> None:
    """Every shard, then corpus.json, which makes the copy one."""
    folder.mkdir(exist_ok=True)
    for half_copied in folder.glob(".*"):  # by a process that was killed: the lock is ours
        half_copied.unlink()
    paths = [path for paths in corpus.shards.values() for path in paths]
    needed = sum(path.stat().st_size for path in paths)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder}: {free >> 20} MiB free, {corpus.name} takes {needed >> 20}: make room, or "
            f"{WITHOUT}"
        )
    for path in paths:
        copy_verified(path, folder / path.name, corpus.files[path.name])
    write_text(folder / "corpus.json", (corpus.folder / "corpus.json").read_text(encoding="utf-8"))


def copy_verified(source: Path, target: Path, sha256: str) -> None:
    """Copy, hashing on the way; `target` appears only if the content is what it should be."""

    def copy_into(copy: IO[bytes]) -> None:
        digest = hashlib.sha256()
        with open(source, "rb") as original:
            while block := original.read(COPY_BYTES):
                digest.update(block)
                copy.write(block)
        if digest.hexdigest() != sha256:
            raise UserError(
                f"{source}: its content is not what corpus.json says: prepare the corpus again"
            )

    write_whole(target, copy_into)
