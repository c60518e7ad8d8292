"""What the tests of security share: repositories that start programs, and commands that are watched for what they start."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fake_matrix import DEADLINE_S, ROOT
from tests.warm import forked

GIT_IS_THERE = "harness.provenance.git is imported"
# Every program that Python starts in this process, by the interpreter's own account.
WATCH = """
import os, sys
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "os.spawn", "pty.spawn")
def watch(event, arguments):
    if event in STARTS:
        with open(os.environ["STARTED"], "a") as file:
            file.write(f"{event} {arguments!r}\\n")
    if event == "import" and arguments[0] == "harness.provenance.git":
        with open(os.environ["STARTED"], "a") as file:
            file.write("harness.provenance.git is imported\\n")
sys.addaudithook(watch)
from harness.__main__ import main
"""
# Commands one after the other in one process: [code, out, err] of each as a line of JSON.
EACH = """
import contextlib, io, json
for command in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(command)
        except SystemExit as ended:
            code = ended.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


class Said:
    """How a command ended, what it printed and what it started."""

    def __init__(self, done: "subprocess.CompletedProcess[str]", started: list[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.started = [line for line in started if line != GIT_IS_THERE]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def watched(*arguments: object, cwd: Path, **variables: str) -> Said:
    """`ablate ...` in a fork of its own, watched; what imports alone would start `all_watched` sees."""
    note = cwd / ".started"
    note.unlink(missing_ok=True)
    program = f"{WATCH}\nmain(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STARTED": str(note), **variables}
    done = forked(program, *map(str, arguments), cwd=cwd, environment=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return Said(done, noted(note))


def noted(note: Path) -> list[str]:
    """What a watched process noted."""
    started = note.read_text().splitlines() if note.exists() else []
    note.unlink(missing_ok=True)
    return started


def all_watched(*commands: Sequence[object], cwd: Path) -> tuple[list[Said], list[str]]:
    """(how commands in one process ended, one after the other; what all of them started or imported of git)."""
    note = cwd / ".started"
    note.unlink(missing_ok=True)
    said = each_said(WATCH, commands, cwd=cwd, STARTED=str(note))
    return said, noted(note)


def bounded(*commands: Sequence[object], cwd: Path, mib: int = 2500) -> list[Said]:
    """Commands in a process with a limit on its memory, which must end in time and by itself."""
    program = f"import sys\nfrom harness.__main__ import main\n{EACH}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forked(program, listed(commands), cwd=cwd, environment=environment, mib=mib)
    return said_by(done, len(commands))


def each_said(
    begin: str, commands: Sequence[Sequence[object]], *, cwd: Path, **variables: str
) -> list[Said]:
    """How each of these commands ended, in a process that begins so."""
    done = subprocess.run(
        [sys.executable, "-c", f"{begin}\n{EACH}", listed(commands)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return said_by(done, len(commands))


def listed(commands: Sequence[Sequence[object]]) -> str:
    return json.dumps([[str(word) for word in command] for command in commands])


def said_by(done: "subprocess.CompletedProcess[str]", n: int) -> list[Said]:
    """How n commands ended, from what their process printed."""
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-2000:]}"
    said = []
    for line in done.stdout.splitlines():
        ended, said_out, said_err = json.loads(line)
        assert "Traceback" not in said_err, said_err
        assert "a fault of its own" not in said_err, said_err
        said.append(Said(subprocess.CompletedProcess([], ended, said_out, said_err), []))
    assert len(said) == n
    return said


def program(path: Path, mark: Path) -> Path:
    """A program that leaves a mark."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho $0 >> '{mark}'\nexit 1\n")
    path.chmod(0o755)
    return path


def evil_repository(folder: Path, mark: Path, script: str = "train_gpt.py") -> Path:
    """A repository whose configuration names programs wherever it can, with a commit whose script is not there.

    Git looks for a missing object at the repository's remote, for which it starts the program that the configuration names.
    """

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
        return done.stdout.decode().strip()

    folder.mkdir(parents=True)
    evil = program(folder.parent / "evil.sh", mark)
    git("init", "-q")
    (folder / script).write_text("print('x')\n")
    (folder / ".gitattributes").write_text("* diff=evil filter=evil\n")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "one")
    blob = git("rev-parse", f"HEAD:{script}")
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for hook in ("pre-auto-gc", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        program(folder / ".git" / "hooks" / hook, mark)
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": "ssh://nowhere.example/x",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(evil),
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "protocol.ssh.allow": "always",
        "core.fsmonitor": str(evil),
        "core.sshCommand": str(evil),
        "core.gitProxy": str(evil),
        "core.editor": str(evil),
        "core.pager": str(evil),
        "core.askPass": str(evil),
        "core.alternateRefsCommand": str(evil),
        "credential.helper": f"!{evil}",
        "diff.external": str(evil),
        "diff.evil.textconv": str(evil),
        "diff.evil.command": str(evil),
    }
    for name, value in settings.items():
        git("config", name, value)
    return folder
