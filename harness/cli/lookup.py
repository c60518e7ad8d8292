"""EXP, as a user names it: its experiment, its plan, or what a report is made of."""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.experiment.experiment import Experiment
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.plan import Plan
    from reports.analysis.types import Comparisons
    from reports.inputs.experiment import Experiment as ReportedExperiment


def read_foreign(
    name: str, results: Path, settings: list[str] | None = None, seeds: int | None = None, gpus_per_run: int | None = None
) -> "ForeignExperiment | None":
    """The experiment of a file whose arms are foreign trainers, or of the results folder; None where EXP is none of them."""
    from harness.experiment.file import experiment_path
    from harness.yamlfile import YamlFile

    try:
        path = experiment_path(name)
    except UserError:
        return _known_foreign(name, results, settings, seeds, gpus_per_run)
    try:
        if "trainer" not in YamlFile(path).data:
            return None
    except UserError:
        return None  # whatever is wrong with it, the reader of ordinary experiments says it
    from harness.foreign.experiment import load_foreign

    return load_foreign(path, parse_overrides(settings, seeds), gpus=gpus_per_run)


def _known_foreign(
    name: str, results: Path, settings: list[str] | None, seeds: int | None, gpus_per_run: int | None
) -> "ForeignExperiment | None":
    """An experiment that the results folder alone knows; None where it knows none of that name."""
    from dataclasses import replace

    from harness.errors import near
    from harness.experiment.file import experiment_names
    from harness.foreign.plan import restored
    from harness.store.plans import read_plan

    if (plan := read_plan(results, name)) is None:
        here = [p.parent.name for p in results.glob("experiments/*/experiment.json")]
        if get_close_matches(name, here, n=1):
            raise UserError(f"unknown experiment '{name}'{near(name, [*here, *experiment_names()])}")
        return None
    if plan.get("imported"):
        raise UserError(f"experiment '{name}' holds imported logs: nothing of it can run; `ablate report {name}` shows them")
    if not plan.get("foreign"):
        raise UserError(
            f"experiment '{name}' is in {results}, but its file is not here: name its path (it was: {plan['command']})"
        )
    if settings or gpus_per_run is not None:
        raise UserError(f"experiment '{name}' goes on as it was started ({plan['command']}): --seeds alone can be changed")
    e = restored(results, plan)
    return e if seeds is None else replace(e, seeds=tuple(range(seeds)))


def refuse_for_foreign(given: "Mapping[str, object]", way_out: str) -> None:
    """Raises UserError for an option that works with our own trainer alone: nothing is ignored silently."""
    if option := next((name for name, value in given.items() if value), None):
        raise UserError(f"{option}: is for our own trainer, not for foreign ones: {way_out}")


def foreign_plan(e: "ForeignExperiment", command: str) -> "Plan":
    """experiment.json of one that was never launched."""
    from harness.foreign.plan import describe_foreign, plan_foreign

    return describe_foreign(e, plan_foreign(e), before=None, command=command)


PUBLISHED = "published/"


def load_for_report(name: str, results: Path, accept_stale: bool = False, *, look: bool = False) -> "ReportedExperiment":
    """The experiment as the results folder holds it, stale runs known as such; `look` counts this as a look at its results.

    published/NAME is the benchmark's own evidence, which needs no results folder."""
    if name.startswith(PUBLISHED):
        from reports.inputs.published_experiments import published_experiment

        try:
            return published_experiment(name.removeprefix(PUBLISHED))
        except ValueError as error:
            raise UserError(str(error)) from None
    from harness.store.plans import count_look, save_plan
    from harness.store.store import Store
    from reports.inputs.load import load

    plan = plan_of(name, results)
    try:
        save_plan(results, count_look(results, plan) if look else plan)
    except OSError:
        if not (results / "experiments" / plan["name"]).is_dir():
            raise  # else a read-only folder can still be read
    try:
        experiment = load(plan["name"], results=results, accept_stale=accept_stale)
    except ValueError as error:
        raise UserError(str(error)) from None
    runs, store = experiment.runs, Store(results)
    going = runs["status"] == "running"  # as the run's files say; whether its process lives the store knows
    runs.loc[going, "status"] = [store.state(str(r))["status"] for r in runs.loc[going, "run_id"]]
    return experiment


def compared(experiment: "ReportedExperiment") -> "Comparisons":
    """An experiment's verdicts; raises UserError where its runs cannot be compared at all."""
    try:
        from reports.analysis.compare import compare_all

        return compare_all(experiment)
    except ValueError as error:
        raise UserError(str(error)) from None


