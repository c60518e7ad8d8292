"""--worker fresh: every run in a fork of a process that has imported the trainer and done nothing; it dies as a process does."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.run.read import read_lines
from tests.fake_matrix import DEADLINE_S, ROOT, Matrix, gone, kill, wait_for, workers_of

FRESH = ("--worker", "fresh")
ENDS = {  # what happens to seed 0, 1, ... -> how the attempts at its two runs end
    "train": [["finished"], ["finished"]],
    "raise": [["failed"], ["failed"]],
    "kill once": [["failed", "finished"], ["finished"]],
}
PARENT = """
import json, os, sys, torch
from harness.runner.train_run import load_trainer
from harness.runner.worker import prepare_compiler
load_trainer("harness.training.train:train")
before = torch.get_rng_state()
prepare_compiler(json.dumps({"cache": sys.argv[1], "spec": {"device": "cpu"}}))
assert "torch._dynamo" in sys.modules
assert not torch.cuda.is_initialized()
print(len(os.listdir("/proc/self/task")), flush=True)  # else the fork has the line too
if os.fork() == 0:
    print(len(os.listdir("/proc/self/task")), bool((torch.get_rng_state() == before).all()), flush=True)
    asked = []
    sys.addaudithook(lambda event, args: asked.append(args) if event in ("open", "subprocess.Popen") else None)
    from torch._inductor import codecache, cpu_vec_isa
    codecache.torch_key(), cpu_vec_isa.pick_vec_isa()
    print(len(asked), flush=True)  # files read, programs started: the parent has the answers
    os._exit(0)
os.wait()
"""

SERVES = """
import itertools, json, os, signal, sys
from types import SimpleNamespace
from harness.runner import forks
seconds, read, kill = itertools.count(), sys.stdin.readline, os.kill
forks.time = SimpleNamespace(perf_counter=lambda: next(seconds))
sys.stdin = SimpleNamespace(readline=lambda: print("reads", flush=True) or read())
os.kill = lambda pid, number: kill(pid, number) if pid == os.getpid() else os._exit(99)
parent, prepared, numbers = os.getpid(), [], (signal.SIGINT, signal.SIGTERM)
signals = [signal.getsignal(number) for number in numbers]
for line, wall in forks.requests_in_forks(1000, prepared.append):
    word, *number = line.split()
    if word == "exit":
        os._exit(int(number[0]))
    if word == "die":
        os.kill(os.getpid(), int(number[0]))
    same = signals == [signal.getsignal(number) for number in numbers]
    print(json.dumps([word, os.getpid() == parent, len(prepared), same, wall]), flush=True)
"""


SPY = """
import json, sys, threading
asked, threads = set(), []
begin = threading.Thread.start
threading.Thread.start = lambda self: (threads.append(self.name), begin(self))
def look(frame, event, arg):
    name, caller = str(frame.f_globals.get("__name__")), frame.f_back
    if event == "call" and (name == "torch.cuda" or name.startswith("torch.cuda.")):
        by = str(caller.f_globals.get("__name__")) if caller else ""
        if not by.startswith(("torch.cuda", "importlib")) and frame.f_code.co_name != "<module>":
            asked.add(frame.f_code.co_name)
sys.setprofile(look)
import torch
from harness.runner.train_run import load_trainer
from harness.runner.worker import prepare_compiler
load_trainer("harness.training.train:train")
prepare_compiler(json.dumps({"cache": sys.argv[1], "spec": {"device": "cuda"}}))
assert "torch._inductor.compile_fx" in sys.modules
if sys.argv[2:]:
    torch.cuda.is_available()
sys.setprofile(None)
print(json.dumps([sorted(asked), threads]))
"""


def pids(matrix: Matrix) -> list[int]:
    rows = [r for p in matrix.results.glob("runs/*/attempts.jsonl") for r in read_lines(p)]
    return [r["pid"] for r in rows if "pid" in r]


def forks_of(matrix: Matrix, runner: int) -> list[int]:
    """Process ids of the forks, the first parent's first, once two of them wait."""
    waiting = matrix.at("*", 2)
    forks = [fork for parent in workers_of(runner) for fork in workers_of(parent)]
    assert sorted(forks) == sorted(waiting)
    return forks


