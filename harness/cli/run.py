"""Running what is missing of an experiment, part after part, and saying how it stands."""

import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import app
from harness.cli.adaptive import next_part
from harness.cli.command import takes
from harness.cli.complete import complete, finish
from harness.cli.devices import refuse_other_device, sets_device
from harness.cli.executors import ExecutorRow
from harness.cli.foreign import print_foreign_scripts, run_experiment
from harness.cli.looks import refuse_seen_seeds
from harness.cli.lookup import read_experiment, read_foreign, refuse_for_foreign
from harness.cli.margin import margin_note
from harness.cli.parts import current_part
from harness.cli.push import bring_in, sending
from harness.cli.run_options import RunOptions
from harness.cli.track import asked_trackers, track_beside
from harness.cli.where import ScriptCall, asked_of_executor, chosen_executor
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.spec import PlannedRun
    from harness.runner.executor import ExecutorOptions, Summary
    from harness.store.store import Store

WORKERS = ("warm", "fresh")


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """What runs in one go: an experiment, or the part of it that is known, and its runs."""

    experiment: "Experiment"
    runs: "list[PlannedRun]"


@app.command()
@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Run what is missing of an experiment.
    Exit 0 if all runs have an outcome, 1 if some failed, 2 on bad input.
    """
    run_until_done(options)


def run_until_done(options: RunOptions) -> None:
    """Run what is missing, part after part, until none follows; exits with how it went."""
    gc.set_threshold(100_000, 50)  # a plan of ten thousand runs stays: looking through it is vain
    executor = chosen_executor(options)
    check_options(options)
    trackers = asked_trackers(options.log_to)
    if not (options.dry_run or options.print_script):
        bring_in(options.push, options.results, pull=options.pull)
    foreign = read_foreign(
        options.experiment,
        options.results,
        options.settings,
        options.seeds,
        options.gpus_per_run,
        trust=options.trust,
    )
    if foreign is not None:
        if options.dry_run or options.print_script:
            run_foreign_experiment(foreign, options)
            return
        track_beside(trackers, foreign.name, options.results)
        with sending(options.push, options.results):
            run_foreign_experiment(foreign, options)
        return
    asked = asked_of_own(options)
    device = None
    if executor.device_is_firm or not sets_device(options.settings):
        device = executor.device(asked)
    whole = read_experiment(options.experiment, options.settings, options.seeds, device=device)
    refuse_other_device(whole, options.results, options.settings)
    current = current_part(whole, options.results, world_size=options.world_size)
    part = planned_part(current, options)
    if options.dry_run:
        from harness.cli.plan import print_plan
        from harness.cli.plan_facts import PlanQuestion

        print_plan(part.experiment, part.runs, options.results, PlanQuestion(price=options.price))
    check_cost(part, options)
    if options.dry_run:
        return
    if options.print_script:
        print_scripts(part, executor, asked, options.results)
        return
    track_beside(trackers, part.experiment.name, options.results)
    with sending(options.push, options.results):
        run_parts(whole, part, executor, asked, options)


def run_parts(
    whole: "Experiment",
    part: PlannedPart,
    executor: ExecutorRow,
    asked: "ExecutorOptions",
    options: RunOptions,
) -> None:
    """Run a part of an experiment and those that follow from it; exits with how it went."""
    from harness.runner.executor import Summary
    from harness.store.store import Store

    store = Store.create(options.results)
    summary, hours = Summary(), 0.0
    while True:
        step = run_part(part, store, executor, asked, options)
        summary = merged(summary, step)
        following = following_part(whole, part, step, options)
        if following is None:
            break
        hours += hours_of(part, step, options)
        part = planned_part(following, options)
        check_cost(part, options, already=hours)
    name = part.experiment.name
    finish(name, part.runs, store, summary, report=not options.no_report)


def check_options(options: RunOptions) -> None:
    """Raises UserError for an option that can be seen to be wrong by itself."""
    if options.worker not in WORKERS:
        raise UserError(f"--worker {options.worker}: must be {' or '.join(WORKERS)}")
    for number in (options.gpus_per_run, options.max_parallel):
        if number is not None and number < 1:
            raise UserError("--gpus-per-run and --max-parallel must be at least 1")


def run_foreign_experiment(foreign: "ForeignExperiment", options: RunOptions) -> None:
    """What is missing of an experiment with foreign trainers, which take fewer options."""
    ours_alone = {
        "--nodes-per-run": options.nodes_per_run > 1,
        "--oom-retries": options.oom_retries,
        "--worker fresh": options.worker == "fresh",
    }
    way_out = "a script's run has one node, and a process of its own; `retries` stands in the file"
    refuse_for_foreign(ours_alone, way_out)
    call = ScriptCall(
        place=options,
        results=options.results,
        max_parallel=options.max_parallel or 1,
        max_gpu_hours=options.max_gpu_hours,
    )
    if options.print_script:
        print_foreign_scripts(foreign, call)
        return
    run_experiment(
        foreign,
        call,
        price=options.price,
        wall_limit_s=options.wall_limit,
        dry_run=options.dry_run,
        no_report=options.no_report,
    )


def asked_of_own(options: RunOptions) -> "ExecutorOptions":
    """What every part's executor is asked for."""
    from harness.runner.limits import RunLimits

    return replace(
        asked_of_executor(options),
        limits=RunLimits(wall_s=options.wall_limit, oom_retries=options.oom_retries),
        max_parallel=options.max_parallel,
        warm=options.worker == "warm",
        n_nodes=options.nodes_per_run,
    )


