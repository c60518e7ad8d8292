"""Slurm's queue as its commands tell it. No accounting database is needed: squeue knows a job for minutes after its end."""

import shutil
import subprocess
from collections.abc import Iterable, Mapping

from harness.errors import UserError

ALIVE = (
    *("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
    *("RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED", "RESV_DEL_HOLD"),
)


def _output(*command: str) -> str | None:
    """What a command prints, None if it fails: the controller may be busy."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def check_slurm() -> None:
    """Raises UserError where no job can be sent from here."""
    if shutil.which("sbatch") is None:
        raise UserError("--executor slurm: no sbatch here: run this on a login node of the cluster, or leave --executor out")
    if _output("squeue", "-h", "-t", "all", "--me") is None:
        raise UserError("--executor slurm: squeue does not answer: see `scontrol ping`, or try again when the controller is up")
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise UserError("--executor slurm: submitit is missing: pip install 'speedrun-ablations[slurm]'") from None


def job_states(jobs: Iterable[str]) -> Mapping[str, str] | None:
    """Job -> its state, GONE for one that Slurm has forgotten; None while Slurm does not answer. Array tasks are A_I."""
    jobs = list(jobs)
    text = _output("squeue", "-h", "-r", "-t", "all", "--me", "-o", "%i|%T")
    if text is None:
        return None
    known = dict(line.split("|", 1) for line in text.splitlines() if "|" in line)
    forgotten = [j for j in jobs if j not in known]
    if forgotten and (told := _output("sacct", "-n", "-P", "-X", "-o", "JobID,State", "-j", ",".join(forgotten))):
        ends = {job: state.split()[0] for job, _, state in (line.partition("|") for line in told.splitlines()) if state}
        known |= {job: end for job, end in ends.items() if end not in ALIVE}  # accounts may have lost sight of an end
    return {job: known.get(job, "GONE") for job in jobs}


def cancel_jobs(jobs: Iterable[str]) -> None:
    """Ask Slurm to end jobs, waiting or running."""
    if jobs := list(jobs):
        _output("scancel", *jobs)
