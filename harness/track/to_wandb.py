"""Weights & Biases; offline where nobody is logged in."""

import os
from pathlib import Path

import wandb

from harness.track.follow import Ending, Numbers, TrackedRun
from harness.track.trackers import own_folder


class Wandb:
    """A run in the project WANDB_PROJECT, or the experiment's name; its arm is its group.

    Where nobody is logged in the runs are kept in `wandb/` of the experiment's folder.
    """

    def __init__(self, experiment: str, folder: Path) -> None:
        self._project = os.environ.get("WANDB_PROJECT") or experiment
        self._open: dict[str, wandb.Run] = {}
        mode = os.environ.get("WANDB_MODE")
        if mode is None and not wandb.login(prompt=False):
            mode = "offline"
        own_folder(folder / "wandb", below=3)  # where its client writes
        place = os.environ.get("WANDB_DIR") or str(folder)
        self._settings = {
            "mode": mode,
            "dir": place,
            "reinit": "create_new",
            "resume": "allow" if mode != "offline" else None,
            "settings": wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        }
        self.where = f"project {self._project}"
        if mode == "offline":
            self.where = f"wandb sync {place}/wandb/offline-run-*"

    def begin(self, run: TrackedRun) -> None:
        """Begin it, or go on with it."""
        self._open[run.key] = wandb.init(
            project=self._project,
            id=run.key,
            name=run.label,
            group=run.arm,
            job_type=run.facts["role"],
            config={**run.config, "ablate": dict(run.facts)},
            **self._settings,
        )
        self._open[run.key].define_metric("*", step_metric="step")

    def log(self, run: TrackedRun, step: int, numbers: Numbers) -> None:
        """A row of its history; `step` is its x axis."""
        self._open[run.key].log({"step": step, **numbers})

    def end(self, run: TrackedRun, outcome: Ending) -> None:
        """Its outcome in the summary; its exit code tells whether it finished."""
        opened = self._open.pop(run.key)
        told = {"status": outcome.status, "reason": outcome.reason}
        opened.summary.update({**told, **outcome.numbers})
        opened.finish(exit_code=int(not outcome.counts))

    def flush(self) -> None:
        """Its client sends by itself."""

    def close(self) -> None:
        """Leave what is open as it is: it goes on another time."""
        for run in self._open.values():
            run.finish()
