"""`--json` of every command: one JSON document on standard output, whatever happens.

A command that has data prints them itself. Of any other what it says is the data, line by line:
{"schema": 1, "command": "report", "exit": 0, "said": ["report: results/..."]}. A refusal, or what
a signal stopped before it had data, is {"error", "where", "mend"}. docs/output.schema.json has
them all.
"""

import inspect
import io
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from typing import Any, get_type_hints

import typer
from typer.exceptions import TyperException

from harness.cli.options import Json
from harness.cli.table import print_json
from harness.errors import StoppedError, UserError, visible
from harness.provenance.redact import redact

SAID_SCHEMA = 1  # of what other commands print with --json
# what begins a message and says where: an option, a path, a side, an arm
PLACE = re.compile(r"--[a-z].*|OLD .*|NEW .*|arm '.*'|experiment '.*'|[^ ]*[/.\\][^ ]*|[a-z-]+")
# what is said by the way, in which no sentence ends
ASIDE = re.compile(r"(?<!\w)'[^']*'(?!\w)|\((?:[^()]|\([^()]*\))*\)|\[[^][]*\]|\{[^{}]*\}|`[^`]*`")


class _Said(io.TextIOBase):
    """Standard output that goes to standard error meanwhile, and is kept."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()


def give_json(app: typer.Typer) -> None:
    """`--json` for every command that has none of its own."""
    for info in app.registered_commands:
        callback = info.callback
        if callback is not None and "json" not in inspect.signature(callback).parameters:
            info.callback = _with_json(callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            give_json(group.typer_instance)


def _with_json(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The command with one option more, under which what it says is printed as JSON."""
    parameter = inspect.Parameter(
        "json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json
    )

    @wraps(callback)
    def command(json: bool = False, **values: Any) -> Any:
        if not json:
            return callback(**values)
        said, code = _Said(), 0
        try:
            with redirect_stdout(said):
                callback(**values)
        except typer.Exit as ended:
            code = ended.exit_code
        except StoppedError as stopped:
            print(stopped, file=said)
            code = stopped.code
        name = callback.__name__.replace("_", "-")
        lines = said.text.splitlines()
        print_json({"schema": SAID_SCHEMA, "command": name, "exit": code, "said": lines})
        raise typer.Exit(code)

    del command.__wrapped__  # typer would look at the function's own parameters
    given = inspect.signature(callback)
    hints = get_type_hints(callback, include_extras=True)
    parameters = [
        p.replace(annotation=hints.get(p.name, p.annotation)) for p in given.parameters.values()
    ]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    signature = given.replace(
        parameters=[*keyword, parameter], return_annotation=inspect.Signature.empty
    )
    vars(command).update(says=True, __signature__=signature)
    command.__annotations__ = {p.name: p.annotation for p in (*keyword, parameter)}
    return command


def error_mapping(text: str) -> dict[str, str | None]:
    """A refusal as data: all of it, and of it the place in front and the way out at its end.

    where, mend: None where the line has none."""
    first = text.partition("\n")[0]  # of several mistakes
    plain = ASIDE.sub(lambda aside: "_" * len(aside[0]), first)
    begin = plain.find(": ")
    where = first[:begin] if begin > 0 and PLACE.fullmatch(first[:begin]) else None
    start = 0 if where is None else begin + 2
    cut = plain.rfind("; ", start)
    if cut < 0:
        cut = plain.rfind(": ", start)
    mend = first[cut + 2 :].strip() if cut > start else None
    return {"error": text, "where": where, "mend": mend or None}


def line_of(error: Exception) -> str:
    """An error as the one line that a user gets of it, without secrets."""
    if isinstance(error, TyperException):
        text = error.format_message() or "see `ablate --help`"
    elif isinstance(error, UserError):
        text = str(error)
    elif isinstance(error, OSError):
        text = (
            f"{error.filename or 'file'}: {error.strerror or error}: make it writable, free some"
            " space, or choose another folder"
        )
    else:
        said = redact(str(error)).partition(chr(10))[0]
        text = (
            f"a fault of its own, {type(error).__name__}: {said}; nothing was lost; run it"
            " again with --debug and report what that shows"
        )
    return visible(redact(text))
