"""Git, which starts here and nowhere else: what a repository could make it execute is off.

A repository's own configuration can name programs: in place of ssh, as a monitor of its files, as
hooks, pagers, helpers. Git may start one of them for as little as an object that is missing. Only
what makes runs imports this file; what reads results never does.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UserError

NO_GIT = "git is not installed: refs and patches need it"
TIMEOUT_S = 60  # of one command of git
OFF = (
    "core.fsmonitor=false",
    "core.sshCommand=false",
    "core.gitProxy=false",
    "core.alternateRefsCommand=false",
    "core.hooksPath=/dev/null",
    "core.editor=false",
    "core.pager=cat",
    "core.askPass=false",
    "credential.helper=",
    "protocol.allow=never",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",  # none, whatever a repository's configuration allows
    "GIT_NO_LAZY_FETCH": "1",  # objects that are not there are missing
    "GIT_OPTIONAL_LOCKS": "0",  # what only reads writes no index
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_SSH_COMMAND": "false",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
}
OF_THE_USER = ("GIT_CONFIG_", "GIT_EXEC_PATH")  # a user's own settings stay in force


def run_git(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Git in a folder, ended and with what it printed; raises UserError where there is no git.

    variables: further ones of its environment.
    """
    options: list[str] = []
    for setting in OFF:
        options += ["-c", setting]
    command = ["git", "--no-pager", *options, *arguments]
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=_environment() | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{folder}: git {arguments[0]} did not end in {TIMEOUT_S} s") from None
    except FileNotFoundError:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder") from None
        raise UserError(NO_GIT) from None


def _environment() -> dict[str, str]:
    """This process's environment, without what would lead git to another repository."""
    kept = {}
    for name, value in os.environ.items():
        if not name.startswith("GIT_") or name.startswith(OF_THE_USER):
            kept[name] = value
    return kept | VARIABLES


def git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints in a folder, None if it fails; raises UserError where there is no git."""
    done = run_git(folder, *arguments)
    if done.returncode != 0:
        return None
    return done.stdout
