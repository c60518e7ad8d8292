"""Which jobs were sent for an experiment, by whichever call, and how to end them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.run.files import append_row
from harness.run.guarded import IN_FOLDER
from harness.run.read import read_lines
from harness.runner.slurm.queue import ALIVE, cancel_jobs, job_states


@dataclass(frozen=True, kw_only=True)
class SentJob:
    """A run, and the job that was sent for it."""

    run_id: str
    job: str


def jobs_folder(results: Path, experiment: str) -> Path:
    return results / "experiments" / experiment / "slurm"


def jobs_of(folder: Path) -> list[SentJob]:
    """Every job that was sent for an experiment, oldest first."""
    rows = read_lines(folder / "jobs.jsonl")
    return [SentJob(run_id=row["run_id"], job=row["job"]) for row in rows]


def last_jobs(folder: Path) -> dict[str, str]:
    """Run -> the job that was sent last for it."""
    return {sent.run_id: sent.job for sent in jobs_of(folder)}


def note_sent(folder: Path, jobs: Mapping[str, str]) -> None:
    """jobs: run -> the job that was sent for it."""
    rows = [{"run_id": run_id, "job": job} for run_id, job in jobs.items()]
    append_row(folder / "jobs.jsonl", *rows, below=IN_FOLDER)


def cancel_experiment(results: Path, name: str) -> int:
    """End the jobs of an experiment that are still in the queue; how many there were.

    Raises UserError if nobody can say.
    """
    jobs = set()
    for sent in jobs_of(jobs_folder(results, name)):
        if not (results / "runs" / sent.run_id / "result.json").exists():
            jobs.add(sent.job)
    if not jobs:
        return 0
    states = job_states(jobs)
    if states is None:
        raise UserError(
            f"squeue does not answer, so jobs of '{name}' may still be in the queue: "
            "run this again on the cluster's login node"
        )
    alive = [job for job, state in states.items() if state in ALIVE]
    if not alive:
        return 0
    cancel_jobs(alive)
    left = job_states(alive)
    if left is None or "PENDING" in left.values():
        raise UserError(
            f"scancel did not take every job of '{name}' out of the queue: run this again"
        )
    return len(alive)
