"""`data.cache: local`: a corpus copied to the node's own disk, once per node, so that runs do not read it over the network."""

import hashlib
import os
import shutil
from pathlib import Path

from harness.data.corpus import Corpus, read_corpus
from harness.data.lock import lock
from harness.data.shards import write_atomically
from harness.errors import UserError

COPY_BYTES = 1 << 22


def cache_locally(corpus: Corpus, directory: Path | str) -> Corpus:
    """The corpus from `directory`, copied there first unless it is; whoever comes while another copies waits for it.

    The copy is checked against the sha256 of corpus.json on the way. Raises UserError for a full disk or a damaged source.
    """
    folder = Path(directory) / f"{corpus.name}-{corpus.fingerprint[:16]}"
    with lock(folder):
        if not (folder / "corpus.json").exists():
            folder.mkdir(exist_ok=True)
            paths = [path for paths in corpus.shards.values() for path in paths]
            needed, free = sum(path.stat().st_size for path in paths), shutil.disk_usage(folder).free
            if needed > free:
                raise UserError(
                    f"{directory}: {free >> 20} MiB free, {corpus.name} takes {needed >> 20}: make room, or data.cache off"
                )
            for path in paths:
                copy_verified(path, folder / path.name, corpus.files[path.name])
            write_atomically(folder / "corpus.json", (corpus.folder / "corpus.json").read_bytes())
    return read_corpus(folder)


def copy_verified(source: Path, target: Path, sha256: str) -> None:
    """Copy, hashing on the way; `target` appears only if the content is what it should be."""
    partial, digest = target.with_name(f"{target.name}.partial"), hashlib.sha256()
    with open(source, "rb") as original, open(partial, "wb") as copy:
        while block := original.read(COPY_BYTES):
            digest.update(block)
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != sha256:
        partial.unlink()
        raise UserError(f"{source}: its content is not what corpus.json says: prepare the corpus again")
    partial.replace(target)
