"""The corpora that have a name: list them, prepare them, open them. What the command line's `data` commands call."""

import difflib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.data.corpus import BUILT_IN, Corpus, corpus_folder, data_root, describe, read_corpus
from harness.data.fineweb import prepare_fineweb
from harness.data.lock import lock
from harness.data.stdlib import prepare_stdlib
from harness.data.text import prepare_text
from harness.data.writer import Progress, quiet
from harness.errors import UserError

__all__ = ["KNOWN", "Corpus", "data_root", "list_corpora", "open_corpus", "prepare", "prepare_text"]

# name -> how to make it in a folder
KNOWN: dict[str, Callable[..., Corpus]] = dict(zip(BUILT_IN, (prepare_stdlib, prepare_fineweb)))


def prepare(
    name: str, root: Path | str | None = None, *, n_shards: int | None = None, force: bool = False, progress: Progress = quiet
) -> Corpus:
    """Make a known corpus, or return it as it is where it is prepared already. n_shards: of fineweb10B's training shards.

    Your own text: prepare_text. Raises UserError for an unknown name, a failed download or damaged files.
    """
    folder = corpus_folder(name, root)
    if name not in KNOWN:
        raise UserError(f"unknown corpus '{name}'{near_miss(name, list(KNOWN))}: prepare {' or '.join(KNOWN)}, or your own text")
    if n_shards is not None and name != "fineweb10B":
        raise UserError(f"corpus '{name}' has no choice of shards: leave the number out")
    with lock(folder):
        if (folder / "corpus.json").exists() and not force:
            with suppress(UserError):  # damaged: made again
                corpus = read_corpus(folder)
                if n_shards in (None, len(corpus.train)):
                    return corpus
        return KNOWN[name](folder, progress, **({"n_shards": n_shards} if n_shards is not None else {}))


def open_corpus(name: str, root: Path | str | None = None) -> Corpus:
    """A prepared corpus, its shards' headers and sizes checked; raises UserError that says what to run."""
    folder = corpus_folder(name, root)
    if (folder / "corpus.json").exists():
        return read_corpus(folder)
    if name in KNOWN:
        raise UserError(f"corpus '{name}' is not prepared in {folder.parent}: run `ablate data prepare {name}`")
    names = [*KNOWN, *(path.parent.name for path in data_root(root).glob("*/corpus.json"))]
    raise UserError(
        f"no corpus '{name}' in {folder.parent}{near_miss(name, names)}: "
        f"`ablate data list` shows what is there, `ablate data prepare text PATH... --name {name}` makes it from your own text"
    )


def near_miss(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def list_corpora(root: Path | str | None = None) -> list[dict[str, Any]]:
    """Known corpora first, then others found under the root: plain values; `missing` says what to do, None if nothing."""
    found = sorted(path.name for path in data_root(root).glob("[!.]*") if path.is_dir()) if data_root(root).is_dir() else []
    return [row(data_root(root) / name) for name in [*KNOWN, *(name for name in found if name not in KNOWN)]]


def row(folder: Path) -> dict[str, Any]:
    """One corpus of the list."""
    missing, corpus = None, None
    command = f"ablate data prepare {folder.name if folder.name in KNOWN else f'text PATH... --name {folder.name}'}"
    try:
        if (folder / "corpus.json").exists():
            corpus = describe(folder)
            read_corpus(folder)
        else:
            missing = f"{'its preparation was interrupted' if folder.exists() else 'not prepared'}: run `{command}`"
    except UserError as error:
        missing = str(error)
    return {
        "name": folder.name,
        "place": str(folder),
        "missing": missing,
        "bytes": sum(path.stat().st_size for path in folder.glob("*.bin")),
        "documents": dict(corpus.documents) if corpus and corpus.documents else None,
        "tokens": dict(corpus.tokens) if corpus else None,
        "vocab_size": corpus.vocab_size if corpus else None,
        "unit": corpus.unit if corpus else None,
        "fingerprint": corpus.fingerprint if corpus else None,
        "source": corpus.source if corpus else None,
    }
