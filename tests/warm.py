"""Programs in forks of a process that has imported what the commands import: a command there costs what it does, not its imports."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 240.0  # of whatever a test waits for: many times what it takes on a busy machine, less than a test's own limit
SAID = tempfile.TemporaryDirectory(prefix="ablate-said-")  # what forks print
# A line asks for a fork, in a folder, with variables and arguments and a limit on its memory; it ends as a process would.
# Another line waits for the end of one.
PARENT = """
import atexit, contextlib, gc, io, json, os, resource, signal, sys, threading
import harness.__main__, harness.cli, harness.runner.slurm.executor, harness.runner.execute, harness.store.merge
import harness.corpora.index, harness.experiment.plan, harness.push.place, harness.runner.local, harness.track.follow, harness.training.flops
import reports.inputs.export, reports.page.write, reports.verify.verify
from harness.config import presets, validate
from harness.experiment import values
from harness.provenance import lock, source
lock.environment_lock(), source.source_of(), presets.preset_values("r18")  # what each would read again
values.check_values(validate.defaults(), str)
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    harness.__main__.main(["run", "--help"])  # the command line is put together once
gc.collect()
gc.freeze()
def fork(asked):
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job's children
    if asked["bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (asked["bytes"], asked["bytes"]))
    sys.argv[:] = asked["argv"]
    sys.path[0:2] = [os.path.dirname(sys.argv[0]), *asked["environment"]["PYTHONPATH"].split(os.pathsep)]
    code = 1
    try:
        exec(compile(asked["program"], sys.argv[0], "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if not isinstance(ended.code, int | None):
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, int):
        print(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        fork(asked)
    print(pid, flush=True)
"""


@cache
def parent() -> "subprocess.Popen[str]":
    """The process to fork, which ends with this one: the end of its input ends it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a fork that does not end is ended with it
    )
    atexit.register(process.communicate)
    return process


def forked_ablate(
    *arguments: str, cwd: Path, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """How `ablate ...` ended in a folder, and what it printed. variables: of its environment, beside this process's."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    at = ROOT / "harness" / "__main__.py"
    return forked(at.read_text(), *arguments, cwd=cwd, environment=environment, at=at)


def forked(
    program: str,
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str],
    at: Path | None = None,
    mib: int | None = None,
) -> "subprocess.CompletedProcess[str]":
    """How a program ended, and what it printed. at: the file that it is, if it is one; mib: what memory it may take."""
    fork = Fork(program, *arguments, cwd=cwd, environment=environment, at=at, mib=mib)
    try:
        code = fork.wait(DEADLINE_S)
    except BaseException:  # such as a test's own limit
        fork.kill()
        raise
    return subprocess.CompletedProcess(list(arguments), code, *fork.communicate())


class Fork:
    """A program in a fork that goes on beside this process, with what a test asks of a Popen."""

    def __init__(
        self,
        program: str,
        *arguments: str,
        cwd: Path,
        environment: Mapping[str, str],
        at: Path | None = None,
        mib: int | None = None,
    ) -> None:
        """at: the file that the program is, if it is one; mib: what memory it may take."""
        self.args, self.returncode = arguments, None
        folder = tempfile.mkdtemp(dir=SAID.name)
        self.said = [Path(folder) / name for name in ("out", "err")]
        self.pid = told_by_parent(
            {
                "cwd": str(cwd),
                "environment": dict(environment),
                "out": str(self.said[0]),
                "err": str(self.said[1]),
                "bytes": None if mib is None else mib << 20,
                "argv": [str(at or ""), *arguments],
                "program": program,
            }
        )
        self.end = os.pidfd_open(self.pid)  # readable once it has ended

    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = told_by_parent(self.pid)
            os.close(self.end)
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return self.said[0].read_text(), self.said[1].read_text()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended
                signal.pidfd_send_signal(self.end, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def told_by_parent(asked: object) -> int:
    """The process id of the fork that was asked for, or the exit code of one that was waited for."""
    process = parent()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it has ended, and says no more
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        told = process.stdout.readline()
        assert told, "the fork's parent ended"
        return int(told)
    except BaseException:  # such as a test's own limit: the next call must not get this one's
        os.killpg(process.pid, signal.SIGKILL)
        parent.cache_clear()
        raise
