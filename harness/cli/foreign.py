"""Running experiments whose trainers are not ours: what is missing, one line as each run ends, how it stands."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.spec import PlannedRun
    from harness.runner.executor import RunEnded, Summary
    from harness.store.store import Store


JUDGED = ("val_loss", "train_time_s")  # by the scripts' own account


def run_foreign(
    e: "ForeignExperiment", results: Path, *, max_parallel: int = 1, max_gpu_hours: float | None = None, quiet: bool = False
) -> "tuple[Summary, list[PlannedRun], Store]":
    """Run what is missing, in the order of the plan; called again it goes on. Starts nothing that may cost more than allowed."""
    from harness.cli.executors import EXECUTORS
    from harness.experiment.cost import check_limit, estimate_foreign
    from harness.foreign.plan import describe_foreign, keep_code, plan_foreign, with_steps
    from harness.provenance.redact import redact
    from harness.runner.executor import ExecutorOptions, RunLimits, Summary
    from harness.store.plans import read_plan, save_plan
    from harness.store.store import Store

    planned = plan_foreign(e)
    check_limit(estimate_foreign(planned, results, wall_limit_s=e.limits.wall_s), max_gpu_hours)
    before = read_plan(results, e.name)
    if before is not None and not before.get("foreign"):
        raise UserError(f"experiment '{e.name}' in {results} holds other runs: choose another name (--experiment)")
    store = Store.create(results)
    keep_code(e, store)
    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    if e.started is not None:  # `ablate run NAME` goes on with what another command began
        more = before is None or len(before["runs"]) != len(planned)
        command = f"{e.started.partition(' && ')[0]} && {command}" if more else e.started
    save_plan(results, with_steps(results, describe_foreign(e, planned, before=before, command=command)))
    missing = []
    for p in planned:
        result, wrong = store.repair(p.spec.run_id)
        if wrong:
            print(f"{wrong}: set aside, it is run again", file=sys.stderr)
        if result is None:
            missing.append(p)
    if not missing:
        return Summary(), planned, store
    progress = Progress(len(planned) - len(missing), len(planned), quiet)
    limits = RunLimits(wall_s=e.limits.wall_s, silence_s=e.limits.silence_s, failure_retries=e.limits.retries)
    options = ExecutorOptions(limits=limits, max_parallel=max_parallel, on_end=progress.on_end)
    executor = EXECUTORS["foreign"].make(missing, store, options)
    progress.say(f"{len(missing)} of {len(planned)} runs to do, {executor.at_once()} at a time")
    summary = executor.run()
    save_plan(results, with_steps(results, read_plan(results, e.name) or {}))
    return summary, planned, store


class Progress:
    """One line as each run ends; on standard error where standard output is for JSON."""

    def __init__(self, n_done: int, n_all: int, quiet: bool) -> None:
        self.n_done, self.n_all, self.file = n_done, n_all, sys.stderr if quiet else sys.stdout

    def say(self, line: str) -> None:
        print(line, file=self.file, flush=True)

    def on_end(self, ended: "RunEnded") -> None:
        p = ended.run
        self.n_done += ended.status in ("finished", "diverged")
        words = [f"{k} {getattr(ended, k):.4f}" for k in JUDGED if getattr(ended, k) is not None]
        why = f": {ended.reason}" if ended.reason else ""
        line = f"[{self.n_done}/{self.n_all}] {p.arm}, block {p.block + 1}: {ended.status}"
        self.say(f"{line} {' '.join(words)}".rstrip() + why)


def stop_if_stopped(summary: "Summary", e: "ForeignExperiment", planned: "list[PlannedRun]", store: "Store") -> None:
    from harness.cli.options import EXIT_STOPPED

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


def run_experiment(
    e: "ForeignExperiment",
    results: Path,
    *,
    max_parallel: int,
    max_gpu_hours: float | None,
    price: float | None,
    wall_limit_s: float | None,
    dry_run: bool,
    no_report: bool,
) -> None:
    """`ablate run` of such an experiment: what is missing, the report, the exit code."""
    from dataclasses import replace

    from harness.cli.report import write_page

    if wall_limit_s is not None:
        e = replace(e, limits=replace(e.limits, wall_s=wall_limit_s))
    if dry_run:
        print_foreign_plan(e, results, price=price, max_gpu_hours=max_gpu_hours)
        return
    summary, planned, store = run_foreign(e, results, max_parallel=max_parallel, max_gpu_hours=max_gpu_hours)
    stop_if_stopped(summary, e, planned, store)
    n_failed = tell_failed(summary, planned, store, quiet=False)
    n_done = len(planned) - n_failed
    print(
        f"{e.name}: {f'{n_done} of {len(planned)} runs have a result' if n_failed else f'everything is finished: {n_done} runs'}"
    )
    if not no_report:
        print(f"report: {write_page([e.name], results)}")
    raise typer.Exit(1 if n_failed else 0)


def print_foreign_plan(
    e: "ForeignExperiment", results: Path, *, price: float | None, max_gpu_hours: float | None = None, json: bool = False
) -> None:
    """Arms, runs, what is done, what the rest costs, and what the static look at each script found."""
    from harness.cli.table import print_json, print_table
    from harness.experiment.cost import check_limit, estimate_foreign, with_price
    from harness.foreign.plan import plan_foreign
    from harness.store.store import Store

    planned, store = plan_foreign(e), Store(results)
    done = {p.spec.run_id for p in planned if store.is_done(p.spec.run_id)}
    cost = with_price(estimate_foreign(planned, results, wall_limit_s=e.limits.wall_s), price)
    rows = []
    for arm in e.arms:
        own = [p.spec.run_id for p in planned if p.arm == arm.name]
        changes = [f"{k}={v}" for k, v in arm.fields.items()]
        rows.append({"arm": arm.name, "runs": len(own), "done": len(done.intersection(own)), "changes": changes})
    if json:
        facts = {"name": e.name, "question": e.question, "arms": rows, "runs": len(planned), "done": len(done)}
        print_json({**facts, "seeds": list(e.seeds), "cost": cost})
        return
    print(f"{e.name}{': ' * bool(e.question)}{e.question}\n{len(planned)} runs of {len(e.arms)} arms, {len(done)} done")
    print_table(rows)
    for arm in e.arms:
        for hint in arm.hints:
            print(f"{arm.name}, {arm.code.script}:{hint.line}: {hint.text}")
    print(cost["words"])
    check_limit(cost, max_gpu_hours)
