"""One discarded run of a script whose kernels are not cached here, before its times count."""

import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.foreign.arm import ForeignArm
from harness.foreign.experiment import ForeignExperiment
from harness.foreign.pool import earlier_runs
from harness.foreign.runner import run_again
from harness.run.spec import PlannedRun
from harness.store.store import Store

COMPILERS = (b"torch.compile", b"triton")  # by what a script compiles kernels


def cold_arms(e: ForeignExperiment, results: Path) -> list[ForeignArm]:
    """The arms that compile kernels and have no run that this node has made."""
    cold = []
    for arm in e.arms:
        code = b"\n".join(arm.code.files.values())
        if not any(word in code for word in COMPILERS):
            continue
        hosts = {run.result.host for run in earlier_runs(e, arm, results)}
        if socket.gethostname() not in hosts:
            cold.append(arm)
    return cold


def warm_up(
    e: ForeignExperiment,
    planned: Sequence[PlannedRun],
    store: Store,
    say: Callable[[str], None],
) -> str | None:
    """One run of each cold arm, which nothing keeps; the signal that stopped it, if one did.

    The code of the runs is kept already. A warm-up run that fails is said: its script's own runs
    tell why.
    """
    for arm in cold_arms(e, store.root):
        run = next(run for run in planned if run.arm == arm.name)
        say(f"{arm.name}: a warm-up run, for its kernels: it is discarded")
        with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
            again = Store.create(Path(folder) / "results")
            summary = run_again(run, store, again, limits=e.limits)
        if summary.stopped:
            return summary.stopped
        if summary.reasons.get(run.spec.run_id):
            say(f"{arm.name}: its warm-up run failed: {summary.reasons[run.spec.run_id]}")
    return None