def parse_overrides(settings: list[str] | None, seeds: int | None) -> dict[str, Any]:
    """--set KEY=VALUE pairs as YAML would read them."""
    from harness.experiment.keys import MAX_SEEDS
    from harness.yamlfile import parse_value

    out: dict[str, Any] = {}
    for text in settings or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {text}: must be KEY=VALUE, for example --set schedule.steps=300")
        out[key.strip()] = parse_value(value)
    if seeds is not None and not 1 <= seeds <= MAX_SEEDS:
        raise UserError(f"--seeds {seeds}: must be from 1 to {MAX_SEEDS}")
    return out | ({"seeds": seeds} if seeds is not None else {})


def read_experiment(
    name: str, settings: list[str] | None = None, seeds: int | None = None, *, device: str | None = None
) -> "Experiment":
    """The experiment of a file, resolved for a device (this machine's if none is named), its embedded corpus prepared."""
    from harness.corpora.corpus import data_root
    from harness.corpora.index import prepare
    from harness.experiment.experiment import load_experiment
    from harness.node.slots import find_device

    experiment = load_experiment(name, device=device or find_device(), overrides=parse_overrides(settings, seeds))
    corpus = experiment.baseline.config.data.corpus
    if corpus == "stdlib" and not (data_root() / corpus / "corpus.json").exists():
        print(f"preparing corpus {corpus} in {data_root()}", file=sys.stderr)
        prepare(corpus)
    return experiment


def plan_of(name: str, results: Path) -> "Plan":
    """experiment.json as it is now: of the results folder, or made from the experiment's file if it was never launched."""
    from harness.store.plans import read_plan, up_to_date

    known = read_plan(results, name_of(name))
    if known is None:
        from harness.experiment.plan import plan_runs
        from harness.experiment.record import describe

        if (foreign := read_foreign(name, results)) is not None:
            return foreign_plan(foreign, f"ablate run {name}")
        experiment = current_part(read_experiment(name), results)
        known = read_plan(results, experiment.name)
        if known is None:
            return describe(experiment, plan_runs(experiment), before=None, command=f"ablate run {name}")
    if known.get("foreign"):
        from harness.foreign.plan import with_present_code

        return with_present_code(results, known)
    return up_to_date(results, known)


def name_of(text: str) -> str:
    """The name in the results folder of EXP: that of the file, where EXP is one; else EXP itself."""
    from harness.experiment.file import experiment_names, experiment_path
    from harness.yamlfile import YamlFile

    if text.endswith((".yaml", ".yml")) or text in experiment_names():
        return str(YamlFile(experiment_path(text)).data.get("name"))
    return text


def current_part(whole: "Experiment", results: Path, *, world_size: int | None = None) -> "Experiment":
    """What is to be run now: the experiment; of a retuned one the grid, and once that is complete the arms at their rates."""
    from harness.experiment.experiment import at_rates
    from harness.experiment.plan import plan_runs
    from harness.run.results import read_result
    from harness.store.plans import read_plan

    if whole.grid is None:
        return resumed(whole, results)
    planned = {p.spec.run_id for p in plan_runs(whole.grid, world_size=world_size, need_data=False)}
    saved = read_plan(results, whole.grid.name)
    launched = saved is not None and planned == {r["run_id"] for r in saved["runs"]}
    if not launched or not all(read_result(results / "runs" / run_id) for run_id in planned):
        return whole.grid
    from reports.analysis.adaptive import best_rates
    from reports.inputs.load import load

    try:
        rates = best_rates(load(whole.grid.name, results=results))
    except ValueError as error:
        raise UserError(str(error)) from None
    return at_rates(whole, {arm: vars(rate) for arm, rate in rates.items()})


def resumed(experiment: "Experiment", results: Path) -> "Experiment":
    """An adaptive experiment with the seeds that its rule had added when it was last run."""
    from harness.store.plans import read_plan

    saved = read_plan(results, experiment.name) if experiment.seeds_rule else None
    seeds = saved.seeds if saved and saved.seeds_rule == experiment.seeds_rule else ()
    return (
        with_more(experiment, seeds[len(experiment.seeds) :])
        if seeds[: len(experiment.seeds)] == experiment.seeds
        else experiment
    )


def with_more(experiment: "Experiment", seeds: tuple[int, ...]) -> "Experiment":
    from harness.experiment.plan import with_seeds

    return with_seeds(experiment, (*experiment.seeds, *seeds))
