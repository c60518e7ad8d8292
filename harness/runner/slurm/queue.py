"""Slurm's queue as its commands tell it.

No accounting database is needed: squeue knows a job for minutes after its end.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from harness.errors import UserError, how_to_install

ALIVE = (
    "PENDING",
    "RUNNING",
    "CONFIGURING",
    "COMPLETING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "RESV_DEL_HOLD",
)
GONE = "GONE"  # of a job that Slurm has forgotten
SLURM_ANSWERS_WITHIN_S = 60


def output_of(*command: str) -> str | None:
    """What a command prints, None if it fails: the controller may be busy."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SLURM_ANSWERS_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def check_slurm() -> None:
    """Raises UserError where no job can be sent from here."""
    if shutil.which("sbatch") is None:
        raise UserError(
            "--executor slurm: no sbatch here: run this on a login node of the cluster, "
            "or leave --executor out"
        )
    if output_of("squeue", "-h", "-t", "all", "--me") is None:
        raise UserError(
            "--executor slurm: squeue does not answer: see `scontrol ping`, "
            "or try again when the controller is up"
        )
    if find_spec("submitit") is None:
        raise UserError(f"--executor slurm: submitit is missing: {how_to_install('slurm')}")


def job_states(jobs: Iterable[str]) -> Mapping[str, str] | None:
    """Job -> its state, GONE for one that Slurm has forgotten; None while it does not answer.

    Tasks of an array are A_I.
    """
    names = list(jobs)
    listed = output_of("squeue", "-h", "-r", "-t", "all", "--me", "-o", "%i|%T")
    if listed is None:
        return None
    states = {}
    for line in listed.splitlines():
        job, bar, state = line.partition("|")
        if bar:
            states[job] = state
    forgotten = [job for job in names if job not in states]
    if forgotten:
        states |= ends_in_accounts(forgotten)
    return {job: states.get(job, GONE) for job in names}


def ends_in_accounts(jobs: Sequence[str]) -> dict[str, str]:
    """Job -> the state it ended in, of those whose end the accounts know, if there are accounts."""
    listed = output_of("sacct", "-n", "-P", "-X", "-o", "JobID,State", "-j", ",".join(jobs))
    ends = {}
    for line in (listed or "").splitlines():
        job, _, state_text = line.partition("|")
        if not state_text:
            continue
        state = state_text.split()[0]  # CANCELLED by 1000
        if state not in ALIVE:  # accounts may have lost sight of an end
            ends[job] = state
    return ends


def cancel_jobs(jobs: Iterable[str]) -> None:
    """Ask Slurm to end jobs, waiting or running."""
    names = list(jobs)
    if names:
        output_of("scancel", *names)
