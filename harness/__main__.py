"""The command line: `ablate`, also `python -m harness`."""

import atexit
import gc
import sys
import traceback
from functools import cache
from typing import Any, NoReturn

import typer

from harness.cli import app
from harness.cli.panels import INTERRUPTED
from harness.cli.said import error_mapping, line_of
from harness.cli.table import print_json
from harness.errors import StoppedError
from harness.provenance.own_secrets import printed_without_own
from harness.provenance.redact import redact

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130
# containers between two looks for garbage; a report makes a million that are none
MADE_BEFORE_A_LOOK = 100_000


def main(arguments: list[str] | None = None) -> None:
    """Run one command.

    An error is one line on standard error and exit 2; --debug shows where it came from.
    """
    gc.set_threshold(MADE_BEFORE_A_LOOK)
    # a last look would be a seventh of `ablate plan`; what is open is closed by who opened it
    atexit.register(gc.freeze)
    with printed_without_own():
        _main(sys.argv[1:] if arguments is None else arguments)


@cache
def _command() -> Any:
    """Typer's command, which takes 12 ms to make: a process may run several."""
    return typer.main.get_command(app)


def _main(arguments: list[str]) -> None:
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        code = _command()(arguments, prog_name="ablate", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _refuse(INTERRUPTED, arguments, EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except Exception as error:
        if debug:
            _raise_without_secrets()
        code = error.code if isinstance(error, StoppedError) else EXIT_BAD_INPUT
        _refuse(line_of(error), arguments, code)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(line: str, arguments: list[str], code: int) -> NoReturn:
    """End with a line on standard error, and as JSON where that was asked for."""
    if "--json" in arguments:
        print_json(error_mapping(line))
    print(f"ablate: {line}", file=sys.stderr)
    sys.exit(code)


def _raise_without_secrets() -> NoReturn:
    """Go on with the exception; what Python prints of it holds no secret."""
    sys.excepthook = lambda *error: print(
        redact("".join(traceback.format_exception(*error))), end="", file=sys.stderr
    )
    raise


if __name__ == "__main__":
    main()
