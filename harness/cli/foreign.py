"""Running experiments of foreign trainers: a line as each run ends, and how it stands."""

import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.ab_name import NameTakenError, is_of_these
from harness.cli.complete import say_answer
from harness.cli.looks import refuse_seen_seeds
from harness.cli.parts import added_by_rule
from harness.cli.where import ScriptCall, asked_of_executor, chosen_executor
from harness.errors import StoppedError, UserError
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.plan import Plan
    from harness.run.spec import PlannedRun
    from harness.runner.executor import ExecutorOptions, RunEnded, Summary
    from harness.store.store import Store


JUDGED = ("val_loss", "train_time_s")  # by the scripts' own account


def run_foreign(
    e: "ForeignExperiment", call: ScriptCall, *, n_blocks: int | None = None, already: float = 0.0
) -> "tuple[Summary, list[PlannedRun], Store]":
    """Run what is missing, in the order of the plan; called again it goes on.

    n_blocks: of the first so many blocks alone; already: GPU-hours that this call took before.
    """
    from harness.experiment.cost import check_limit, estimate_foreign
    from harness.foreign.plan import plan_foreign
    from harness.foreign.present import with_steps
    from harness.foreign.runner import ScriptTrainer, check_gpus
    from harness.runner.executor import Summary
    from harness.store.plans import cancel_mark, read_plan, save_plan

    results, planned = call.results, plan_foreign(e)
    cost = estimate_foreign(planned, results, wall_limit_s=e.limits.wall_s)
    check_limit(cost, call.max_gpu_hours, already=already)
    store, planned = _keep_plan(e, planned, results, own_name=call.own_name)
    missing = _missing([run for run in planned if n_blocks is None or run.block < n_blocks], store)
    if not missing:
        return Summary(), planned, store
    progress = EndedRuns(len(planned) - len(missing), len(planned), store)
    mark = cancel_mark(results, e.name)
    options = replace(
        asked_of_scripts(call, e.name),
        trainer=ScriptTrainer(limits=e.limits, warm_up=call.warm),
        cancelled=lambda: cancel_mark(results, e.name) != mark,
        on_end=progress.on_end,
    )
    if call.place.is_here:
        check_gpus(missing[0].spec)
    with redirect_stdout(sys.stderr if call.quiet else sys.stdout):
        executor = chosen_executor(call.place).make(missing, store, options)
        at_once = executor.at_once()
        print(f"{len(missing)} of {len(planned)} runs to do, {at_once} at a time", flush=True)
        summary = executor.run()
    saved = read_plan(results, e.name)
    if saved is not None:
        save_plan(results, with_steps(results, saved))
    return summary, planned, store


def asked_of_scripts(call: ScriptCall, name: str) -> "ExecutorOptions":
    """What an executor is asked for of the experiment of this name."""
    return replace(
        asked_of_executor(call.place),
        experiment=name,
        max_parallel=call.max_parallel,
        alone=call.max_parallel == 1,
    )


def _keep_plan(
    e: "ForeignExperiment", planned: "list[PlannedRun]", results: Path, *, own_name: bool
) -> "tuple[Store, list[PlannedRun]]":
    """The store with plan and code, and the runs in its order; one call alone begins a plan.

    own_name: NameTakenError where other scripts have the name. results: the results folder."""
    from harness.experiment.blocks import in_order_of
    from harness.foreign.plan import describe_foreign, keep_code
    from harness.foreign.present import with_steps
    from harness.store.launches import note_launch
    from harness.store.plans import begin_plan, save_plan
    from harness.store.store import Store

    before = _before(e, results)
    if own_name and before is not None and not is_of_these(before, e):
        raise NameTakenError(
            f"experiment '{e.name}' was begun by a call with other scripts: run it again"
        )
    if before is not None:
        planned = in_order_of(before.runs, planned)
    plan = describe_foreign(e, planned, before=before, command=_command(e, before, planned))
    if before is None and plan.confirm:
        refuse_seen_seeds(plan, results)
    store = Store.create(results)
    keep_code(e, store)
    plan = with_steps(results, plan)
    if before is None and not begin_plan(results, plan):
        return _keep_plan(e, planned, results, own_name=own_name)
    save_plan(results, plan)
    note_launch(results, plan)
    return store, planned


def _before(e: "ForeignExperiment", results: Path) -> "Plan | None":
    """The plan of this name that the folder has; refused where it holds other runs."""
    from harness.store.plans import read_plan

    before = read_plan(results, e.name)
    if before is not None and not before.foreign:
        raise UserError(
            f"experiment '{e.name}' in {results} holds other runs: "
            "choose another name (--experiment)"
        )
    return before


def _command(e: "ForeignExperiment", before: "Plan | None", planned: "list[PlannedRun]") -> str:
    """The commands that make this experiment.

    `ablate run NAME` goes on with what another command began: it is added where it plans more."""
    from harness.provenance.redact import redact

    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    if e.started is None:
        return command
    if before is not None and len(before.runs) == len(planned):
        return e.started
    first, _, _ = e.started.partition(" && ")
    return f"{first} && {command}"


