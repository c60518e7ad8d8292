"""Other interpreters and containers: what is installed there, without importing it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UserError, near
from harness.provenance.lock import LOCKED, EnvironmentLock, environment_lock
from harness.run.digests import short_digest

PLACEHOLDERS = ("script", "gpus", "seed", "copy")
# {{word}} is {word}; ${word} is a shell's
BRACED = re.compile(r"\{\{(\w+)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def asks_for(name: str, *texts: str) -> bool:
    """Whether {name} stands in one of the texts."""
    return any(m[2] == name for text in texts for m in BRACED.finditer(text))


def fill(text: str, values: Mapping[str, object]) -> str:
    """The text with every placeholder replaced."""
    return BRACED.sub(lambda m: f"{{{m[1]}}}" if m[1] else str(values[m[2]]), text)


def check_braces(text: str, where: str) -> None:
    """Raises UserError for a word in braces that stands for nothing."""
    for name in (m[2] for m in BRACED.finditer(text) if m[2]):
        if name not in PLACEHOLDERS:
            raise UserError(
                f"{where}: {{{name}}} stands for nothing{near(name, PLACEHOLDERS)} ({{{{{name}}}}}"
                f" gives {{{name}}})"
            )


STARTS_WITHIN_S = 300.0  # a container may have to be unpacked first
EFFECT = (  # the variable that tells a worker what its environment changes
    "ABLATE_ENVIRONMENT_EFFECT"
)
# the path of an interpreter, or a command in front of the trainer's
KINDS = (
    "python",
    "container",
)
ASK = """
import importlib.metadata as m, json, platform
versions = {"python": platform.python_version(), "machine": platform.machine()}
for name in %r:
    try:
        versions[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""


def is_environment(value: Any) -> bool:
    """Whether a file's value names one: one of KINDS with its text."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and all(k in KINDS and isinstance(v, str) for k, v in value.items())
    )


def start_of(
    environment: Mapping[str, str], values: Mapping[str, object] | None = None
) -> list[str]:
    """The words that start Python there; values: what the placeholders of a container stand for."""
    return [
        *prefix(environment, values),
        environment.get("python", "python3" if "container" in environment else sys.executable),
    ]


def prefix(environment: Mapping[str, str], values: Mapping[str, object] | None = None) -> list[str]:
    """The words in front of a command: those of a container, or none."""
    looked_at = {"script": "", "gpus": 1, "seed": 0, "copy": os.getcwd()}
    return [
        fill(word, values or looked_at) for word in shlex.split(environment.get("container", ""))
    ]


def search_path(environment: Mapping[str, str]) -> str:
    """PATH with the interpreter's folder in front, and without ours where it is another.

    No program of ours is taken for its.
    """
    if "container" in environment:
        return os.environ.get("PATH", os.defpath)
    our_folder = str(Path(sys.executable).parent)
    its_folder = str(Path(environment.get("python", sys.executable)).parent)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if its_folder != our_folder:
        folders = [folder for folder in folders if folder != our_folder]
    return os.pathsep.join([its_folder, *folders])


def located(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment with its interpreter's whole path.

    A relative one is meant from `folder`, a bare name from PATH.
    """
    if not (python := environment.get("python")):
        return dict(environment)
    path = Path(python).expanduser()
    return {
        "python": (
            str((folder / path).absolute()) if "/" in python else shutil.which(python) or python
        )
    }


def lock_of(environment: Mapping[str, str]) -> EnvironmentLock:
    """The versions in an environment; {} is this one.

    Raises UserError where it cannot be started.
    """
    return _asked(tuple(sorted(environment.items()))) if environment else environment_lock()


@cache
def _asked(items: tuple[tuple[str, str], ...]) -> EnvironmentLock:
    environment = dict(items)
    command = [*start_of(environment), "-c", ASK % (LOCKED,)]
    if shutil.which(command[0]) is None:
        raise UserError(
            f"environment: {command[0]}: no such program: name an interpreter such as"
            " /opt/venv/bin/python"
        )
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=STARTS_WITHIN_S,
            check=False,
        )
        versions = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        said = str(error)
        if isinstance(error, ValueError | IndexError):
            silent = f"it ends with {done.returncode} and says nothing"
            printed = done.stderr.strip() or done.stdout.strip() or silent
            said = printed.splitlines()[-1]
        raise UserError(
            f"environment: `{shlex.join(command[:-2])}` does not run Python: {said}"
        ) from None
    return EnvironmentLock(digest=short_digest(versions), versions=versions)


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """In words: 'torch 2.6.0 instead of 2.13.0'."""
    changed = [k for k in {**here, **there} if here.get(k) != there.get(k)]
    return (
        ", ".join(
            f"{k} {there.get(k, 'absent')} instead of {here.get(k, 'absent')}" for k in changed
        )
        or "the same versions"
    )


def effect(environment: Mapping[str, str]) -> str | None:
    """What an environment changes against this one; None for this one."""
    return (
        difference(environment_lock().versions, lock_of(environment).versions)
        if environment
        else None
    )
