"""What the tests of security share: repositories that start programs, and commands that are watched for what they start."""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
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
    """`ablate ...` in a process of its own, watched."""
    note = cwd / ".started"
    note.unlink(missing_ok=True)
    program = f"{WATCH}\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", program, *map(str, arguments)]
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


# A process that has imported what the commands import; each line asks for a fork of it, in a folder, with a limit on its memory.
WARM = """
import json, os, resource, sys
import harness.__main__, harness.cli, harness.store.merge
import reports.inputs.export, reports.page.write, reports.verify.verify
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
        resource.setrlimit(resource.RLIMIT_AS, (asked["bytes"], asked["bytes"]))
        code = 1
        try:
            exec(asked["program"], {"__name__": "__main__"})
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@cache
def warm() -> "subprocess.Popen[str]":
    """The process to fork, which ends with this one: the end of its input ends it."""
    process = subprocess.Popen(
        [sys.executable, "-c", WARM],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a fork that does not end is ended with it
    )
    atexit.register(process.communicate)
    return process


def bounded(*commands: Sequence[object], cwd: Path, mib: int = 2500) -> list[Said]:
    """Commands in a process with a limit on its memory, which must end in time and by itself."""
    process = warm()
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        program = f"import sys\nsys.argv = ['', {listed(commands)!r}]\n"
        program += f"from harness.__main__ import main\n{EACH}"
        asked = {
            "cwd": str(cwd),
            "environment": {**os.environ, "PYTHONPATH": str(ROOT)},
            "out": str(out),
            "err": str(err),
            "bytes": mib << 20,
            "program": program,
        }
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        late = threading.Timer(DEADLINE_S, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        code = process.stdout.readline().strip()
        late.cancel()
        return said_by(code, out.read_text(), err.read_text(), len(commands))


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
    return said_by(str(done.returncode), done.stdout, done.stderr, len(commands))


def listed(commands: Sequence[Sequence[object]]) -> str:
    return json.dumps([[str(word) for word in command] for command in commands])


def said_by(code: str, out: str, err: str, n: int) -> list[Said]:
    """How n commands ended, from what their process printed."""
    assert code == "0", f"it ended with {code}: {err[-2000:]}"
    said = []
    for line in out.splitlines():
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
