"""Experiments and their runs: plan them, run what is missing, see how it stands."""

import gc
import os
import shlex
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.adaptive import next_part
from harness.cli.foreign import run_experiment
from harness.cli.lookup import current_part, read_experiment, read_foreign, refuse_for_foreign
from harness.cli.options import EXIT_FAILED, EXIT_STOPPED, RESULTS, Exp, Results, Seeds, Set
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.run.spec import PlannedRun
    from harness.runner.executor import Summary
    from harness.runner.local import Runner
    from harness.runner.slurm.executor import SlurmRunner
    from harness.store.store import Store

FAILED = ("failed", "timeout", "oom")


@app.command()
def run(
    experiment: Exp,
    seeds: Seeds = None,
    executor: Annotated[str, typer.Option(help="local or slurm")] = "local",
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="FILE", help="settings for --executor slurm; default: cluster.yaml here")
    ] = None,
    gpus_per_run: Annotated[int | None, typer.Option("--gpus-per-run", help="processes of one run on each of its nodes")] = None,
    nodes_per_run: Annotated[int, typer.Option("--nodes-per-run", min=1, help="nodes of one run, with --executor slurm")] = 1,
    max_parallel: Annotated[int | None, typer.Option("--max-parallel", help="runs at a time; default: as many as fit")] = None,
    settings: Set = None,
    worker: Annotated[str, typer.Option(help="warm (one process takes run after run) or fresh")] = "warm",
    wall_limit: Annotated[
        float | None, typer.Option("--wall-limit", help="seconds after which a run is ended as timeout")
    ] = None,
    oom_retries: Annotated[
        int, typer.Option("--oom-retries", help="times a run out of memory is tried again with half the tokens in a pass")
    ] = 0,
    max_gpu_hours: Annotated[
        float | None, typer.Option("--max-gpu-hours", metavar="H", help="start nothing if the estimate is more than this")
    ] = None,
    price: Annotated[float | None, typer.Option(help="of a GPU-hour, for --dry-run", min=0.0)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and stop")] = False,
    no_report: Annotated[bool, typer.Option("--no-report")] = False,
    results: Results = RESULTS,
) -> None:
    """Run what is missing of an experiment. Exit 0 if all runs have an outcome, 1 if some failed, 2 on bad input."""
    from harness.experiment.cost import check_limit, estimate, spent
    from harness.experiment.plan import plan_runs
    from harness.experiment.record import describe
    from harness.provenance.redact import redact
    from harness.run.results import read_result
    from harness.runner.executor import Limits
    from harness.runner.slurm.cluster import read_cluster
    from harness.store.plans import read_plan, save_plan
    from harness.store.store import Store

    gc.set_threshold(100_000, 50)  # a plan of ten thousand runs stays: to look through it again and again finds nothing
    if executor not in ("local", "slurm"):
        raise UserError(f"--executor {executor}: must be local or slurm")
    if executor == "local" and (cluster is not None or nodes_per_run > 1):
        raise UserError("--cluster and --nodes-per-run are for --executor slurm: add that, or leave them out")
    if worker not in ("warm", "fresh"):
        raise UserError(f"--worker {worker}: must be warm or fresh")
    if (gpus_per_run is not None and gpus_per_run < 1) or (max_parallel is not None and max_parallel < 1):
        raise UserError("--gpus-per-run and --max-parallel must be at least 1")
    limits = Limits(wall_s=wall_limit, oom_retries=oom_retries)
    if (foreign := read_foreign(experiment, results, settings, seeds, gpus_per_run)) is not None:
        slurm = executor == "slurm"
        ours_alone = {"--executor slurm": slurm, "--oom-retries": oom_retries, "--worker fresh": worker == "fresh"}
        refuse_for_foreign(ours_alone, "a job of yours may call `ablate run` on its node; `retries` stands in the file")
        run_experiment(
            foreign, results, max_parallel=max_parallel or 1, max_gpu_hours=max_gpu_hours, price=price, wall_limit_s=wall_limit,
            dry_run=dry_run, no_report=no_report,
        )  # fmt: skip
        return
    site = read_cluster(cluster) if executor == "slurm" else None
    if nodes_per_run > 1:
        gpus_per_run = (gpus_per_run or 1) * nodes_per_run
    whole = read_experiment(experiment, settings, seeds, device=site.device if site else None)
    loaded = current_part(whole, results, world_size=gpus_per_run)
    planned = plan_runs(loaded, world_size=gpus_per_run, need_data=not dry_run)
    if dry_run:
        from harness.cli.plan import print_plan

        print_plan(loaded, planned, results, price=price)
    if max_gpu_hours is not None:
        done = {p.spec.run_id for p in planned if read_result(results / "runs" / p.spec.run_id) is not None}
        check_limit(estimate(planned, done, results), max_gpu_hours)
    if dry_run:
        return
    store = Store.create(results)
    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    summary, hours = None, 0.0
    while True:
        before = read_plan(results, loaded.name)
        described = describe(loaded, planned, before=before, command=command)
        if before is None or not described.items() <= before.items():  # what the report adds to it is no change
            save_plan(results, described)
        start = (
            partial(slurm_runner, cluster=site, name=loaded.name, n_nodes=nodes_per_run)
            if site
            else partial(local_runner, warm=worker == "warm")
        )
        how = partial(start, command=command, limits=limits, max_parallel=max_parallel)
        step = complete(loaded.name, store, planned, how)
        summary = merge(summary, step)
        following = None if step.stopped else next_part(whole, loaded, results, world_size=gpus_per_run)
        if following is None:
            break
        if max_gpu_hours is not None:  # what follows an adaptive or retuned part is known only now
            hours += spent([p for p in planned if p.spec.run_id in step.statuses], results)
        loaded, planned = following, plan_runs(following, world_size=gpus_per_run)
        if max_gpu_hours is not None:
            done = {p.spec.run_id for p in planned if store.is_done(p.spec.run_id)}
            check_limit(estimate(planned, done, results), max_gpu_hours, already=hours)
    finish(loaded, planned, store, summary, results, no_report)


