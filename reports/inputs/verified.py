"""Whether a run counts: its files are its own, and it is the run that the plan names."""

from pathlib import Path

from harness.run.guarded import read_text
from harness.run.identity import wrong_identity
from harness.run.plan import Plan, PlanRun
from harness.run.read import parse_config
from harness.run.remembered import Remembered, examine_known
from harness.run.results import UNSEALED, Result


def verified_result(
    folder: Path, plan: Plan, planned: PlanRun, verified: Remembered | None
) -> tuple[Result | None, str | None]:
    """A run's result, None without one, and why it does not count.

    A file that is not the run's own, or another run than the plan names.
    """
    verified = verified or Remembered(folder.parent.parent)
    result, wrong = examine_known(folder, folder.name, verified)
    if result is None or wrong or planned.imported:
        return result, wrong
    if result.schema > UNSEALED:
        wrong = wrong_identity(folder, result)
    if not plan.foreign:  # whose rows have no seeds, or those that their scripts took
        wrong = wrong or _other_run(folder, planned)
    return result, wrong


def _other_run(folder: Path, planned: PlanRun) -> str | None:
    """Why a run is not the one that its row of the plan describes."""
    config = parse_config(read_text(folder / "config.yaml"))
    for key in ("seed", "replicate", "budget", "role"):
        if key in config and config[key] != getattr(planned, key):
            difference = f"{key} {str(config[key])[:60]}, its plan: {getattr(planned, key)}"
            return f"{folder / 'config.yaml'}: {difference}"
    return None
