"""What the tests of security share: repositories that start programs, and commands that are watched for what they start."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fake_matrix import DEADLINE_S, ROOT

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
main(sys.argv[1:])
"""


class Said:
    """How a command ended, what it printed and what it started."""

    def __init__(self, done: "subprocess.CompletedProcess[str]", started: list[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.started = [line for line in started if line != GIT_IS_THERE]
        self.has_git = GIT_IS_THERE in started

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def watched(*arguments: object, cwd: Path, **variables: str) -> Said:
    """`ablate ...` in a process of its own, watched."""
    note = cwd / ".started"
    note.unlink(missing_ok=True)
    command = [sys.executable, "-c", WATCH, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STARTED": str(note), **variables}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    started = note.read_text().splitlines() if note.exists() else []
    note.unlink(missing_ok=True)
    return Said(done, started)


# Commands one after the other in one process, which may have so much memory: [code, out, err] of each as a line of JSON.
IN_BOUNDS = """
import contextlib, io, json, resource, sys
mib, commands = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
from harness.__main__ import main
for command in commands:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(command)
        except SystemExit as ended:
            code = ended.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def bounded(*commands: Sequence[object], cwd: Path, mib: int = 2500) -> list[Said]:
    """Commands in a process with a limit on its memory, which must end in time and by itself."""
    asked = json.dumps([mib, [[str(word) for word in command] for command in commands]])
    done = subprocess.run(
        [sys.executable, "-c", IN_BOUNDS, asked],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-2000:]}"
    said = []
    for line in done.stdout.splitlines():
        code, out, err = json.loads(line)
        assert "Traceback" not in err, err
        assert "a fault of its own" not in err, err
        ended = subprocess.CompletedProcess([], code, out, err)
        said.append(Said(ended, []))
    assert len(said) == len(commands)
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
