"""Two real steps of a script in a folder of its own, watched from inside and by its lines.

Inside is `smoke_hook`, which a script's Python finds as `sitecustomize`. A script without torch, or
a Python that takes no PYTHONPATH (`-I`, a container), is followed by the lines that it prints.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from harness.foreign import guard, smoke_hook
from harness.foreign.command import ForeignTrainer, command_of, placeholders, variables_of
from harness.foreign.failure import FailureReason
from harness.foreign.linked_data import link_data
from harness.foreign.logs import Reading
from harness.foreign.own_lines import OwnReading
from harness.foreign.trainer import line_batches
from harness.node.slots import Slot
from harness.run.document import Document
from harness.split.smoke import TwoSteps

HOOK = "sitecustomize.py"
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SmokeLimits:
    """What one arm may take."""

    wall_s: float
    memory_mib: float


@dataclass(frozen=True, kw_only=True)
class StepTaker:
    """How a script is started for two steps."""

    trainer: ForeignTrainer
    modules: Mapping[str, bytes]  # that the script imports from its own folder
    slot: Slot
    limits: SmokeLimits

    def take(self, text: str) -> TwoSteps:
        """Two steps of a script, and nothing left of it, however it went."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ablate-smoke-") as folder:
            root = Path(folder)
            copy = root / "copy"
            for name, content in {**self.modules, self.trainer.script: text.encode()}.items():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                (copy / name).write_bytes(content)
            link_data(self.trainer.data, copy)
            watch = _StepWatch(taker=self, told=root / "told.jsonl")
            code = watch.run(copy, self._variables(root, copy))
            return watch.outcome(code, seconds=round(time.monotonic() - began, 2))

    def _variables(self, root: Path, copy: Path) -> dict[str, str]:
        (root / "hook").mkdir()
        (root / "hook" / HOOK).write_text(Path(smoke_hook.__file__).read_text())
        variables = variables_of(self.trainer, self.slot, self.values(copy))
        paths = [str(root / "hook"), *filter(None, [variables.get("PYTHONPATH")])]
        variables["PYTHONPATH"] = ":".join(paths)
        variables[smoke_hook.PLACE] = str(root / "told.jsonl")
        return variables

    def values(self, copy: Path) -> Mapping[str, object]:
        """What placeholders stand for."""
        return placeholders(self.trainer, seed=0, copy=copy)


@dataclass(kw_only=True)
class _StepWatch:
    """A script as it runs: what it printed, and why it was ended."""

    taker: StepTaker
    told: Path  # by the hook
    failure: FailureReason = field(default_factory=FailureReason)
    printed: list[float] = field(default_factory=list)  # losses
    steps: int = 0  # that it printed
    ended: str | None = None  # by a limit
    enough: bool = False  # it printed so many steps

    def run(self, copy: Path, variables: dict[str, str]) -> int:
        """Start it and follow it to its end, or end it; the exit code."""
        command = command_of(self.taker.trainer, self.taker.values(copy))
        process = subprocess.Popen(
            [sys.executable, "-P", str(guard.__file__), *command],
            cwd=copy,
            env=variables,
            stdin=subprocess.PIPE,  # its end is the guard's order to end everything
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            self._follow(process.stdout, psutil.Process(process.pid))
        finally:
            process.stdin.close()
            code = process.wait()
            process.stdout.close()
        return code

    def _follow(self, pipe: IO[bytes], process: psutil.Process) -> None:
        trainer, limits = self.taker.trainer, self.taker.limits
        reading = OwnReading(trainer.readings) if trainer.readings else Reading()
        began = time.monotonic()
        for lines in line_batches(pipe):
            for line in lines:
                self._take(line, reading)
            if self.enough and not any("loss" in line for line in _told(self.told)):
                return
            if time.monotonic() - began > limits.wall_s:
                self.ended = f"it took longer than its limit of {limits.wall_s:g} s"
            elif memory_of(process) > limits.memory_mib:
                self.ended = f"it took more memory than its limit of {limits.memory_mib:.0f} MiB"
            if self.ended:
                return

    def _take(self, line: bytes, reading: Reading) -> None:
        if self.enough:  # how much more it prints before it is ended is chance
            return
        point = reading.feed(line)
        if point is not None:
            self.printed.append(point.loss)
            self.steps = max(self.steps, point.step)
            self.enough = self.steps >= smoke_hook.STEPS
        elif any(character.isalpha() for character in line.decode("utf-8", "replace")):
            self.failure.feed(line.decode("utf-8", "replace").rstrip("\r\n"))

    def outcome(self, code: int, *, seconds: float) -> TwoSteps:
        """What came of it."""
        told = _told(self.told)
        losses = [float(line["loss"]) for line in told if "loss" in line] or self.printed
        norms = [float(norm) for line in told for norm in line.get("norms", ())]
        steps = max((line["steps"] for line in told if "steps" in line), default=self.steps)
        whole = self.enough or steps >= smoke_hook.STEPS
        reason = self.ended
        if whole:
            reason = None
        elif reason is None and code:
            reason = self.failure.reason(code)
        elif reason is None and not losses:
            reason = "it ended without a step: no backward pass, and no line with its loss"
        if reason is None and not all(math.isfinite(value) for value in (*losses, *norms)):
            reason = "its loss or its gradients are not finite within two steps"
        return TwoSteps(
            reason=reason,
            steps=steps,
            losses=tuple(losses),
            norms=tuple(norms),
            seconds=seconds,
        )


def _told(path: Path) -> list[Document]:
    """The lines of the hook; none where it was not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def memory_of(process: psutil.Process) -> float:
    """MiB that the processes under one hold; 0 once they are gone."""
    total = 0
    try:
        for child in process.children(recursive=True):
            total += child.memory_info().rss
    except psutil.Error:
        return total / MIB
    return total / MIB
