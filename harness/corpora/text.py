"""Your own text as a corpus: .txt, .md, .jsonl, source trees; documents by file, line or paragraph.

Files come in the order of a hash of their path, so that training and validation are alike. Whole
files are split by size, smaller documents by a hash of their content; equal ones fall to the same
side.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.corpora import bpe
from harness.corpora.corpus import BUILT_IN, Corpus, corpus_folder
from harness.corpora.lock import lock
from harness.corpora.shard_writer import (
    SHARD_TOKENS,
    VAL_SHARE,
    CorpusWriter,
    OnProgress,
    quiet,
    split_roles,
)
from harness.corpora.tokenizers import TOKENIZERS, Tokenizer, TokenizerChoice, open_tokenizer
from harness.errors import UserError
from harness.run.digests import file_digest

BLOCK_BYTES = 1 << 20  # of a text, read in one go
BYTES = TokenizerChoice(name="bytes")
TextBlocks = Iterable[bytes]  # blocks of its text


@dataclass(frozen=True, kw_only=True)
class TextFile:
    path: Path
    key: str  # path below the argument it was found through; decides the order
    size: int  # bytes


def prepare_text(
    paths: Sequence[Path | str],
    *,
    name: str,
    root: Path | str | None = None,
    documents: str = "file",
    tokenizer: TokenizerChoice = BYTES,
    heldout: Sequence[Path | str] = (),
    shard_tokens: int = SHARD_TOKENS,
    progress: OnProgress = quiet,
) -> Corpus:
    """Make corpus `name` from files and folders of text, anew each time; raises UserError.

    The same text gives the same fingerprint. Memory is bounded by the largest line or paragraph.
    documents: "file", "line", "paragraph" (parted by blank lines); .jsonl is always one JSON
    object with a "text" a line.
    heldout: further text for a second metric. root: where corpora lie. shard_tokens: at most so
    many in a file. progress: told of what is read.
    paths: files and folders.
    """
    if documents not in DOCUMENTS or documents == "jsonl":
        raise UserError(f"--by {documents}: choose file, line or paragraph")
    if name in BUILT_IN:
        raise UserError(f"'{name}' is the name of a built-in corpus: give your text another")
    refuse_choice(tokenizer)
    texts, others = find_texts(paths), find_texts(heldout)
    roles = split_files([text for text in texts if reader_of(text, documents) == "file"])
    opened = open_choice(tokenizer, root, training_text(texts, documents, roles))
    total, done = sum(text.size for text in texts + others), 0
    folder = corpus_folder(name, root)
    with lock(folder), CorpusWriter(folder, opened, shard_tokens) as writer:
        for text in texts + others:
            role = "heldout" if text in others else roles.get(text.path)
            add_documents(writer, text, documents, role)
            done += text.size
            progress(done, total)
        sources = ", ".join(map(str, paths))
        return writer.finish(
            f"text: {sources}; documents by {documents}; tokenizer {tokenizer.name}"
        )


def refuse_choice(tokenizer: TokenizerChoice) -> None:
    """Raises UserError, before any text is read, for options that do not go together."""
    if tokenizer.name == "bpe":
        bpe.checked_size(tokenizer.vocab)
        bpe.library()
    elif tokenizer.vocab is not None:
        raise UserError(
            f"--vocab is for --tokenizer bpe, which is trained on the text; {tokenizer.name} has "
            "its own size: leave it out"
        )
    if tokenizer.vocabulary is not None and tokenizer.name not in TOKENIZERS:
        raise UserError(
            f"--vocabulary is for --tokenizer gpt2; {tokenizer.name} needs none: leave it out"
        )


def open_choice(
    tokenizer: TokenizerChoice, root: Path | str | None, training: Iterable[str]
) -> Tokenizer:
    """The tokenizer that was chosen: of the table, trained on the text, or another corpus's."""
    if tokenizer.name == "bpe":
        return bpe.train(training, bpe.checked_size(tokenizer.vocab))
    if tokenizer.name in TOKENIZERS:
        return open_tokenizer(tokenizer.name, tokenizer.vocabulary)
    return bpe.of_corpus(tokenizer.name, root)


def training_text(
    texts: Sequence[TextFile], documents: str, roles: dict[Path, str]
) -> Iterator[str]:
    """What is trained on, in order and in blocks."""
    for text in texts:
        with told_if_not_utf8(text):
            for role, document in placed(text, documents, roles.get(text.path)):
                if role == "train":
                    for block in document:
                        yield block.decode("utf-8")


def add_documents(writer: CorpusWriter, text: TextFile, documents: str, role: str | None) -> None:
    """Write a file's documents, each on its side."""
    with told_if_not_utf8(text):
        for side, document in placed(text, documents, role):
            writer.add(side, document)


def placed(text: TextFile, documents: str, role: str | None) -> Iterator[tuple[str, TextBlocks]]:
    """A file's documents with their roles; without one of the file each one's content decides."""
    for document in DOCUMENTS[reader_of(text, documents)](text.path):
        if role is not None:
            yield role, document
        else:
            blocks = list(document)  # one line or paragraph
            yield side_of(blocks), blocks


