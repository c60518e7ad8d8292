"""Finished runs sent to a results folder elsewhere, as they come; and brought in from there."""

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Results
from harness.errors import UserError, visible
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.push.place import Destination
    from harness.store.merge import Merged
    from harness.store.store import Store

LOOK_S = 0.1  # between two looks; one takes 5 ms with 5,000 runs
PATIENCE_S = 3.0  # before it is said that the end waits for what is sent


@app.command()
def push(
    name: Annotated[
        str, typer.Argument(metavar="DEST", help="a folder, HOST:FOLDER, ssh://..., or a URL")
    ],
    results: Results = RESULTS,
    caller: Annotated[
        int | None,
        typer.Option(metavar="PID", help="go on until its end, or that of standard input"),
    ] = None,
) -> None:
    """Send every finished run that is not there to another results folder.

    Exit 1 if some could not be sent.
    """
    from harness.push.send import Sender

    if not (results / "runs").is_dir():
        raise UserError(f"results folder {results}: no runs here; name another with --results")
    place = _opened(name, results, is_asked=caller is None)
    shown = _shown(name)
    sender = Sender(results, place, shown, lambda line: print(visible(line), file=sys.stderr))
    if caller is not None:
        place.connect()
    while caller is not None and _goes_on(caller):
        sender.look()
    n_left = sender.finish()
    if n_left:
        why = f": {sender.error}" if sender.error else ""
        left = "1 finished run is" if n_left == 1 else f"{n_left} finished runs are"
        print(f"{left} not in {shown}{why}: {_command(name, results)}")
        raise typer.Exit(1)
    print(f"{shown}: every finished run is there, {sender.n_sent} of them sent now")


def _goes_on(caller: int) -> bool:
    """Whether who started this still runs, after a while."""
    ended, _, _ = select.select([sys.stdin], [], [], LOOK_S)
    return not ended and os.getppid() == caller


def _opened(name: str, results: Path, *, is_asked: bool) -> "Destination":
    """The place; one that was reached a moment ago is not refused where it is not reached now."""
    from harness.push.place import opened, place_of

    return opened(name, results) if is_asked else place_of(name)


def _shown(name: str) -> str:
    """The place's name without a password that its URL may have."""
    password = urlsplit(name).password if "://" in name else None
    return name if password is None else name.replace(f":{password}@", ":...@")


def _command(name: str, results: Path) -> str:
    command = ["ablate", "push", _shown(name)]
    if results != RESULTS:
        command += ["--results", str(results)]
    return f"`{shlex.join(command)}` sends the rest"


def bring_in(name: str | None, results: Path, *, pull: bool, quiet: bool = False) -> None:
    """See that a place can be written, and bring in what it has if that is asked.

    Raises UserError where it cannot. name: of the place, None where nothing is sent. quiet:
    standard output is for JSON.
    """
    from harness.push.place import opened
    from harness.store.store import Store

    if name is None:
        return
    opened(name, results)
    if not pull:
        return
    brought = bring(name, Store.create(results), mend=True)
    file = sys.stderr if quiet else sys.stdout
    print(f"{_shown(name)}: {plural(len(brought.copied), 'run')} brought in", file=file, flush=True)
    for problem in brought.problems:
        print(f"left where it is: {visible(problem)}", file=file, flush=True)


def bring(name: str, store: "Store", *, mend: bool = False) -> "Merged":
    """Bring in every finished run of a place; raises UserError where it cannot be reached.

    mend: let one that is not sound there give way to what is sent.
    """
    from harness.push.errors import PushError
    from harness.push.place import place_of

    try:
        return place_of(name).bring(store, mend=mend)
    except PushError as error:
        raise UserError(f"{_shown(name)}: {error}: nothing was begun") from None


@contextmanager
def sending(name: str | None, results: Path, *, quiet: bool = False) -> Iterator[None]:
    """Send finished runs meanwhile, in a process that no run waits for; say at the end what is not.

    name: of the place, None where nothing is sent. quiet: standard output is for JSON.
    """
    if name is None:
        yield
        return
    command = [sys.executable, "-P", "-m", "harness", "push", name]
    (results / "runs").mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [*command, "--caller", str(os.getpid()), "--results", str(results)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    file = sys.stderr if quiet else sys.stdout
    print(f"finished runs are sent to {_shown(name)}", file=file, flush=True)
    try:
        yield
    finally:
        with redirect_stdout(file):
            said = _last_words(process, name) or f"sending ended: {_command(name, results)}"
            print(said, flush=True)


def _last_words(process: "subprocess.Popen[str]", name: str) -> str:
    """What the process that sends says once it has sent what is left."""
    try:
        try:
            said, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            print(f"what is left is sent to {_shown(name)}; Ctrl-C leaves it here", flush=True)
            said, _ = process.communicate()
    except BaseException:
        process.kill()
        raise
    return said.strip()
