"""The corpora that have a name: list them, prepare them, open them.

What the command line's `data` commands call.
"""

import difflib
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from harness.corpora.corpus import (
    BUILT_IN,
    Corpus,
    HeldOut,
    corpus_folder,
    data_root,
    describe,
    read_corpus,
)
from harness.corpora.fineweb import prepare_fineweb
from harness.corpora.lock import lock
from harness.corpora.shard_writer import OnProgress, quiet
from harness.corpora.stdlib import prepare_stdlib
from harness.data.config import DataConfig
from harness.data.positions import refuse_short_train, refuse_short_val
from harness.data.shards import count_tokens
from harness.errors import UserError

# name -> how to make it in a folder
KNOWN: dict[str, Callable[..., Corpus]] = dict(zip(BUILT_IN, (prepare_stdlib, prepare_fineweb)))


def prepare(
    name: str,
    root: Path | str | None = None,
    *,
    n_shards: int | None = None,
    force: bool = False,
    progress: OnProgress = quiet,
) -> Corpus:
    """Make a known corpus, or return it as it is where it is prepared already.

    n_shards: of fineweb10B's training shards. Your own text: prepare_text. Raises UserError for an
    unknown name, a failed download or damaged files.
    root: where corpora lie, None for the user's own place. force: anew where it is prepared
    already.
    """
    folder = corpus_folder(name, root)
    if name not in KNOWN:
        raise UserError(
            f"unknown corpus '{name}'{near_miss(name, list(KNOWN))}: prepare "
            f"{' or '.join(KNOWN)}, or your own text"
        )
    if n_shards is not None and name != "fineweb10B":
        raise UserError(f"corpus '{name}' has no choice of shards: leave the number out")
    with lock(folder):
        if (folder / "corpus.json").exists() and not force:
            with suppress(UserError):  # damaged: made again
                corpus = read_corpus(folder)
                if n_shards in (None, len(corpus.train)):
                    return corpus
        if n_shards is None:
            return KNOWN[name](folder, progress)
        return KNOWN[name](folder, progress, n_shards=n_shards)


def open_corpus(name: str, root: Path | str | None = None) -> Corpus:
    """A prepared corpus, its shards' headers and sizes checked.

    Raises UserError that says what to run.
    """
    folder = corpus_folder(name, root)
    if (folder / "corpus.json").exists():
        return read_corpus(folder)
    if name in KNOWN:
        raise UserError(
            f"corpus '{name}' is not prepared in {folder.parent}: run `ablate data prepare {name}`"
        )
    names = list(KNOWN)
    for path in data_root(root).glob("*/corpus.json"):
        names.append(path.parent.name)
    raise UserError(
        f"no corpus '{name}' in {folder.parent}{near_miss(name, names)}: "
        "`ablate data list` shows what is there, `ablate data prepare text PATH... --name "
        f"{name}` makes it from your own text"
    )


def open_heldout(name: str, corpus: Corpus, root: Path | str | None = None) -> HeldOut:
    """What data.heldout names: the held-out text of a corpus, or else its validation text.

    Validation text only of a corpus that is another. Raises UserError where the corpus is not
    there, is `corpus` itself without held-out text, or has other tokens.
    """
    other = corpus if name == corpus.name else open_corpus(name, root)
    role = "heldout" if other.heldout else "val"
    if role == "val" and other.fingerprint == corpus.fingerprint:
        raise UserError(
            f"data.heldout: corpus '{name}' has no held-out text beside its validation set: "
            "prepare it with --heldout PATH, or name another corpus"
        )
    if (other.vocab_size, other.separator) != (corpus.vocab_size, corpus.separator):
        raise UserError(
            f"data.heldout: corpus '{name}' has a vocabulary of {other.vocab_size} tokens, "
            f"'{corpus.name}' one of "
            f"{corpus.vocab_size}: prepare it with the same tokenizer"
        )
    if other.tokenizer != corpus.tokenizer:
        raise UserError(
            f"data.heldout: corpus '{name}' has other tokens than '{corpus.name}', whose tokenizer "
            f"was trained on its text: prepare it with --tokenizer {corpus.name}"
        )
    shards = other.shards[role]
    digests = [other.files[path.name] for path in shards]
    return HeldOut(
        name=name,
        shards=shards,
        n_tokens=other.tokens[role],
        bytes_per_token=other.bytes_per_token[role] if other.bytes_per_token else None,
        fingerprint=hashlib.sha256(" ".join(digests).encode()).hexdigest(),
    )


def check_fits(corpus: Corpus, heldout: HeldOut | None, d: DataConfig, growth: int = 1) -> None:
    """Refuse, with the numbers, text too short for what a run would read, as its loaders would.

    growth: of passes and batches in the stage where they are the largest.
    """
    lengths = [count_tokens(path) for path in corpus.train]
    refuse_short_train(
        corpus.train,
        lengths,
        batch_tokens=d.batch_tokens,
        micro_tokens=d.micro_tokens,
        ranks=d.ranks,
        loader=d.loader,
        order=d.order,
        growth=growth,
    )
    refuse_short_val(
        corpus.val,
        [corpus.tokens["val"]],
        val_tokens=d.val_tokens,
        round_tokens=d.ranks * d.micro_tokens,
    )
    if heldout is not None:
        n = heldout.first_tokens(d.val_tokens, d.micro_tokens)
        refuse_short_val(
            heldout.shards, [heldout.n_tokens], val_tokens=n, round_tokens=d.micro_tokens
        )


def near_miss(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    if not close:
        return ""
    return f" (did you mean '{close[0]}'?)"


@dataclass(frozen=True, kw_only=True)
class CorpusRow:
    """One corpus of the list; what is not known of it is None."""

    name: str
    place: str
    missing: str | None  # what to do, None if nothing
    bytes: int  # of its shards
    documents: Mapping[str, int] | None = None
    tokens: Mapping[str, int] | None = None
    vocab_size: int | None = None
    unit: str | None = None
    fingerprint: str | None = None
    source: str | None = None


def list_corpora(root: Path | str | None = None) -> list[CorpusRow]:
    """Known corpora first, then others found under the root."""
    folder = data_root(root)
    names = list(KNOWN)
    if folder.is_dir():
        here = sorted(path.name for path in folder.glob("[!.]*") if path.is_dir())
        names += [name for name in here if name not in KNOWN]
    return [row(folder / name) for name in names]


def row(folder: Path) -> CorpusRow:
    """One corpus of the list."""
    missing: str | None = None
    corpus: Corpus | None = None
    try:
        if (folder / "corpus.json").exists():
            corpus = describe(folder)
            read_corpus(folder)
        else:
            missing = _how_to_prepare(folder)
    except UserError as error:
        missing = str(error)
    undescribed = CorpusRow(
        name=folder.name,
        place=str(folder),
        missing=missing,
        bytes=sum(path.stat().st_size for path in folder.glob("*.bin")),
    )
    if corpus is None:
        return undescribed
    return replace(
        undescribed,
        documents=corpus.documents,
        tokens=corpus.tokens,
        vocab_size=corpus.vocab_size,
        unit=corpus.unit,
        fingerprint=corpus.fingerprint,
        source=corpus.source,
    )


def _how_to_prepare(folder: Path) -> str:
    what = folder.name
    if what not in KNOWN:
        what = f"text PATH... --name {folder.name}"
    why = "its preparation was interrupted" if folder.exists() else "not prepared"
    return f"{why}: run `ablate data prepare {what}`"
