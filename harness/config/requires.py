"""What a toggle requires of others and what it conflicts with, as its declaration says."""

from collections.abc import Iterator
from typing import Any

from harness.config.run import RunConfig, get, toggles
from harness.errors import UserError
from harness.model.config import ON

# ---------------------------------------------------------------- requirements between toggles


def _applies(name: str, condition: Any, value: Any, default: Any) -> bool:
    return (
        value != default
        if condition == "*"
        else value == condition and type(value) is type(condition)
    )


def _text(value: Any) -> str:
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if not isinstance(value, tuple)
        else str(list(value))
    )


def _fits(value: Any, accepted: Any) -> bool:
    return value not in (None, (), False) if accepted == ON else value in accepted


def refusals(config: RunConfig) -> Iterator[str]:
    """Every combination that a toggle's requirements or conflicts exclude, naming both fields and the way out."""
    for name, f in toggles():
        value = get(config, name)
        for condition, needs in f.metadata.get("requires", {}).items():
            for other, accepted in (
                needs.items() if _applies(name, condition, value, f.default) else ()
            ):
                if not _fits(get(config, other), accepted):
                    wanted = (
                        "switched on" if accepted == ON else " or ".join(_text(a) for a in accepted)
                    )
                    yield (
                        f"{name}={_text(value)} requires {other} to be {wanted}, but it is {_text(get(config, other))}: "
                        f"set {other}, or leave {name} at {_text(f.default)}"
                    )
        for condition, clashes in f.metadata.get("conflicts", {}).items():
            for other, excluded in (
                clashes.items() if _applies(name, condition, value, f.default) else ()
            ):
                if _fits(get(config, other), excluded):
                    yield (
                        f"{name}={_text(value)} conflicts with {other}={_text(get(config, other))}: "
                        f"leave {name} at {_text(f.default)} or switch {other} off"
                    )


def check_requirements(config: RunConfig) -> None:
    """Refuse the first such combination."""
    for message in refusals(config):
        raise UserError(message)
