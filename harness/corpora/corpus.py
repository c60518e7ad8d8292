"""A prepared corpus: the folder `<data root>/<name>/` with its shards, and corpus.json.

corpus.json is written last: a folder without it is not prepared, whatever lies in it. The
fingerprint depends on content alone: runs on different fingerprints are never compared.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.data.shards import count_tokens
from harness.errors import UserError
from harness.run.digests import file_digest, spaced_digest
from harness.run.document import Content
from harness.run.files import write_text
from harness.run.guarded import is_name

CORPUS_SCHEMA = 1  # of corpus.json
SPLITS = ("train", "val", "heldout")
TOKENIZER_FILE = "tokenizer.json"  # of a corpus whose tokenizer was trained on text
BUILT_IN = ("stdlib", "fineweb10B")  # names that your own text cannot take


def data_root(root: Path | str | None = None) -> Path:
    """The folder of all corpora: the argument, else the environment's ABLATE_DATA, else ./data."""
    return Path(root or os.environ.get("ABLATE_DATA") or "data")


def corpus_folder(name: str, root: Path | str | None = None) -> Path:
    if not is_name(name):
        raise UserError(
            f"corpus name {name!r}: use letters, digits, '.', '_' and '-' only, not starting with "
            "'.' or '-'"
        )
    return data_root(root) / name


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Facts of a prepared corpus; train, val and heldout are its shards in reading order."""

    name: str
    folder: Path
    vocab_size: int
    separator: int  # opens every document
    unit: str  # of a loss: "nats per byte" where every token is a byte, else "nats per token"
    # role -> bytes of text per token, separators counted; None if unknown
    bytes_per_token: Mapping[str, float] | None
    documents: Mapping[str, int] | None  # role -> number of documents; None if unknown
    tokens: Mapping[str, int]  # role -> number of tokens
    shards: Mapping[str, tuple[Path, ...]]  # role -> files
    files: Mapping[str, str]  # file name -> sha256
    fingerprint: str
    source: str

    @property
    def train(self) -> tuple[Path, ...]:
        return self.shards["train"]

    @property
    def val(self) -> tuple[Path, ...]:
        return self.shards["val"]

    @property
    def tokenizer(self) -> str | None:
        """sha256 of the tokenizer's file that lies with the corpus; None where there is none."""
        return self.files.get(TOKENIZER_FILE)

    @property
    def heldout(self) -> tuple[Path, ...]:
        """Other text than the corpus's own, for a second metric; not part of the fingerprint.

        Often empty.
        """
        return self.shards["heldout"]

    def bits_per_byte(self, loss: float, role: str = "val") -> float | None:
        """A loss in nats per token, comparable across tokenizers.

        None where the corpus does not know its bytes.
        """
        if self.bytes_per_token is None:
            return None
        return loss / math.log(2) / self.bytes_per_token[role]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Text beside the validation set, for a second metric.

    The held-out shards of a corpus, or its validation shards.
    """

    name: str  # of the corpus that holds it
    shards: tuple[Path, ...]
    n_tokens: int
    bytes_per_token: float | None
    fingerprint: str  # of the shards' content

    def first_tokens(self, at_most: int, micro_tokens: int) -> int:
        """How many tokens are validated on: `at_most`, or the whole micro-batches there are.

        At least one, to be refused.
        """
        whole = (self.n_tokens - 1) // micro_tokens * micro_tokens
        return max(micro_tokens, min(at_most, whole))


def fingerprint_of(vocab_size: int, separator: int, sha256s: Mapping[str, Sequence[str]]) -> str:
    """sha256 over what training and validation read.

    The shards' contents in order, the vocabulary, the separator.
    """
    content: Content = {"vocab_size": vocab_size, "separator": separator}
    for role in ("train", "val"):
        content[role] = list(sha256s[role])
    return spaced_digest(content)


def write_corpus(
    folder: Path,
    shards: Mapping[str, Sequence[Path]],
    *,
    vocab_size: int,
    separator: int,
    unit: str,
    source: str,
    documents: Mapping[str, int] | None = None,
    text_bytes: Mapping[str, int] | None = None,
) -> Corpus:
    """Hash the shards of each role and write corpus.json: from here on the corpus is prepared.

    A tokenizer's file that lies in the folder is the corpus's, and hashed as well.

    separator: the token before every document. unit: of a loss. source: where the text is from,
    in words.
    documents, text_bytes: how many there are in each role, None where it is not known.
    folder: of the corpus. vocab_size: tokens of its tokenizer.
    """
    tokens: dict[str, int] = {}
    for role in SPLITS:
        if shards.get(role):
            tokens[role] = sum(map(count_tokens, shards[role]))
    names: dict[str, list[str]] = {}
    digests: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    for role in SPLITS:
        paths = shards.get(role, ())
        names[role] = [path.name for path in paths]
        digests[role] = list(map(file_digest, paths))
        files.update(zip(names[role], digests[role], strict=True))
    if (folder / TOKENIZER_FILE).exists():
        files[TOKENIZER_FILE] = file_digest(folder / TOKENIZER_FILE)
    bytes_per_token = None
    if text_bytes:
        bytes_per_token = {role: text_bytes[role] / n for role, n in tokens.items()}
    facts = {
        "schema": CORPUS_SCHEMA,
        "name": folder.name,
        "vocab_size": vocab_size,
        "separator": separator,
        "unit": unit,
        "bytes_per_token": bytes_per_token,
        "documents": {role: documents[role] for role in tokens} if documents else None,
        "tokens": tokens,
        "shards": names,
        "files": files,
        "fingerprint": fingerprint_of(vocab_size, separator, digests),
        "source": source,
    }
    write_text(folder / "corpus.json", json.dumps(facts, indent=1) + "\n")
    return read_corpus(folder)


def read_corpus(folder: Path) -> Corpus:
    """The corpus in `folder`.

    Raises UserError where corpus.json is unreadable, or a shard is missing, damaged or
    replaced.
    """
    corpus = describe(folder)
    for role, paths in corpus.shards.items():
        n_tokens = sum(map(count_tokens, paths))
        described = corpus.tokens.get(role, 0)
        if n_tokens != described:
            raise UserError(
                f"{folder}: its {role} shards hold {n_tokens} tokens, corpus.json says "
                f"{described}: prepare the corpus again"
            )
    return corpus


def describe(folder: Path) -> Corpus:
    """What corpus.json says, its shards not looked at."""
    path = folder / "corpus.json"
    try:
        facts = json.loads(path.read_bytes())
        schema, names = facts.pop("schema"), facts.pop("shards")
        shards = {role: tuple(folder / Path(name).name for name in names[role]) for role in SPLITS}
        corpus = Corpus(folder=folder, shards=shards, **facts)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}): prepare the corpus again"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: not a corpus description ({type(error).__name__}: {error}): prepare the "
            "corpus again"
        ) from None
    if schema != CORPUS_SCHEMA:
        raise UserError(
            f"{path}: schema {schema}, this program reads schema {CORPUS_SCHEMA}: "
            "prepare the corpus again"
        )
    return corpus
