"""A preset through the runner itself: torchrun, DDP, a warm group, a rank that is killed.

Part of harness/bench/gpu_check.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.run import Values
from harness.errors import UserError
from harness.run.attempts import AttemptRow, read_attempts

WORLDS = (1, 2, 4, 8)  # processes that share the records' eight ranks evenly
STEPS, STEPS_OF_KILLED = 4, 12  # a step of each of three stages, and the extension
LOOKS_EVERY_S = 0.01  # for a run to kill


@dataclass(frozen=True, kw_only=True)
class RunnerFigures:
    """What became of the runs; passed: all finished, in one group but for the killed rank's."""

    world: int  # processes of a run
    runs_s: float  # both runs in a row, from the command to its end
    killed_s: float  # both runs of which one lost a rank, to their end
    groups: int  # of workers that the two runs in a row had
    ends: list[str]  # of the attempts at each run
    passed: bool


def runner(
    preset: str, fields: Values, *, scale: str, device: str, world: int, folder: Path
) -> RunnerFigures:
    """Two runs of a preset in a row, then two more, of which one loses its first rank.

    fields: settings of every run. scale: its size. device: cpu or cuda. world: processes of a
    run. folder: holds the prepared corpus, and takes the results.
    """
    results = folder / f"runner-{preset}"
    results.mkdir()

    def begin(name: str, steps: int) -> "subprocess.Popen[str]":
        file = results / f"{name}.yaml"
        settings = {**fields, "data.corpus": "stdlib"}
        file.write_text(json.dumps(experiment(name, preset, scale, settings, steps=steps)))
        return start(file, results, folder, device=device, world=world)

    began = time.perf_counter()
    wait(begin("in-a-row", STEPS))
    runs_s, in_a_row = time.perf_counter() - began, attempts(results)
    began = time.perf_counter()
    process = begin("killed", STEPS_OF_KILLED)
    kill_a_rank(process, results, earlier=set(in_a_row))
    wait(process)
    killed_s = time.perf_counter() - began
    ends = [" ".join(statuses(rows)) for rows in attempts(results).values()]
    groups = len({pid for rows in in_a_row.values() for pid in pids(rows)})
    finished = all(end.endswith("finished") for end in ends)
    n_attempts = sum(len(end.split()) for end in ends)
    return RunnerFigures(
        world=world,
        runs_s=runs_s,
        killed_s=killed_s,
        groups=groups,
        ends=ends,
        passed=finished and len(ends) == 4 and n_attempts == 5 and groups == 1,
    )


def experiment(
    name: str, preset: str, scale: str, settings: Values, *, steps: int
) -> dict[str, object]:
    """The content of its file: two arms of the same graphs, a run of each.

    name, preset, scale: its own name, base and scale. settings: of every run. steps: its length.
    """
    short = {
        "data.val_every": STEPS_OF_KILLED,
        "schedule.warmup_steps": 0,
        "system.checkpoint": "none",
    }
    return {
        "name": f"gpu-check-{name}",
        "question": "Does the runner train on this machine?",
        "base": preset,
        "scale": scale,
        "set": {**short, **settings},
        "changes": {"slower": {"optim.muon_lr": 0.01}},
        "seeds": 1,
        "budgets": [steps],
    }


def start(
    file: Path, results: Path, folder: Path, *, device: str, world: int
) -> "subprocess.Popen[str]":
    """`ablate run`, in a process of its own.

    file: the experiment. results, folder: where its runs go, and where its corpus lies. device,
    world: what each run is trained on, by how many processes.
    """
    command = [sys.executable, "-m", "harness", "run", str(file), "--results", str(results)]
    command += ["--no-report", "--max-parallel", "1", "--gpus-per-run", str(world)]
    command += ["--set", f"device={device}"]
    return subprocess.Popen(
        command,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "ABLATE_DATA": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait(process: "subprocess.Popen[str]") -> None:
    """Until it ends well. Raises UserError with its last line."""
    said, _ = process.communicate()
    if process.returncode != 0:
        lines = said.strip().splitlines() or ["no word"]
        raise UserError(f"ablate run: exit {process.returncode}: {lines[-1]}")


def attempts(results: Path) -> dict[str, list[AttemptRow]]:
    """What each run's attempts tell, by the run's name."""
    files = sorted(results.glob("runs/*/attempts.jsonl"))
    return {file.parent.name: read_attempts(file.parent) for file in files}


def statuses(rows: Sequence[AttemptRow]) -> list[str]:
    return [str(row.status) for row in rows if row.is_end]


def pids(rows: Sequence[AttemptRow]) -> list[int]:
    """The first rank of every attempt that began."""
    return [row.pid for row in rows if row.pid is not None]


def kill_a_rank(process: "subprocess.Popen[str]", results: Path, *, earlier: set[str]) -> None:
    """End the first rank of a run that is not among those known, once it has begun."""
    while process.poll() is None:
        for name, rows in attempts(results).items():
            begun = pids(rows)
            if name not in earlier and begun:
                os.kill(begun[0], signal.SIGKILL)
                return
        time.sleep(LOOKS_EVERY_S)
