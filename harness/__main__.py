"""The command line: `ablate`, also `python -m harness`."""

import sys
import traceback
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from harness.cli import app
from harness.cli.panels import INTERRUPTED
from harness.cli.said import error_mapping
from harness.cli.table import print_json
from harness.errors import StoppedError, UserError, visible
from harness.provenance.own_secrets import printed_without_own
from harness.provenance.redact import redact

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> None:
    """Run one command.

    An error is one line on standard error and exit 2; --debug shows where it came from.
    """
    with printed_without_own():
        _main(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: list[str]) -> None:
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        code = typer.main.get_command(app)(arguments, prog_name="ablate", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (UserError, TyperException) as error:
        if debug:
            _raise_without_secrets()
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        text = visible(redact(text))
        if "--json" in arguments:
            print_json(error_mapping(text or "see `ablate --help`"))
        print(f"ablate: {text}" if text else "ablate: see `ablate --help`", file=sys.stderr)
        sys.exit(error.code if isinstance(error, StoppedError) else EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        if "--json" in arguments:
            print_json(error_mapping(INTERRUPTED))
        print(f"ablate: {INTERRUPTED}", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if debug:
            _raise_without_secrets()
        text = (
            f"{error.filename or 'file'}: {error.strerror}: make it writable, free some"
            " space, or choose another folder"
        )
        if "--json" in arguments:
            print_json(error_mapping(text))
        print(f"ablate: {text}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except Exception as error:
        if debug:
            _raise_without_secrets()
        said = redact(str(error)).partition(chr(10))[0]
        text = (
            f"a fault of its own, {type(error).__name__}: {said}; nothing was lost; run it"
            " again with --debug and report what that shows"
        )
        if "--json" in arguments:
            print_json(error_mapping(text))
        print(f"ablate: {text}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


def _raise_without_secrets() -> NoReturn:
    """Go on with the exception; what Python prints of it holds no secret."""
    sys.excepthook = lambda *error: print(
        redact("".join(traceback.format_exception(*error))), end="", file=sys.stderr
    )
    raise


if __name__ == "__main__":
    main()
