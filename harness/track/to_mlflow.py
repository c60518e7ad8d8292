"""MLflow, by its client: the active run of a process is nobody's business here."""

import time
from pathlib import Path

from mlflow import MlflowClient, entities

from harness.track.follow import Ending, Numbers, TrackedRun


class Mlflow:
    """A run in the experiment of that name, where MLFLOW_TRACKING_URI says."""

    def __init__(self, experiment: str, folder: Path) -> None:
        self._client = MlflowClient()
        existing = self._client.get_experiment_by_name(experiment)
        self._experiment = (
            existing.experiment_id if existing else self._client.create_experiment(experiment)
        )
        self._ids: dict[str, str] = {}
        self._waiting: dict[str, list[entities.Metric]] = {}
        self.where = f"experiment {experiment} of {self._client.tracking_uri}"

    def begin(self, run: TrackedRun) -> None:
        """Find it by its key, or make it."""
        query = f"tags.`ablate.key` = '{run.key}'"
        existing = self._client.search_runs([self._experiment], query, max_results=1)
        if existing:
            self._ids[run.key] = existing[0].info.run_id
        else:
            tags = {"ablate.key": run.key, **{f"ablate.{k}": v for k, v in run.facts.items()}}
            made = self._client.create_run(self._experiment, tags=tags, run_name=run.label)
            self._ids[run.key] = made.info.run_id
            params = [entities.Param(name, str(value)[:500]) for name, value in run.config.items()]
            for start in range(0, len(params), 100):
                self._client.log_batch(self._ids[run.key], params=params[start : start + 100])
        self._waiting[run.key] = []

    def log(self, run: TrackedRun, step: int, numbers: Numbers) -> None:
        """Sent a thousand at once, as the library does."""
        now = int(time.time() * 1000)
        for name, value in numbers.items():
            self._waiting[run.key].append(entities.Metric(name, value, now, step))
        if len(self._waiting[run.key]) >= 900:
            self._send(run.key)

    def end(self, run: TrackedRun, outcome: Ending) -> None:
        """Its outcome as metrics below `result/`, its status as tags and as MLflow's own."""
        self.log(run, 0, {f"result/{name}": value for name, value in outcome.numbers.items()})
        self._send(run.key)
        run_id = self._ids.pop(run.key)
        self._client.set_tag(run_id, "ablate.status", outcome.status)
        self._client.set_tag(run_id, "ablate.reason", outcome.reason or "")
        ended = "FINISHED" if outcome.counts else "FAILED"
        self._client.set_terminated(run_id, ended)
        del self._waiting[run.key]

    def flush(self) -> None:
        """Send what waits."""
        for key in self._waiting:
            self._send(key)

    def close(self) -> None:
        """Send what waits; runs that go on stay open."""
        self.flush()

    def _send(self, key: str) -> None:
        waiting = self._waiting[key]
        for start in range(0, len(waiting), 1000):
            self._client.log_batch(self._ids[key], metrics=waiting[start : start + 1000])
        waiting.clear()
