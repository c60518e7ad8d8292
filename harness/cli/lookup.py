"""EXP, as a user names it: its experiment, its plan, or what a report is made of."""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.looks import remember_look
from harness.cli.parts import current_part
from harness.errors import UserError
from harness.run.document import Content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.experiment.experiment import Experiment
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.plan import Plan
    from reports.analysis.types import Comparisons
    from reports.inputs.experiment import Experiment as ReportedExperiment

PUBLISHED = "published/"


def read_foreign(
    name: str,
    results: Path,
    settings: list[str] | None = None,
    seeds: int | None = None,
    gpus_per_run: int | None = None,
    *,
    trust: bool = False,
) -> "ForeignExperiment | None":
    """The experiment, if its arms are foreign trainers, of its file or of the results folder.

    settings: KEY=VALUE pairs. seeds, gpus_per_run: instead of the file's. trust: whatever the
    results folder says may be executed, though it was not launched here. name: EXP as typed.
    """
    from harness.experiment.file import experiment_path
    from harness.yamlfile import YamlFile

    try:
        path = experiment_path(name)
    except UserError:
        changed = bool(settings) or gpus_per_run is not None
        return _foreign_of_results(name, results, seeds, changed=changed, trust=trust)
    try:
        if "trainer" not in YamlFile(path).data:
            return None
    except UserError:
        return None  # whatever is wrong with it, the reader of ordinary experiments says it
    from harness.foreign.experiment import load_foreign

    return load_foreign(path, parse_overrides(settings, seeds), gpus=gpus_per_run)


def _foreign_of_results(
    name: str, results: Path, seeds: int | None, *, changed: bool, trust: bool
) -> "ForeignExperiment | None":
    """An experiment that the results folder alone knows; None where it knows none of that name."""
    from dataclasses import replace

    from harness.foreign.plan import restored
    from harness.store.launches import check_launched
    from harness.store.plans import read_plan

    plan = read_plan(results, name)
    if plan is None:
        refuse_misspelt(name, results)
        return None
    if plan.imported:
        raise UserError(
            f"experiment '{name}' holds imported logs: nothing of it can run; "
            f"`ablate report {name}` shows them"
        )
    if not plan.foreign:
        raise UserError(
            f"experiment '{name}' is in {results}, but its file is not here: "
            f"name its path (it was: {plan.command})"
        )
    if changed:
        raise UserError(
            f"experiment '{name}' goes on as it was started ({plan.command}): "
            "--seeds alone can be changed"
        )
    for line in check_launched(results, plan, trust=trust):
        print(f"trusted: {line}", file=sys.stderr)
    experiment = restored(results, plan)
    if seeds is None:
        return experiment
    return replace(experiment, seeds=tuple(range(seeds)))


def refuse_misspelt(name: str, results: Path) -> None:
    """Raises UserError for a name that is close to one of the results folder's."""
    from harness.errors import near
    from harness.experiment.file import experiment_names
    from harness.run.guarded import experiments_in

    here = experiments_in(results)
    if get_close_matches(name, here, n=1):
        raise UserError(f"unknown experiment '{name}'{near(name, [*here, *experiment_names()])}")


def refuse_for_foreign(given: "Mapping[str, object]", way_out: str) -> None:
    """Raises UserError for an option that is for our own trainer: nothing is ignored silently."""
    for option, value in given.items():
        if value:
            raise UserError(f"{option}: is for our own trainer, not for foreign ones: {way_out}")


def refuse_unlaunched_trainers(name: str, results: Path) -> None:
    """Raises UserError for foreign trainers that were never launched in the results folder.

    What only reads starts neither git nor the interpreters that their plan has to ask.
    """
    from harness.experiment.file import experiment_path
    from harness.yamlfile import YamlFile

    try:
        path = experiment_path(name)
    except UserError:
        refuse_misspelt(name, results)
        return  # whatever is wrong with it, the reader of ordinary experiments says it
    if "trainer" in YamlFile(path).data:
        raise UserError(
            f"{name}: was never launched in {results}: `ablate plan {name}` says what it would do"
        )


def load_for_report(
    name: str,
    results: Path,
    accept_stale: bool = False,
    *,
    plan: "Plan | None" = None,
    look: str = "",
    verify: bool = False,
) -> "ReportedExperiment":
    """The experiment as the results folder holds it, stale runs known as such.

    published/NAME is the benchmark's own evidence, which needs no results folder.
    name: a YAML path or a name in the results folder. accept_stale: runs of an older source count.
    plan: its plan, where that is not as the scripts are now. look: the command whose look at its
    results this is; '' where it is none. verify: every file of it is looked at.
    """
    if name.startswith(PUBLISHED):
        return published_evidence(name.removeprefix(PUBLISHED))
    from harness.store.deep import wrong_in
    from reports.inputs.load import load

    plan = plan or plan_of(name, results)
    if verify:
        for sentence in dict.fromkeys(wrong_in(results, plan)):
            print(sentence, file=sys.stderr)
    keep_if_writable(plan, results, look=look)
    try:
        experiment = load(plan.name, results=results, accept_stale=accept_stale, verify=verify)
    except ValueError as error:
        raise UserError(str(error)) from None
    for sentence in experiment.unsound:
        print(sentence, file=sys.stderr)
    see_who_lives(experiment, results)
    return experiment


