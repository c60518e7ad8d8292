"""A command whose options are one frozen dataclass: declared once, handed on whole."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, get_type_hints

Options = TypeVar("Options")


def takes(options: type[Options]) -> Callable[[Callable[[Options], None]], Any]:
    """Make a function of one options object a command with an option or argument per field.

    options: a dataclass whose fields are typer's Annotated[...] parameters; a field without a
    default is required. The command's help is the function's docstring.
    """
    hints = get_type_hints(options, include_extras=True)
    parameters = []
    for field in fields(options):  # type: ignore[arg-type]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=hints[field.name],
            )
        )

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            function(options(**values))

        del command.__wrapped__  # typer would look at the function's own parameter
        vars(command).update(__signature__=inspect.Signature(parameters))
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate
