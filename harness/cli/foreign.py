"""Running experiments whose trainers are not ours: what is missing, one line as each run ends, how it stands."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.plan import PlannedRun
    from harness.process import Event
    from harness.runner import Summary
    from harness.store import Store

JUDGED = ("val_loss", "train_time_s")  # by the scripts' own account


def run_foreign(
    e: "ForeignExperiment", results: Path, *, max_parallel: int = 1, quiet: bool = False
) -> "tuple[Summary, list[PlannedRun], Store]":
    """Run what is missing, in the order of the plan; called again it goes on."""
    from harness.foreign.plan import describe_foreign, keep_code, plan_foreign, with_steps
    from harness.foreign.runner import ForeignRunner, make_slots
    from harness.plan import read_plan, save_plan
    from harness.provenance import redact
    from harness.runner import Summary
    from harness.store import Store

    planned = plan_foreign(e)
    before = read_plan(results, e.name)
    if before is not None and not before.get("foreign"):
        raise UserError(f"experiment '{e.name}' in {results} holds other runs: choose another name (--experiment)")
    store = Store.create(results)
    keep_code(e, store)
    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    save_plan(results, with_steps(results, describe_foreign(e, planned, before=before, command=command)))
    for p in planned:
        if wrong := store.repair(p.spec.run_id):
            print(f"{wrong}: set aside, it is run again", file=sys.stderr)
    missing = [p for p in planned if not store.is_done(p.spec.run_id)]
    if not missing:
        return Summary(), planned, store
    slots = make_slots(e.baseline.trainer["gpus"], min(max_parallel, len(missing)))
    progress = Progress(len(planned) - len(missing), len(planned), quiet)
    progress.say(f"{len(missing)} of {len(planned)} runs to do, {len(slots)} at a time")
    runner = ForeignRunner(missing, store, slots, limits=e.limits, on_event=progress.on_event)
    summary = runner.run()
    save_plan(results, with_steps(results, read_plan(results, e.name) or {}))
    return summary, planned, store


class Progress:
    """One line as each run ends; on standard error where standard output is for JSON."""

    def __init__(self, n_done: int, n_all: int, quiet: bool) -> None:
        self.n_done, self.n_all, self.file = n_done, n_all, sys.stderr if quiet else sys.stdout

    def say(self, line: str) -> None:
        print(line, file=self.file, flush=True)

    def on_event(self, event: "Event") -> None:
        p, status, final = event["run"], event["status"], event["final"]
        self.n_done += status in ("finished", "diverged")
        words = [f"{k} {final[k]:.4f}" for k in JUDGED if final.get(k) is not None]
        why = f": {event['reason']}" if event["reason"] else ""
        self.say(f"[{self.n_done}/{self.n_all}] {p.arm}, block {p.block + 1}: {status} {' '.join(words)}".rstrip() + why)


def stop_if_stopped(summary: "Summary", e: "ForeignExperiment", planned: "list[PlannedRun]", store: "Store") -> None:
    from harness.cli.runs import EXIT_STOPPED

    if summary.stopped:
        n_done = sum(store.is_done(p.spec.run_id) for p in planned)
        print(
            f"{e.name}: {summary.stopped}: {n_done} of {len(planned)} runs are done; run the same command again to go on",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_STOPPED[summary.stopped])


def tell_failed(summary: "Summary", planned: "list[PlannedRun]", store: "Store", *, quiet: bool) -> int:
    """Name the runs without a result, with their logs; how many there are."""
    failed = [p for p in planned if not store.is_done(p.spec.run_id)]
    for p in failed:
        reason, log = summary.reasons.get(p.spec.run_id), store.directory(p.spec.run_id) / "log.txt"
        status = summary.statuses.get(p.spec.run_id)
        print(f"{p.arm}, block {p.block + 1}: {status}: {reason} ({log})", file=sys.stderr if quiet else sys.stdout)
    return len(failed)
