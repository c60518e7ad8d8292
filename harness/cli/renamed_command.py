"""The command of an experiment that has another name now: by which it goes on, and is confirmed."""

from collections.abc import Sequence
from shlex import join, split
from typing import TYPE_CHECKING

from harness.run.halving import is_part

if TYPE_CHECKING:
    from harness.run.plan import Plan


def command_of(plan: "Plan", name: str) -> str:
    """What made an experiment, as it goes on under another name.

    That of a part, a grid or a rung but the last, stays what makes the whole."""
    if is_part(plan.name, plan.halving):
        return plan.command
    try:
        parts = [split(part) for part in plan.command.split(" && ")]
    except ValueError:  # no shell could read it
        return plan.command
    return " && ".join(join(named(typed, plan, name)) for typed in parts)


def named(typed: Sequence[str], plan: "Plan", name: str) -> list[str]:
    """One command with another name for what it makes, by the option that it has for that."""
    if list(typed[:2]) == ["ablate", "run"]:
        if list(typed[2:3]) == [plan.name] and plan.foreign:
            return [*typed[:2], name, *typed[3:]]
        return [*without_option(typed, "--set", "name="), "--set", f"name={name}"]
    if list(typed[:2]) in (["ablate", "ab"], ["ablate", "import"]):
        return [*without_option(typed, "--experiment"), "--experiment", name]
    return list(typed)


def without_option(typed: Sequence[str], option: str, start: str = "") -> list[str]:
    """The words of a command without an option whose value starts so."""
    kept, left = [], iter(typed)
    for word in left:
        if word == option:
            value = next(left, "")
            kept += [] if value.startswith(start) else [word, value]
        elif not word.startswith(f"{option}={start}"):
            kept.append(word)
    return kept
