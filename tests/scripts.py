"""Two scripts against each other through the command line, for the tests of executors: their folder, what happens to them."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from harness.run.read import read_lines
from tests.fake_matrix import ROOT, STARTED, wait_for

TRAINERS = ROOT / "tests" / "trainers"
LONG_S = 400.0  # for a machine that is busy with other things
KEPT = ("loss", "steps", "val_loss", "status", "arm", "seed", "block")


class Scripts:
    """A user's folder: old.py and new.py, a module that both import, their data. new.py is better by 0.02."""

    def __init__(self, folder: Path, results: Path | None = None) -> None:
        self.folder, self.marks = folder / "user", folder / "marks"
        self.results = results or folder / "results"
        for path in (self.folder / "helper", self.folder / "data", self.marks):
            path.mkdir(parents=True, exist_ok=True)
        (self.folder / "helper" / "losses.py").write_text("BETTER = 0.0\n")
        (self.folder / "data" / "tokens.bin").write_bytes(bytes(range(256)) * 8192)
        shutil.copy(TRAINERS / "held.py", self.folder / "old.py")
        text = (self.folder / "old.py").read_text().replace('"MORE", "0"', '"MORE", "0.02"')
        (self.folder / "new.py").write_text(text)

    def hold(self) -> None:
        """From now on every script waits in its middle, until `go`."""
        (self.marks / "hold").touch()

    def go(self) -> None:
        (self.marks / "hold").unlink()

    def start(self, *options: object, n: int = 2) -> "subprocess.Popen[str]":
        variables = ["--env", "SEED={seed}", "--env", f"MARKS={self.marks}"]
        cpu = ["--gpus-per-run", "0", "--command", "python {script}"]
        command = ["ab", "old.py", "new.py", "-n", str(n), *cpu, *variables, "--target", "3.4"]
        return self.call(*command, "--no-report", *options)

    def call(self, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "harness", *map(str, arguments)]
        process = subprocess.Popen(
            [*command, "--results", str(self.results)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            # ignored in a background job's children
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        STARTED.append(process)
        return process

    def at(self, n: int) -> list[int]:
        """Process ids of the scripts that came to their middle, once so many have."""

        def come() -> list[int]:
            pids = [int(mark.name.split()[1]) for mark in self.marks.glob("at *")]
            return pids if len(pids) >= n else []

        found: list[int] = wait_for(come, LONG_S, every_s=0.1, seen=self.seen)
        return found

    def alive(self) -> list[int]:
        return [pid for pid in self.at(1) if psutil.pid_exists(pid)]

    def seen(self) -> list[Any]:
        return [(run.name, self.rows(run)) for run in sorted(self.results.glob("runs/*"))]

    def rows(self, run: Path) -> list[Any]:
        return read_lines(run / "attempts.jsonl")

    def ends(self) -> list[list[str]]:
        """How every attempt at every run ended."""
        ends = []
        for run in sorted(self.results.glob("runs/[!.]*")):
            ends.append([row["status"] for row in self.rows(run) if "ended" in row])
        return sorted(ends)

    def table(self, name: str = "ab-old-new") -> str:
        """The runs without what a machine or a moment adds."""
        from reports.inputs.load import load

        runs = load(name, results=str(self.results)).runs
        kept = [column for column in KEPT if column in runs]
        return runs[kept].sort_values(["block", "arm"]).to_csv(index=False)


def ended(process: "subprocess.Popen[str]", code: int) -> str:
    """What it printed, once it has ended with this exit code."""
    out, err = process.communicate(timeout=LONG_S)
    assert process.returncode == code, out + err
    return out
