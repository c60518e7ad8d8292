"""Experiments of a results folder: let one go, or call it otherwise; what depends on it is told."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Json, Results
from harness.cli.renamed_command import command_of
from harness.cli.results import note_gone, note_renamed
from harness.cli.table import print_json
from harness.errors import UserError, near

if TYPE_CHECKING:
    from harness.run.plan import Plan

EXPERIMENTS_SCHEMA = 1  # of what commands on experiments print with --json
WRITTEN_AGAIN = ("experiment.json", "plan.lock", "launched.json", "report.html")  # of a new name
KeptName = Annotated[str, typer.Argument(metavar="EXP", help="a name in the results folder")]
Force = Annotated[bool, typer.Option("--force", help="though another experiment needs it")]


@dataclass(frozen=True, kw_only=True)
class Dependents:
    """What of a results folder depends on an experiment."""

    rates: tuple[str, ...]  # experiments whose learning rates or points were chosen by it
    shared: dict[str, int]  # other experiment -> how many runs it shares with it
    own: tuple[str, ...]  # runs with a folder that no other experiment has

    @property
    def words(self) -> list[str]:
        """Sentences on it."""
        said = [f"{name} took its learning rates or points from it" for name in self.rates]
        said += [f"{name} shares {n} of its runs, which stay" for name, n in self.shared.items()]
        return said


def known_plan(results: Path, name: str) -> "Plan":
    """The plan of an experiment of the folder; raises UserError with what there is."""
    from harness.run.guarded import experiments_in
    from harness.store.plans import read_plan

    plan = read_plan(results, name)
    if plan is None:
        there = experiments_in(results)
        raise UserError(f"{results}: no experiment '{name}' here{near(name, there)}")
    return plan


def dependents_of(results: Path, plan: "Plan") -> Dependents:
    """What depends on it; raises UserError while one of its runs is in progress."""
    from harness.store.plans import readable_plans
    from harness.store.store import Store

    store, mine = Store(results), runs_of(plan)
    for run_id in sorted(mine):
        if store.directory(run_id).is_dir() and store.state(run_id).status == "running":
            raise UserError(
                f"{plan.name}: run {run_id} is in progress: wait, or ablate cancel {plan.name}"
            )
    rates, shared, others = [], {}, set()
    for name, other, _ in readable_plans(results):
        if other is None or name == plan.name:
            continue
        if other.grid == plan.name:
            rates.append(name)
        common = mine & runs_of(other)
        others |= common
        if common:
            shared[name] = len(common)
    only_its = tuple(r for r in sorted(mine - others) if store.directory(r).is_dir())
    return Dependents(rates=tuple(rates), shared=shared, own=only_its)


def runs_of(plan: "Plan") -> set[str]:
    """The names of its runs, those under older code too."""
    return {run_id for run in plan.runs for run_id in (run.run_id, *run.older)}


def refuse_needed(plan: "Plan", dependents: Dependents, *, force: bool) -> None:
    """Raises UserError where another experiment's rates come from it, unless forced."""
    if dependents.rates and not force:
        raise UserError(
            f"{plan.name}: {', '.join(dependents.rates)} took learning rates or points from it, "
            "which a report looks up there: --force does it all the same"
        )


def refuse_unread(results: Path, plan: "Plan") -> None:
    """Raises UserError where another experiment may share runs, for its plan cannot be read."""
    from harness.store.plans import readable_plans

    unread = [name for name, other, _ in readable_plans(results) if other is None]
    if unread:
        raise UserError(
            f"{plan.name}: the plan of {', '.join(sorted(unread))} cannot be read, which may share "
            "its runs: mend or remove it, or leave out --runs"
        )


@contextmanager
def held(results: Path, runs: Iterable[str]) -> Iterator[dict[str, int]]:
    """Keep everybody else from runs meanwhile: run -> the attempt that holds it.

    Those that are in it still are given back. Raises UserError where somebody has one."""
    from harness.store.store import Store

    store = Store(results)
    attempts: dict[str, int] = {}
    try:
        for run_id in runs:
            n = store.hold(run_id)
            if n is not None:
                attempts[run_id] = n
            elif store.directory(run_id).is_dir():
                raise UserError(
                    f"run {run_id} is in progress: wait, or ablate cancel its experiment"
                )
        yield attempts
    finally:
        for run_id, n in attempts.items():
            store.let_go(run_id, n)


