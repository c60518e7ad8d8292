"""Running what has no result yet, and saying how an experiment stands then."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.options import EXIT_FAILED, EXIT_STOPPED
from harness.run.plural import plural

MOST_LINES = 10  # of the table of verdicts on a terminal

if TYPE_CHECKING:
    from harness.cli.progress import ProgressDisplay
    from harness.run.spec import PlannedRun
    from harness.runner.executor import Executor, ExecutorOptions, Summary
    from harness.store.store import Store
    from reports.analysis.types import Comparisons
    from reports.inputs.experiment import Experiment


def complete(
    store: "Store",
    runs: "list[PlannedRun]",
    make: "Callable[[list[PlannedRun], Store, ExecutorOptions], Executor]",
    options: "ExecutorOptions",
) -> "Summary":
    """Run what has no result yet. make: the executor of the missing runs."""
    from harness.cli.progress import ProgressDisplay
    from harness.run.spec import RESULT_STATUSES
    from harness.runner.executor import Summary
    from harness.runner.trunks import trunks_to_make
    from harness.store.plans import cancel_mark
    from harness.store.verified import VerifiedResults

    missing, had_result, sound = [], {}, VerifiedResults(store)
    for planned in runs:
        status, wrong = sound.status(planned.spec.run_id)
        if wrong:
            print(f"{wrong}: set aside, it is run again", flush=True)
        if status is None:
            missing.append(planned)
        else:
            had_result[planned.spec.run_id] = status
    sound.save()
    if not missing:
        return Summary(had_result=had_result)
    say_stale(store, options.experiment)
    mark = cancel_mark(store.root, options.experiment)

    def cancelled() -> bool:
        return cancel_mark(store.root, options.experiment) != mark

    trunks, wrongs = trunks_to_make(missing, store)
    for wrong in wrongs:
        print(f"{wrong}: set aside, it is run again", flush=True)
    to_do = [*trunks, *missing]
    display = ProgressDisplay(to_do, len(had_result))
    executor = make(to_do, store, replace(options, cancelled=cancelled, on_end=display.on_end))
    first = f", and first {len(trunks)} trunks" if trunks else ""
    at_once = executor.at_once()
    print(f"{len(missing)} of {len(runs)} runs to do{first}, {at_once} at a time", flush=True)
    display.begin(at_once)
    summary = run_watched(executor, display)
    for run_id, status in summary.statuses.items():
        if status in RESULT_STATUSES:
            sound.status(run_id)  # so that the next call need not read what this one made
    sound.save()
    return replace(summary, had_result=had_result)


def say_stale(store: "Store", name: str) -> None:
    from harness.run.plan import Plan
    from harness.store.plans import read_plan, stale_runs, up_to_date

    plan = read_plan(store.root, name) or Plan(name=name)
    stale, why = stale_runs(store.root, up_to_date(store.root, plan))
    if stale:
        print(f"{len(stale)} {why}; they are run again", flush=True)


def run_watched(executor: "Executor", display: "ProgressDisplay") -> "Summary":
    """Run to the end, shown meanwhile; says how long it took, however it ends."""
    from harness.cli.progress import duration

    done = threading.Event()
    painter = threading.Thread(target=display.watch, args=(executor, done), daemon=True)
    painter.start()
    try:
        return executor.run()
    finally:
        done.set()
        painter.join()
        print(f"took {duration(display.elapsed())}", flush=True)


def finish(
    name: str, runs: "list[PlannedRun]", store: "Store", summary: "Summary", *, report: bool
) -> None:
    """Say how an experiment stands, write its page, exit.

    name: of the experiment. report: whether its page is written.
    """
    from harness.run.spec import RESULT_STATUSES, trunks_of

    planned = {run.spec.run_id for run in runs}
    outcomes = {**summary.had_result}
    for run_id, status in summary.statuses.items():
        if run_id in planned:  # and no trunk
            outcomes[run_id] = status
    done = [run_id for run_id, status in outcomes.items() if status in RESULT_STATUSES]
    n_done, n_all = len(done), len(runs)
    say_failures([*trunks_of(runs), *runs], store, summary)
    if summary.stopped:
        print(
            f"{summary.stopped}: {n_done} of {n_all} runs are done; "
            "run the same command again to go on"
        )
        raise typer.Exit(EXIT_STOPPED[summary.stopped])
    state = f"{n_done} of {n_all} runs have a result"
    if n_done == n_all:
        state = "everything is finished"
    n_diverged = list(outcomes.values()).count("diverged")
    print(f"{name}: {state}: {plural(n_done, 'run')}, {n_diverged} diverged")
    if report:
        page = page_of(name, store, done, anew=bool(summary.statuses))
        say_answer(name, store)
        print(f"report: {page}")
    raise typer.Exit(EXIT_FAILED if n_done < n_all else 0)


def say_answer(name: str, store: "Store") -> None:
    """The headline, the verdicts in a table of at most MOST_LINES lines, and what to run next."""
    from harness.cli.lookup import compared
    from harness.cli.table import print_table
    from reports.analysis.recipe import Recipe
    from reports.inputs.load import load
    from reports.page.by_design import ByDesign
    from reports.page.confirmed import asked_again
    from reports.page.headline import headline
    from reports.page.next_run import next_of_verdicts

    loaded = load(name, results=store.root)  # as the page has it: nothing is written anew
    outcome = compared(loaded)
    recipe, by_design = Recipe.of(loaded, outcome.budget), ByDesign.of(loaded, outcome)
    for again in asked_again(loaded, by_design.confirmed):
        print(again.sentence)
    print(headline(loaded, outcome, by_design, recipe))
    judged = [outcome.judged(arm) for arm in outcome.arms]
    comparisons = [c for c in judged if c is not None]
    n_shown = len(comparisons)
    if n_shown >= MOST_LINES:
        n_shown = MOST_LINES - 2  # beside the heading and the last line
    rows = [vars(c) | {"against": c.baseline} for c in comparisons[:n_shown]]
    against = ["against"] if outcome.increments else []
    print_table(rows, ["arm", *against, "delta", "low", "high", "p", "verdict"])
    say_bits(loaded, outcome)
    if n_shown < len(comparisons):
        print(f"and {len(comparisons) - n_shown} more: ablate compare {name}")
    following = next_of_verdicts(loaded, outcome, by_design)
    if following:
        print(following.replace("`", ""))


def say_bits(loaded: "Experiment", outcome: "Comparisons") -> None:
    """The arms' losses in bits per byte, where a token is not a byte and its bytes are known.

    outcome: which runs count, and at which budget.
    """
    from reports.analysis.samples import usable

    corpus = loaded.plan.corpus
    if corpus.bytes_per_token is None or corpus.unit == "nats per byte":
        return
    runs = usable(loaded).runs
    runs = runs[(runs["status"] == "finished") & (runs["role"] == "loss")]
    if outcome.budget:
        runs = runs[runs["budget"] == outcome.budget]
    said = []
    for arm in (outcome.baseline, *outcome.arms):
        bits = runs.loc[runs["arm"] == arm, "bits_per_byte"].mean()
        if bits == bits:
            said.append(f"{arm} {bits:.4f}")
    if said:
        print(f"bits per byte: {', '.join(said)}")


def say_failures(runs: "list[PlannedRun]", store: "Store", summary: "Summary") -> None:
    """The runs that failed by their own fault, each with its reason and its log."""
    from harness.store.store import FAILED

    for planned in runs:
        run_id = planned.spec.run_id
        status = summary.statuses.get(run_id)
        if status in (*FAILED, "damaged"):
            log = store.directory(run_id) / "log.txt"
            reason = summary.reasons.get(run_id)
            print(f"{planned.arm}, seed {planned.spec.seed}: {status}: {reason} ({log})")


def page_of(name: str, store: "Store", done: list[str], *, anew: bool) -> Path:
    """The experiment's page, written if asked, if there is none, or if what it shows is newer.

    done: the runs that it shows.
    """
    from harness.cli.report import write_page

    folder = store.root / "experiments" / name
    page = folder / "report.html"
    if anew or not page.exists():
        return write_page([name], store.root)
    shown = [f"{folder}/experiment.json"]
    shown += [f"{store.runs}/{run_id}/result.json" for run_id in done]
    written = page.stat().st_mtime
    if any(os.stat(path).st_mtime > written for path in shown):
        return write_page([name], store.root)
    return page