def test_a_fork_ends_as_a_process_would(tmp_path: Path) -> None:
    fake = {str(seed): kind for seed, kind in enumerate(ENDS)}
    matrix = Matrix(tmp_path, n_seeds=len(ENDS), FAKE=fake, FAKE_MARKS=str(tmp_path))
    code, _, err = matrix.run(*FRESH)
    assert (code, err) == (1, "")
    for seed, (kind, ends) in enumerate(ENDS.items()):
        assert sorted(matrix.ends(seed)) == ends, kind
    killed = [
        r
        for p in matrix.results.glob("runs/*/attempts.jsonl")
        for r in read_lines(p)
        if r.get("status") == "failed"
    ]
    assert "its worker was killed by signal 9" in [r["reason"] for r in killed]
    assert (
        len(set(pids(matrix)))
        == len(pids(matrix))
        == sum(len(e) for ends in ENDS.values() for e in ends)
    )
    assert matrix.trailing() == []


def test_what_befalls_the_parent_befalls_its_fork(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "wait each once"}, FAKE_MARKS=str(tmp_path))
    process = matrix.start(*FRESH)
    forks, parents = forks_of(matrix, process.pid), workers_of(process.pid)
    assert len(forks) == len(parents) == 2
    for parent, number in zip(parents, (signal.SIGKILL, signal.SIGTERM), strict=True):
        os.kill(parent, number)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out
    assert sorted(matrix.ends(0)) == [["failed", "finished"], ["preempted", "finished"]]
    wait_for(lambda: all(map(gone, [*parents, *forks])))


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """It forks for each line, tells when it reads one, and counts a second at each look at the clock."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SERVES]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    )
    with process:
        yield process


def answer(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "reads\n"
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_each_request_has_a_fork_of_its_own_and_the_first_one_the_imports(
    parent: subprocess.Popen[str],
) -> None:
    first, second = (json.loads(answer(parent, word)) for word in ("one", "two"))
    assert first == ["one", False, 1, True, {"import_s": 1001, "idle_s": 1}]
    assert second == ["two", False, 2, True, {"import_s": 1, "idle_s": 1}]
    assert parent.stdin is not None and parent.stdout is not None
    assert parent.stdout.readline() == "reads\n"
    parent.stdin.close()
    assert (parent.stdout.read(), parent.wait(DEADLINE_S)) == ("", 0)


@pytest.mark.parametrize(
    ("line", "code"), [("exit 3", 3), (f"die {signal.SIGKILL:d}", -signal.SIGKILL)]
)
def test_a_parent_ends_as_its_fork_did_that_gave_no_answer(
    line: str, code: int, parent: subprocess.Popen[str]
) -> None:
    assert json.loads(answer(parent, "one"))[0] == "one"
    assert answer(parent, line) == ""
    assert parent.wait(DEADLINE_S) == code


@pytest.mark.parametrize("n_forks", [0, 1])
def test_a_parent_that_has_no_fork_goes_when_it_is_told_to(
    n_forks: int, parent: subprocess.Popen[str]
) -> None:
    for _ in range(n_forks):
        assert json.loads(answer(parent, "one"))[0] == "one"
    assert parent.stdout is not None and parent.stdout.readline() == "reads\n"
    os.kill(parent.pid, signal.SIGTERM)
    assert parent.wait(DEADLINE_S) == 0


@pytest.mark.slow
def test_no_fork_outlives_the_runner(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "hang"})
    process = matrix.start(*FRESH)
    forks = forks_of(matrix, process.pid)
    kill(process.pid)
    process.communicate(timeout=DEADLINE_S)
    assert forks
    wait_for(lambda: all(map(gone, forks)))


@pytest.mark.slow
def test_the_parent_has_no_thread_no_context_and_no_draws_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "mark")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "True", "0"]


@pytest.mark.slow
def test_nothing_asks_for_a_gpu_or_starts_a_thread_before_a_fork(tmp_path: Path) -> None:
    """Not even whether there is one: the driver, once asked, is of no use in a fork."""

    def seen(*more: str) -> tuple[set[str], list[str]]:
        command = [sys.executable, "-W", "ignore", "-c", SPY, str(tmp_path / "mark"), *more]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        asked, threads = json.loads(done.stdout)
        return set(asked), threads

    asked, threads = seen()
    assert asked <= {"_is_compiled"} and threads == []  # a name of the build, looked up
    assert "is_available" in seen("ask")[0]  # the spy would have seen it
