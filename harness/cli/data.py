"""Corpora: what there is, make one, check one."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.command import takes
from harness.cli.options import Json
from harness.cli.table import print_json, print_table
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.corpora.corpus import Corpus

data = typer.Typer(
    help="Corpora: embedded, FineWeb, your own text.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data, name="data")
Root = Annotated[
    Path | None,
    typer.Option("--data", help="folder of all corpora; default $ABLATE_DATA, else ./data"),
]


Paths = Annotated[
    list[Path] | None,
    typer.Argument(help="for text: files and folders (.txt, .md, .jsonl, source)"),
]
CorpusName = Annotated[str | None, typer.Option("--name", help="for text: the corpus's name")]
TokenizerName = Annotated[
    str,
    typer.Option(
        help="for text: bytes, gpt2, bpe (trained on the text), or a corpus with a bpe of its own"
    ),
]
Vocab = Annotated[
    int | None,
    typer.Option(help="for text with bpe: how many tokens, the separator among them; say, 4096"),
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(help="for text with gpt2: a vocabulary file, where there is no network"),
]
By = Annotated[str, typer.Option(help="for text: one document per file, line or paragraph")]
HeldoutPaths = Annotated[
    list[Path] | None,
    typer.Option(help="for text: files and folders of other text, for a second metric; repeatable"),
]
Shards = Annotated[int | None, typer.Option(help="for fineweb10B: the first N training shards")]
OF_TEXT = {  # option of text alone -> as it is typed
    "corpus": "--name",
    "tokenizer": "--tokenizer",
    "vocab": "--vocab",
    "vocabulary": "--vocabulary",
    "by": "--by",
    "heldout": "--heldout",
}
ROLE_WORDS = {"train": "training", "val": "validation", "heldout": "held-out"}


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """What `data prepare` was given."""

    name: Annotated[str, typer.Argument(help="stdlib, fineweb10B, or text followed by PATH...")]
    paths: Paths = None
    corpus: CorpusName = None
    tokenizer: TokenizerName = "bytes"
    vocab: Vocab = None
    vocabulary: Vocabulary = None
    by: By = "file"
    heldout: HeldoutPaths = None
    shards: Shards = None
    root: Root = None


def progress(done: int, total: int) -> None:
    """Percent on standard error, where that is a terminal."""
    if sys.stderr.isatty() and total:
        end = "" if done < total else "\n"
        print(f"\r{100 * done // total:3d} %", end=end, file=sys.stderr, flush=True)


@data.command("list")
def list_(root: Root = None, json: Json = False) -> None:
    """Every corpus with size, tokens, fingerprint, place, and what is missing."""
    from harness.corpora.index import list_corpora

    corpora = list_corpora(root)
    if json:
        print_json([asdict(corpus) for corpus in corpora])
        return
    rows = []
    for corpus in corpora:
        row = {
            "name": corpus.name,
            "tokens": sum(corpus.tokens.values()) if corpus.tokens else None,
            "MiB": corpus.bytes / 2**20,
            "fingerprint": corpus.fingerprint[:12] if corpus.fingerprint else None,
            "place": corpus.place,
            "missing": corpus.missing,
        }
        rows.append(row)
    print_table(rows)


@data.command()
@takes(PrepareOptions)
def prepare(options: PrepareOptions) -> None:
    """Make a corpus; what is prepared already is left as it is."""
    made = make(options)
    held = [f"{n} {ROLE_WORDS[role]}" for role, n in made.tokens.items()]
    print(
        f"{made.name}: {', '.join(held)} tokens in {made.folder}, "
        f"fingerprint {made.fingerprint[:12]}"
    )


def refuse_unused(options: PrepareOptions) -> None:
    """Raises UserError for an option that this kind of corpus does not read."""
    plain, what = PrepareOptions(name=options.name), "text"
    unused = ["shards"] if options.name == "text" else [*OF_TEXT]
    for option in unused:
        if getattr(options, option) == getattr(plain, option):
            continue
        if option == "shards":
            what = "fineweb10B"
        typed = OF_TEXT.get(option, f"--{option}")
        raise UserError(f"data prepare {options.name}: {typed} is for {what}: leave it out")


def make(options: PrepareOptions) -> "Corpus":
    """The corpus that was asked for, made unless it is there."""
    from harness.corpora.index import prepare as prepare_known

    refuse_unused(options)
    if options.name == "text":
        return make_text(options)
    if options.paths:
        raise UserError(
            f"data prepare {options.name}: takes no paths; for your own text: "
            "ablate data prepare text PATH... --name NAME"
        )
    return prepare_known(options.name, options.root, n_shards=options.shards, progress=progress)


def make_text(options: PrepareOptions) -> "Corpus":
    from harness.corpora.text import prepare_text
    from harness.corpora.tokenizers import TokenizerChoice

    if not options.paths or not options.corpus:
        raise UserError(
            "data prepare text: name the files and the corpus: "
            "ablate data prepare text PATH... --name NAME"
        )
    return prepare_text(
        options.paths,
        name=options.corpus,
        root=options.root,
        tokenizer=TokenizerChoice(
            name=options.tokenizer, vocabulary=options.vocabulary, vocab=options.vocab
        ),
        documents=options.by,
        heldout=(options.heldout or []),
        progress=progress,
    )


@data.command()
def check(path: Path, json: Json = False) -> None:
    """Verify a shard or a corpus folder.

    Headers, lengths, token ranges, separators, duplicate documents. Exit 1 if it is bad.
    """
    from harness.corpora.check import check as check_path

    report = check_path(path)
    if json:
        print_json(asdict(report))
    else:
        files = [asdict(facts) for facts in report.files]
        print_table(files, ["file", "role", "tokens", "lowest", "highest", "separators"])
        print_table([{"role": role, **facts} for role, facts in report.documents.items()])
        for line in report.problems:
            print(f"problem: {line}")
        for line in report.warnings:
            print(f"warning: {line}")
        print("sound" if report.ok else "not sound")
    if not report.ok:
        raise typer.Exit(1)
