"""Corpora: what there is, make one, check one."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.options import Json
from harness.cli.table import print_json, print_table
from harness.errors import UserError

data = typer.Typer(
    help="Corpora: embedded, FineWeb, your own text.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data, name="data")
Root = Annotated[
    Path | None,
    typer.Option("--data", help="folder of all corpora; default $ABLATE_DATA, else ./data"),
]


def progress(done: int, total: int) -> None:
    """Percent on standard error, where that is a terminal."""
    if sys.stderr.isatty() and total:
        print(
            f"\r{100 * done // total:3d} %",
            end="" if done < total else "\n",
            file=sys.stderr,
            flush=True,
        )


@data.command("list")
def list_(root: Root = None, json: Json = False) -> None:
    """Every corpus with size, tokens, fingerprint, place, and what is missing."""
    from harness.corpora.index import list_corpora

    rows = list_corpora(root)
    if json:
        print_json(rows)
    else:
        print_table(
            [
                {
                    "name": r["name"],
                    "tokens": sum(r["tokens"].values()) if r["tokens"] else None,
                    "MiB": r["bytes"] / 2**20,
                    "fingerprint": r["fingerprint"][:12] if r["fingerprint"] else None,
                    "place": r["place"],
                    "missing": r["missing"],
                }
                for r in rows
            ]
        )


@data.command()
def prepare(
    name: Annotated[str, typer.Argument(help="stdlib, fineweb10B, or text followed by PATH...")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="for text: files and folders (.txt, .md, .jsonl, source)"),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option("--name", help="for text: the corpus's name")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="for text: bytes or gpt2")] = "bytes",
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="for text with gpt2: a vocabulary file, where there is no network"),
    ] = None,
    by: Annotated[
        str, typer.Option(help="for text: one document per file, line or paragraph")
    ] = "file",
    heldout: Annotated[
        list[Path] | None,
        typer.Option(
            help="for text: files and folders of other text, for a second metric; repeatable"
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="for fineweb10B: the first N training shards")
    ] = None,
    root: Root = None,
) -> None:
    """Make a corpus; what is prepared already is left as it is."""
    from harness.corpora.index import prepare as prepare_known
    from harness.corpora.text import prepare_text

    if name == "text":
        if not paths or not corpus:
            raise UserError(
                "data prepare text: name the files and the corpus: ablate data prepare text "
                "PATH... --name NAME"
            )
        made = prepare_text(
            paths,
            name=corpus,
            root=root,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            documents=by,
            heldout=heldout or (),
            progress=progress,
        )
    elif paths:
        raise UserError(
            f"data prepare {name}: takes no paths; for your own text: ablate data prepare text "
            "PATH... --name NAME"
        )
    else:
        made = prepare_known(name, root, n_shards=shards, progress=progress)
    words = {"train": "training", "val": "validation", "heldout": "held-out"}
    held = ", ".join(f"{n} {words[role]}" for role, n in made.tokens.items())
    print(f"{made.name}: {held} tokens in {made.folder}, fingerprint {made.fingerprint[:12]}")


@data.command()
def check(path: Path, json: Json = False) -> None:
    """Verify a shard or a corpus folder: headers, lengths, token ranges, separators, duplicate documents. Exit 1 if it is bad."""
    from harness.corpora.check import check as check_path

    report = check_path(path)
    if json:
        print_json(report)
    else:
        print_table(report["files"], ["file", "role", "tokens", "lowest", "highest", "separators"])
        print_table([{"role": role, **facts} for role, facts in report["documents"].items()])
        for kind in ("problems", "warnings"):
            for line in report[kind]:
                print(f"{kind[:-1]}: {line}")
        print("sound" if report["ok"] else "not sound")
    raise typer.Exit(0 if report["ok"] else 1)