@app.command()
def delete(
    experiment: KeptName,
    runs: Annotated[
        bool, typer.Option("--runs", help="its runs too, those that no other experiment has")
    ] = False,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say it, remove nothing")] = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Take an experiment out of the results folder; its runs stay unless --runs."""
    from harness.run.guarded import remove

    plan = known_plan(results, experiment)
    dependents = dependents_of(results, plan)
    if runs:
        refuse_unread(results, plan)
    if not dry_run:
        refuse_needed(plan, dependents, force=force)
        gone = dependents.own if runs else ()
        with held(results, gone) as attempts:
            note_gone(results, list(gone), "delete")
            for path in [results / "runs" / run_id for run_id in gone]:
                remove(path, below=len(path.relative_to(results).parts))
                attempts.pop(path.name, None)
        place = results / "experiments" / plan.name
        remove(place, below=len(place.relative_to(results).parts))
    if json:
        told = {"schema": EXPERIMENTS_SCHEMA, "experiment": plan.name, "removed": not dry_run}
        print_json({**told, "runs_removed": runs and not dry_run, **asdict(dependents)})
        return
    for sentence in dependents.words:
        print(sentence)
    what = "go with it" if runs else "stay (--runs takes them too)"
    print(f"{len(dependents.own)} runs are its own alone: they {what}")
    print(f"{plan.name}: {'would be removed' if dry_run else 'removed'}")


def is_free_for(results: Path, plan: "Plan") -> bool:
    """Whether nothing has a plan's name but a call that was interrupted when it gave it."""
    from harness.store.plans import folder, read_plan

    there, place = read_plan(results, plan.name), folder(results, plan.name)
    if there is not None:
        return there == plan
    if not place.is_dir():
        return not os.path.lexists(place)
    return all(path.name.startswith(".") for path in place.iterdir())


def taken(results: Path, name: str) -> UserError:
    """Another experiment has a name."""
    return UserError(f"{name}: there is such an experiment in {results}: choose another name")


def move(results: Path, plan: "Plan", renamed: "Plan") -> None:
    """An experiment to its new name; interrupted anywhere, it goes on when it is called again.

    Raises UserError where another call took the name meanwhile."""
    from harness.run.guarded import remove
    from harness.store.launches import is_launched, note_launch
    from harness.store.plans import begin_plan, folder, save_plan

    old, new = folder(results, plan.name), folder(results, renamed.name)
    # by its plan a second call knows what the first one began
    if not begin_plan(results, renamed) and not is_free_for(results, renamed):
        raise taken(results, renamed.name)
    note_renamed(results, plan.name, renamed.name)
    save_plan(results, renamed)
    if is_launched(results, plan):
        note_launch(results, renamed)
    for path in sorted(old.iterdir()):
        if path.name not in WRITTEN_AGAIN:
            os.rename(path, new / path.name)
    remove(old, below=len(old.relative_to(results).parts))


@app.command()
def rename(
    experiment: KeptName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the new name")],
    force: Force = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Call an experiment of the results folder otherwise; its runs and its lock stay."""
    from harness.experiment.keys import check_name

    plan = known_plan(results, experiment)
    check_name(name, "NAME")
    renamed = replace(plan, name=name, command=command_of(plan, name))
    if name == plan.name or not is_free_for(results, renamed):
        raise taken(results, name)
    dependents = dependents_of(results, plan)
    refuse_needed(plan, dependents, force=force)
    with held(results, sorted(runs_of(plan))):
        move(results, plan, renamed)
    if json:
        told = {"schema": EXPERIMENTS_SCHEMA, "experiment": plan.name, "name": name}
        print_json({**told, **asdict(dependents)})
        return
    for sentence in dependents.words:
        print(sentence)
    print(f"{plan.name} is now {name}; ablate report {name} writes its page")