def published_evidence(name: str) -> "ReportedExperiment":
    from reports.inputs.published_experiments import published_experiment

    try:
        return published_experiment(name)
    except ValueError as error:
        raise UserError(str(error)) from None


def keep_if_writable(plan: "Plan", results: Path, *, look: str) -> None:
    """experiment.json as it is now; one that lies in a read-only folder can still be read."""
    from harness.store.plans import count_look, save_plan

    try:
        if look:
            plan = count_look(results, plan)
        save_plan(results, plan)
    except OSError:
        if not (results / "experiments" / plan.name).is_dir():
            raise
    if look:
        remember_look(plan, results, look)


def see_who_lives(experiment: "ReportedExperiment", results: Path) -> None:
    """Runs that go on by their files: whether their process lives the store knows."""
    from harness.store.store import Store

    runs, store = experiment.runs, Store(results)
    going = runs["status"] == "running"
    states = [store.state(str(run_id)) for run_id in runs.loc[going, "run_id"]]
    runs.loc[going, "status"] = [state.status for state in states]


def compared(experiment: "ReportedExperiment") -> "Comparisons":
    """An experiment's verdicts; raises UserError where its runs cannot be compared at all."""
    try:
        from reports.analysis.compare import compare_all

        return compare_all(experiment)
    except ValueError as error:
        raise UserError(str(error)) from None


def parse_overrides(settings: list[str] | None, seeds: int | None) -> Content:
    """--set KEY=VALUE pairs as YAML would read them."""
    from harness.experiment.keys import MAX_SEEDS
    from harness.yamlfile import parse_value

    overrides: Content = {}
    for text in settings or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(
                f"--set {text}: must be KEY=VALUE, for example --set schedule.steps=300"
            )
        overrides[key.strip()] = parse_value(value)
    if seeds is not None:
        if not 1 <= seeds <= MAX_SEEDS:
            raise UserError(f"--seeds {seeds}: must be from 1 to {MAX_SEEDS}")
        overrides["seeds"] = seeds
    return overrides


def read_experiment(
    name: str,
    settings: list[str] | None = None,
    seeds: int | None = None,
    *,
    device: str | None = None,
) -> "Experiment":
    """The experiment of a file, its embedded corpus prepared.

    device: that it is resolved for; None: this machine's. --set device= comes before both.
    """
    from harness.cli.devices import asked_device
    from harness.corpora.corpus import data_root
    from harness.corpora.index import prepare
    from harness.experiment.experiment import load_experiment
    from harness.node.slots import find_device

    overrides = parse_overrides(settings, seeds)
    device = asked_device(overrides, device) or find_device()
    experiment = load_experiment(name, device=device, overrides=overrides)
    corpus = experiment.baseline.config.data.corpus
    if corpus == "stdlib" and not (data_root() / corpus / "corpus.json").exists():
        print(f"preparing corpus {corpus} in {data_root()}", file=sys.stderr)
        prepare(corpus)
    return experiment


def plan_of(name: str, results: Path) -> "Plan":
    """experiment.json as it is now, made from the experiment's file if it was never launched."""
    from harness.store.plans import read_plan, up_to_date

    plan = read_plan(results, name_of(name))
    if plan is None:
        refuse_unlaunched_trainers(name, results)
        experiment = current_part(read_experiment(name), results)
        plan = read_plan(results, experiment.name)
        if plan is None:
            return plan_of_file(experiment, f"ablate run {name}")
    if plan.foreign:
        from harness.foreign.present import with_present_scripts, with_steps
        from harness.store.launches import is_launched

        present = with_present_scripts(plan) if is_launched(results, plan) else plan
        return with_steps(results, present)
    return up_to_date(results, plan)


def plan_of_file(experiment: "Experiment", command: str) -> "Plan":
    """experiment.json of an experiment that was never launched."""
    from harness.experiment.plan import plan_runs
    from harness.experiment.record import describe

    return describe(experiment, plan_runs(experiment), before=None, command=command)


def name_of(text: str) -> str:
    """The name in the results folder of EXP: that of the file, if EXP is one; else EXP itself."""
    from harness.experiment.file import experiment_names, experiment_path
    from harness.yamlfile import YamlFile

    if text.endswith((".yaml", ".yml")) or text in experiment_names():
        return str(YamlFile(experiment_path(text)).data.get("name"))
    return text