def merge(a: "Summary | None", b: "Summary") -> "Summary":
    if a is not None:
        b.found = {**a.found, **b.found}
        b.statuses, b.reasons = {**a.statuses, **b.statuses}, {**a.reasons, **b.reasons}
    return b


def local_runner(missing: "list[PlannedRun]", store: "Store", *, max_parallel: int | None, **options: Any) -> "Runner":
    """A runner for this machine."""
    from harness.node.slots import Node
    from harness.runner.local import Runner

    return Runner(missing, store, Node.here(missing[0].spec.device, max_parallel=max_parallel), **options)


def slurm_runner(missing: "list[PlannedRun]", store: "Store", **options: Any) -> "SlurmRunner":
    """A runner for the cluster that this machine can send jobs to."""
    from harness.runner.slurm.executor import SlurmRunner

    return SlurmRunner(missing, store, **options)


def complete(name: str, store: "Store", planned: "list[PlannedRun]", start: "Callable[..., Runner | SlurmRunner]") -> "Summary":
    """Run what has no result yet. start: makes the runner of the missing ones."""
    from harness.cli.progress import Progress, duration
    from harness.run.plan import Plan
    from harness.run.spec import RESULT_STATUSES
    from harness.runner.executor import Summary
    from harness.store.plans import cancel_mark, read_plan, stale_runs, up_to_date
    from harness.store.verified import Sound

    missing, found, sound = [], {}, Sound(store)
    for p in planned:
        status, wrong = sound.status(p.spec.run_id)
        if wrong:
            print(f"{wrong}: set aside, it is run again", flush=True)
        if status is None:
            missing.append(p)
        else:
            found[p.spec.run_id] = status
    sound.save()
    if not missing:
        return Summary(found=found)
    stale, why = stale_runs(store.root, up_to_date(store.root, read_plan(store.root, name) or Plan(name=name)))
    if stale:
        print(f"{len(stale)} {why}; they are run again", flush=True)
    before = cancel_mark(store.root, name)
    progress = Progress(len(planned) - len(missing), len(planned))
    runner = start(missing, store, cancelled=lambda: cancel_mark(store.root, name) != before, on_event=progress.on_event)
    print(f"{len(missing)} of {len(planned)} runs to do, {runner.at_once()} at a time", flush=True)
    done = threading.Event()
    painter = threading.Thread(target=progress.watch, args=(runner, done), daemon=True)
    painter.start()
    try:
        summary = runner.run()
    finally:
        done.set()
        painter.join()
        print(f"took {duration(progress.elapsed())}", flush=True)
    for run_id, status in summary.statuses.items():
        if status in RESULT_STATUSES:
            sound.status(run_id)  # so that the next call need not read what this one made
    sound.save()
    summary.found = found
    return summary


def finish(
    experiment: "Experiment", planned: "list[PlannedRun]", store: "Store", summary: "Summary", results: Path, no_report: bool
) -> None:
    """Say how it stands, write the page, exit."""
    from harness.run.spec import RESULT_STATUSES

    outcomes = {**summary.found, **summary.statuses}
    done = [run_id for run_id, status in outcomes.items() if status in RESULT_STATUSES]
    n_done, n_diverged = len(done), sum(status == "diverged" for status in outcomes.values())
    for p in planned:
        if summary.statuses.get(p.spec.run_id) in FAILED:
            where = store.directory(p.spec.run_id) / "log.txt"
            print(
                f"{p.arm}, seed {p.spec.seed}: {summary.statuses[p.spec.run_id]}: {summary.reasons.get(p.spec.run_id)} ({where})"
            )
    if summary.stopped:
        print(f"{summary.stopped}: {n_done} of {len(planned)} runs are done; run the same command again to go on")
        raise typer.Exit(EXIT_STOPPED[summary.stopped])
    state = "everything is finished" if n_done == len(planned) else f"{n_done} of {len(planned)} runs have a result"
    print(f"{experiment.name}: {state}: {n_done} runs, {n_diverged} diverged")
    if not no_report:
        from harness.cli.report import write_page

        place = results / "experiments" / experiment.name
        page = place / "report.html"
        shown = [f"{place}/experiment.json", *(f"{store.runs}/{run_id}/result.json" for run_id in done)]
        if summary.statuses or not page.exists() or page.stat().st_mtime < max(os.stat(path).st_mtime for path in shown):
            page = write_page([experiment.name], results)
        print(f"report: {page}")
    raise typer.Exit(EXIT_FAILED if n_done < len(planned) else 0)
