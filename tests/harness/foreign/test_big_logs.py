"""Whatever a foreign trainer prints: memory and disk stay bounded, its head and tail are kept, a limit ends it with a reason."""

import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from harness.foreign.log_text import log_lines
from harness.run.read import read_lines
from harness.store import attempt, log_file
from harness.store.log_file import HeadAndTail
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S, ROOT
from tests.foreign_bench import ablate, bench, write
from tests.one_run import claimed

MIB = 2**20
MEASURED = """
import atexit, os, sys
from harness.__main__ import main
from harness.node.memory import peak_mib
atexit.register(lambda: print(peak_mib(os.getpid()), file=sys.stderr))
main(sys.argv[1:])
"""
FLOOD = """
import os
line = "tokens per second and other words that nobody reads: " + "0123456789 " * 4
for i in range(int(float(os.environ.get('FLOOD', {mib})) * 2**20) // len(line)):
    print(i, line)
print("the end of the flood", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


def flooded(folder: Path, mib: float, **trainer: object) -> Path:
    """An experiment of two arms: the script of the first prints so much before it begins."""
    (folder / "flood.py").write_text(FLOOD.format(mib=mib) + (folder / "old.py").read_text())
    return write(
        folder, trainer={"file": "flood.py", **trainer}, changes={"same": {"env": {"FLOOD": "0"}}}
    )


def peak_mib(path: Path) -> float:
    """Of the process that runs an experiment, without its children."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "run", str(path), "--no-report"],
        capture_output=True, text=True, check=True, env=environment, timeout=DEADLINE_S,
    )  # fmt: skip
    return float(done.stderr.split()[-1])


@pytest.mark.slow
@pytest.mark.long
def test_250_mib_of_output_take_no_memory_and_little_disk(folder: Path) -> None:
    small = peak_mib(flooded(folder, 0.1))
    before = set(Path("results/runs").iterdir())
    run = next(Path("results/runs").iterdir())
    curve = [row for row in read_lines(run / "metrics.jsonl") if row["kind"] == "val"]
    began = time.monotonic()
    big = peak_mib(flooded(folder, 250))
    print(f"{small:.0f} MiB, with 250 MiB of output {big:.0f}, in {time.monotonic() - began:.0f} s")
    assert big < small + 100
    made = [path for path in Path("results/runs").iterdir() if path not in before]
    other = max(made, key=lambda path: (path / "log.txt").stat().st_size)
    log = (other / "log.txt").read_text()
    assert len(log) < 10 * MIB
    assert "\n0 tokens per second" in log[:1000]
    assert "MiB of the log are left out here" in log
    assert log.index("left out here") < log.index("the end of the flood")
    rows = [row for row in read_lines(other / "metrics.jsonl") if row["kind"] == "val"]
    assert [row["step"] for row in rows] == [row["step"] for row in curve]


@pytest.mark.slow
def test_an_output_limit_ends_a_run_with_a_reason(folder: Path) -> None:
    path = flooded(folder, 64, output_limit=2)
    assert ablate("run", path, "--no-report") == 1
    runs = list(Path("results/runs").iterdir())
    ends = {read_lines(run / "attempts.jsonl")[-1]["reason"]: run for run in runs}
    run = ends["it printed more than its output limit of 2 MiB"]
    assert read_lines(run / "attempts.jsonl")[-1]["status"] == "failed"
    assert 1 * MIB < (run / "log.txt").stat().st_size < 4 * MIB


ENDS = """
import os, signal, sys, time
from pathlib import Path
from harness.store.log_file import HeadAndTail
file = Path(sys.argv[1]).open("w", encoding="utf-8")
log = HeadAndTail(file, str, head=200, tail=200)
for i in range(1000):
    log.write(f"line {i:03}\\n")
while time.monotonic() < log.next_s:
    time.sleep(0.001)
log.write("why it ends\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_last_words_of_a_long_log(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ENDS, str(path)]
    done = subprocess.run(command, env=environment, timeout=DEADLINE_S, check=False)
    assert done.returncode == -signal.SIGKILL
    lines = path.read_text().splitlines()
    assert lines[0] == "line 000"
    assert lines[-1] == "why it ends"
    assert path.stat().st_size < 200 + 2 * 200 + 100


def test_an_attempt_that_is_given_up_leaves_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "HeadAndTail", partial(HeadAndTail, head=100, tail=50))
    monkeypatch.setattr(log_file, "SHARE", 1e-9)  # it is not written again before the end
    out = claimed(Store.create(tmp_path))
    for i in range(100):
        out.log(f"line {i:03}")
    out.release()
    out.release()
    lines = (out.run / "log.txt").read_text().splitlines()
    assert lines[0] == "line 000"
    assert sum("left out here" in line for line in lines) == 1
    assert lines[-5:] == [f"line {i:03}" for i in range(95, 100)]


def holds(log: HeadAndTail, file: StringIO) -> bool:
    """Whether a file has what was written into it, and without any of its characters would not."""
    raw = file.getvalue().encode()
    without = [raw[:i] + b"~" + raw[i + 1 :] for i in range(len(raw))]
    return (
        log.is_in(raw) and log.is_in(b"more " + raw + b"more") and not any(map(log.is_in, without))
    )


@pytest.mark.parametrize("n_lines", [1, 15, 25, 100])
def test_what_came_while_nothing_was_written_is_there_at_the_next_write(n_lines: int) -> None:
    """A flood of less than a tail, of one to two, of more: the file ends as the log does, before it is ended."""
    file = StringIO()
    log = HeadAndTail(file, str, head=20, tail=100)
    for i in range(3):
        log.write(f"head {i:03}\n")
    log.next_s = math.inf
    for i in range(n_lines):
        log.write(f"line {i:03}\n")
    log.next_s = 0.0
    log.write("why it ends\n")
    assert holds(log, file)
    tail = [f"line {i:03}" for i in range(n_lines)][-8:]
    assert file.getvalue().splitlines()[-len(tail) - 1 :] == [*tail, "why it ends"]


def test_of_a_long_log_head_and_tail_are_kept() -> None:
    file = StringIO()
    log = HeadAndTail(file, str, head=20, tail=20)
    for i in range(100):
        log.write(f"line {i:03}\n")
        assert holds(log, file)
    log.end()
    assert holds(log, file)
    lines = file.getvalue().splitlines()
    assert lines[:2] == ["line 000", "line 001"]
    assert "left out here" in lines[2]
    assert lines[-2:] == ["line 098", "line 099"]
    assert len(lines) <= 7


def test_a_short_log_is_kept_as_it_is() -> None:
    file = StringIO()
    log = HeadAndTail(file, str, head=100, tail=20)
    log.write("one\n")
    log.write("two\n")
    assert file.getvalue() == "one\ntwo\n"  # at once
    log.end()
    assert file.getvalue() == "one\ntwo\n"


def test_a_line_is_cut_where_no_log_has_one_so_long(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"x" * 65_535 + b"\n" + b"y" * 70_000 + b"\nend\n")
    assert [len(line) for line in log_lines(path)] == [65_536, 65_536, 4]