def planned_part(experiment: "Experiment", options: RunOptions) -> PlannedPart:
    from harness.experiment.plan import plan_runs

    runs = plan_runs(experiment, world_size=options.world_size, need_data=not options.dry_run)
    return PlannedPart(experiment=experiment, runs=runs)


def check_cost(part: PlannedPart, options: RunOptions, *, already: float = 0.0) -> None:
    """Raises UserError where a part costs more than allowed. already: GPU-hours of parts before."""
    from harness.experiment.cost import check_limit, estimate
    from harness.experiment.rungs import rungs_to_come
    from harness.run.results import read_result

    if options.max_gpu_hours is None:
        return
    done = set()
    for planned in part.runs:
        run_id = planned.spec.run_id
        if read_result(options.results / "runs" / run_id) is not None:
            done.add(run_id)
    runs = list(part.runs)
    for rung in rungs_to_come(part.experiment, world_size=options.world_size):
        runs += rung.dearest
    cost = estimate(runs, done, options.results)
    check_limit(cost, options.max_gpu_hours, already=already)


def print_scripts(
    part: PlannedPart, executor: ExecutorRow, asked: "ExecutorOptions", results: Path
) -> None:
    """What would be sent to a queue for the runs of a part that have no result."""
    from harness.run.results import read_result

    missing = []
    for planned in part.runs:
        if read_result(results / "runs" / planned.spec.run_id) is None:
            missing.append(planned)
    asked = replace(asked, experiment=part.experiment.name)
    for script in executor.scripts(missing, results, asked):
        print(script)


def hours_of(part: PlannedPart, summary: "Summary", options: RunOptions) -> float:
    """GPU-hours that this call's runs of a part took, on a CPU hours of one slot."""
    from harness.experiment.cost import spent
    from harness.run.spec import trunks_of

    if options.max_gpu_hours is None:  # nobody asks
        return 0.0
    ran = []
    for planned in [*trunks_of(part.runs), *part.runs]:
        if planned.spec.run_id in summary.statuses:
            ran.append(planned)
    return spent(ran, options.results)


def run_part(
    part: PlannedPart,
    store: "Store",
    executor: ExecutorRow,
    asked: "ExecutorOptions",
    options: RunOptions,
) -> "Summary":
    """Keep the plan of a part, and run what has no result yet."""
    from harness.experiment.blocks import in_order_of
    from harness.experiment.record import describe
    from harness.store.launches import note_launch
    from harness.store.plans import read_plan, save_plan

    name = part.experiment.name
    before = read_plan(options.results, name)
    runs = in_order_of(before.runs if before else (), part.runs)
    plan = describe(part.experiment, runs, before=before, command=asked.command)
    if before is None and plan.confirm:
        refuse_seen_seeds(plan, options.results)
    # what the report adds to it is no change
    if before is None or not plan.to_mapping().items() <= before.to_mapping().items():
        save_plan(options.results, plan)
    note_launch(options.results, plan)
    margin = margin_note(part.experiment)
    if margin:
        print(margin)
    return complete(store, runs, executor.make, replace(asked, experiment=name))


def following_part(
    whole: "Experiment", part: PlannedPart, summary: "Summary", options: RunOptions
) -> "Experiment | None":
    if summary.stopped:
        return None
    return next_part(whole, part.experiment, options.results, world_size=options.world_size)


def merged(earlier: "Summary", latest: "Summary") -> "Summary":
    return replace(
        latest,
        had_result=earlier.had_result | latest.had_result,
        statuses=earlier.statuses | latest.statuses,
        reasons=earlier.reasons | latest.reasons,
    )
