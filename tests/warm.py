"""Programs in forks of a process that has imported what the commands import: a command there costs what it does, not its imports."""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 240.0  # of whatever a test waits for: many times what it takes on a busy machine, less than a test's own limit
# Each line asks for a fork, in a folder, with variables and arguments and a limit on its memory; it ends as a process would.
PARENT = """
import atexit, gc, json, os, resource, sys, threading
import harness.__main__, harness.cli, harness.runner.slurm.executor, harness.runner.execute, harness.store.merge
import reports.inputs.export, reports.page.write, reports.verify.verify
gc.collect()
gc.freeze()
def fork(asked):
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
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
    pid = os.fork()
    if pid == 0:
        fork(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
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
    process = parent()
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        asked = {
            "cwd": str(cwd),
            "environment": dict(environment),
            "out": str(out),
            "err": str(err),
            "bytes": None if mib is None else mib << 20,
            "argv": [str(at or ""), *arguments],
            "program": program,
        }
        late = threading.Timer(DEADLINE_S, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            code = process.stdout.readline().strip()
            assert code, f"the fork's parent ended: {err.read_text()[-2000:]}"
        except (
            BaseException
        ):  # such as a test's own limit: the next call must not get this one's code
            os.killpg(process.pid, signal.SIGKILL)
            parent.cache_clear()
            raise
        finally:
            late.cancel()
        return subprocess.CompletedProcess(
            list(arguments), int(code), out.read_text(), err.read_text()
        )