@contextmanager
def told_if_not_utf8(text: TextFile) -> Iterator[None]:
    """What a tokenizer that needs UTF-8 found to be none, with the file's name."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(
            f"{text.path}: not UTF-8 (byte 0x{error.object[error.start]:02x}): convert it "
            "(iconv -t utf-8), leave it out, or use the bytes tokenizer"
        ) from None


def split_files(texts: Sequence[TextFile]) -> dict[Path, str]:
    """The role of each whole file, by size; copies of one text fall to the same side."""
    of_size = Counter(text.size for text in texts)
    copies: dict[tuple[int, str], list[TextFile]] = {}
    for text in texts:
        content = file_digest(text.path) if of_size[text.size] > 1 else ""
        copies.setdefault((text.size, content), []).append(text)
    groups = list(copies.values())
    sizes = [sum(text.size for text in group) for group in groups]
    roles = {}
    for group, role in zip(groups, split_roles(sizes)):
        for text in group:
            roles[text.path] = role
    return roles


def reader_of(text: TextFile, documents: str) -> str:
    return "jsonl" if text.path.suffix == ".jsonl" else documents


def side_of(document: TextBlocks) -> str:
    """A share of VAL_SHARE of all documents, by content."""
    digest = hashlib.sha256(b"".join(document)).digest()
    return "val" if int.from_bytes(digest[:8]) < VAL_SHARE * 2**64 else "train"


def by_hash(texts: Iterable[TextFile]) -> list[TextFile]:
    """In an order that has nothing to do with what the files hold, the same on every machine."""
    return sorted(texts, key=hash_of_key)


def hash_of_key(text: TextFile) -> tuple[bytes, str]:
    return hashlib.sha256(text.key.encode()).digest(), str(text.path)


def find_texts(paths: Sequence[Path | str]) -> list[TextFile]:
    """Files as named; of folders, every text file below that is not hidden, linked or empty.

    Raises UserError for a bad path.
    """
    texts: dict[Path, TextFile] = {}
    for path in map(Path, paths):
        inside = list(files_below(path)) if path.is_dir() else [path]
        for file in inside:
            if not file.is_file():
                raise UserError(f"{file}: no such file or folder: check the path")
            if is_binary(file):
                if path.is_dir():
                    continue
                raise UserError(
                    f"{file}: not a text file (it holds NUL bytes): give .txt, .md, .jsonl or "
                    "source files"
                )
            size = file.stat().st_size
            if size:
                key = key_below(file, path)
                texts[file.resolve()] = TextFile(path=file, key=key, size=size)
        if not inside:
            raise UserError(f"{path}: no file below this folder: check the path")
    return by_hash(texts.values())


def key_below(file: Path, path: Path) -> str:
    """A file's path below the argument it was found through, which opens it."""
    if file == path:
        return file.name
    return f"{path.resolve().name}/{file.relative_to(path).as_posix()}"


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below a folder that is neither hidden nor linked."""
    for here, folders, files in os.walk(folder):
        folders[:] = filter(is_searched, folders)
        for name in files:
            path = Path(here, name)
            if not name.startswith(".") and not path.is_symlink():
                yield path


def is_searched(folder: str) -> bool:
    return not folder.startswith(".") and folder != "__pycache__"


def is_binary(path: Path) -> bool:
    with open(path, "rb") as file:
        return b"\0" in file.read(8192)


def whole_file(path: Path) -> Iterator[TextBlocks]:
    yield file_blocks(path)


def lines(path: Path) -> Iterator[TextBlocks]:
    """Every line that is not blank, with its newline."""
    with open(path, "rb") as file:
        yield from ([line] for line in file if not line.isspace())


def paragraphs(path: Path) -> Iterator[TextBlocks]:
    """Runs of lines that are not blank."""
    paragraph: list[bytes] = []
    with open(path, "rb") as file:
        for line in file:
            if not line.isspace():
                paragraph.append(line)
            elif paragraph:
                yield [b"".join(paragraph)]
                paragraph = []
    if paragraph:
        yield [b"".join(paragraph)]


def json_lines(path: Path) -> Iterator[TextBlocks]:
    """The "text" of every line's JSON object; blank lines and empty texts are passed over."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                text = json.loads(line)["text"].encode()
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UserError(
                    f'{path}, line {number}: not a JSON object with a string "text": '
                    "mend or remove the line"
                ) from None
            if text:
                yield [text]


DOCUMENTS: dict[str, Callable[[Path], Iterator[TextBlocks]]] = {
    "file": whole_file,
    "line": lines,
    "paragraph": paragraphs,
    "jsonl": json_lines,
}


def file_blocks(path: Path) -> Iterator[bytes]:
    """A file's bytes in blocks of about BLOCK_BYTES.

    They are cut where a tokenizer of words and spaces would cut anyway.
    """
    rest = b""
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            rest += block
            cut = safe_cut(rest)
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
    if rest:
        yield rest


LAST_WORD_END = re.compile(rb".*\S(?=[ \n])", re.DOTALL)


def safe_cut(block: bytes) -> int:
    """The last place before a space or newline that follows a visible character.

    GPT-2's pattern never joins across it. 0 where the block's end has no such place (then read
    on), unless it is already far too long (then
    before its last character).
    """
    start, cut = max(0, len(block) - 65536), len(block)
    while word_end := LAST_WORD_END.match(block, start, cut):
        cut = word_end.end()
        last = block[max(0, cut - 4) : cut].decode("utf-8", "ignore")[-1:]
        if not last.isspace():  # U+00A0 and the like are spaces too
            return cut
    if len(block) > 16 * BLOCK_BYTES:
        cut = len(block) - 1
        while cut and block[cut] & 0xC0 == 0x80:  # within a character of several bytes
            cut -= 1
        return cut
    return 0