def _missing(planned: "list[PlannedRun]", store: "Store") -> "list[PlannedRun]":
    """The runs without a result; a damaged result is set aside, and said."""
    missing = []
    for run in planned:
        result, damage = store.repair(run.spec.run_id)
        if damage:
            print(f"{damage}: set aside, it is run again", file=sys.stderr)
        if result is None:
            missing.append(run)
    return missing


class EndedRuns:
    """One line as each run ends."""

    def __init__(self, n_done: int, n_all: int, store: "Store") -> None:
        self.n_done = n_done
        self.n_all = n_all
        self.store = store

    def on_end(self, ended: "RunEnded") -> None:
        """Say how a run ended, and what its result measured."""
        from harness.run.results import read_result

        run = ended.run
        result = read_result(self.store.directory(run.spec.run_id))
        self.n_done += result is not None
        line = f"[{self.n_done}/{self.n_all}] {run.arm}, block {run.block + 1}: {ended.status}"
        if result is not None:
            for metric, number in (result.own or {}).items():
                line += f" {metric} {number:.5g}"
            for metric in JUDGED:
                value = getattr(result, metric)
                if value is not None:
                    line += f" {metric} {value:.4f}"
        if ended.reason:
            line += f": {ended.reason}"
        print(line, flush=True)


def stop_if_stopped(
    summary: "Summary", e: "ForeignExperiment", planned: "list[PlannedRun]", store: "Store"
) -> None:
    """Raises StoppedError where a signal stopped the runs."""
    from harness.cli.options import EXIT_STOPPED

    if summary.stopped:
        n_done = sum(store.is_done(run.spec.run_id) for run in planned)
        raise StoppedError(
            f"{e.name}: {summary.stopped}: {n_done} of {len(planned)} runs are done; "
            "run the same command again to go on",
            EXIT_STOPPED[summary.stopped],
        )


def tell_failed(
    summary: "Summary", planned: "list[PlannedRun]", store: "Store", *, quiet: bool
) -> int:
    """Name the runs without a result, with their logs; how many there are."""
    file = sys.stderr if quiet else sys.stdout
    failed = [run for run in planned if not store.is_done(run.spec.run_id)]
    for run in failed:
        run_id = run.spec.run_id
        reason = summary.reasons.get(run_id)
        status = summary.statuses.get(run_id)
        log = store.directory(run_id) / "log.txt"
        print(f"{run.arm}, block {run.block + 1}: {status}: {reason} ({log})", file=file)
    return len(failed)


def run_experiment(
    e: "ForeignExperiment",
    call: ScriptCall,
    *,
    price: float | None,
    wall_limit_s: float | None,
    dry_run: bool,
    no_report: bool,
) -> None:
    """`ablate run` of such an experiment: what is missing, the report, the exit code.

    price: of an hour. wall_limit_s: of a run; None allows any. dry_run: the plan alone. no_report:
    no page.
    """
    from harness.cli.report import write_page

    if wall_limit_s is not None:
        e = replace(e, limits=replace(e.limits, wall_s=wall_limit_s))
    e = replace(e, seeds=(*e.seeds, *added_by_rule(e, call.results)))
    if dry_run:
        from harness.cli.foreign_plan import print_foreign_plan

        print_foreign_plan(e, call.results, price=price, max_gpu_hours=call.max_gpu_hours)
        return
    summary, planned, store = _run_by_rule(e, call)
    n_failed = tell_failed(summary, planned, store, quiet=False)
    n_done = len(planned) - n_failed
    if n_failed:
        print(f"{e.name}: {n_done} of {len(planned)} runs have a result")
    else:
        print(f"{e.name}: everything is finished: {plural(n_done, 'run')}")
    if not no_report:
        page = write_page([e.name], call.results)
        say_answer(e.name, store)
        print(f"report: {page}")
    raise typer.Exit(1 if n_failed else 0)


def _run_by_rule(
    e: "ForeignExperiment", call: ScriptCall
) -> "tuple[Summary, list[PlannedRun], Store]":
    """Run what is missing, then the blocks that a rule for seeds adds while no run fails."""
    from harness.cli.adaptive import next_seeds
    from harness.experiment.cost import spent

    hours = 0.0
    while True:
        summary, planned, store = run_foreign(e, call, already=hours)
        stop_if_stopped(summary, e, planned, store)
        if e.seeds_rule is None or not all(store.is_done(run.spec.run_id) for run in planned):
            return summary, planned, store
        more = next_seeds(e, e.seeds_rule.most, call.results)
        if not more:
            return summary, planned, store
        hours += spent([r for r in planned if r.spec.run_id in summary.statuses], call.results)
        e = replace(e, seeds=(*e.seeds, *more))


def print_foreign_scripts(e: "ForeignExperiment", call: ScriptCall) -> None:
    """What would be sent to a queue for the runs that have no result."""
    from harness.foreign.plan import plan_foreign
    from harness.store.store import Store

    store = Store(call.results)
    missing = [run for run in plan_foreign(e) if not store.is_done(run.spec.run_id)]
    asked = asked_of_scripts(call, e.name)
    for script in chosen_executor(call.place).scripts(missing, call.results, asked):
        print(script)
