"""What an experiment will cost and can detect, before anything is spent."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import app
from harness.cli.command import takes
from harness.cli.devices import KEY, planned_device
from harness.cli.foreign_plan import print_foreign_plan
from harness.cli.lookup import (
    name_of,
    parse_overrides,
    read_experiment,
    read_foreign,
    refuse_for_foreign,
)
from harness.cli.margin import margin_note
from harness.cli.parts import current_part
from harness.cli.plan_facts import PlanFacts, PlanQuestion, changes_of, plan_facts, seeds_words
from harness.cli.plan_options import PlanOptions
from harness.cli.plan_rungs import all_hours, rung_words
from harness.cli.table import print_json, print_table
from harness.errors import UserError
from harness.run.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.experiment.experiment import Experiment
    from harness.run.spec import PlannedRun


@app.command()
@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Arms, runs, what is done, what can be detected, what it costs."""
    from harness.experiment.file import in_folder

    names = [name for text in options.experiments for name in in_folder(text)]
    results, machine = options.results, options.machine
    for name in names:
        foreign = read_foreign(name, results, options.settings, options.seeds, options.gpus_per_run)
        if foreign is None:
            continue
        if len(names) > 1:
            raise UserError(f"{name} has foreign trainers: plan it by itself, ablate plan {name}")
        for_our_own = {"--detect": options.detect is not None, "--on": machine is not None}
        refuse_for_foreign(for_our_own, "leave it out")
        print_foreign_plan(foreign, results, price=options.price, json=options.json)
        return
    plans, refused = [], []
    for name in names:
        try:
            plans.append(planned_part(name, options))
        except UserError as error:
            if len(names) == 1:
                raise
            refused.append(str(error))
    about = PlanQuestion(detect=options.detect, price=options.price, machine=machine)
    if len(names) == 1:
        print_plan(*plans[0], results, about, json=options.json)
        return
    facts = []
    for part, planned in plans:
        facts.append(plan_facts(part, planned, results, about))
    print_overview(facts, json=options.json)
    if refused:
        many = plural(len(refused), "experiment")
        raise UserError(f"{many} cannot be planned so: {'; '.join(refused)}")


def planned_part(name: str, options: PlanOptions) -> "tuple[Experiment, list[PlannedRun]]":
    """The part of an experiment that is next, and its runs."""
    from harness.experiment.plan import plan_runs

    machine, size = options.machine, options.gpus_per_run
    device = "cuda" if machine else device_to_plan(name, options.results, options.settings)
    whole = read_experiment(name, options.settings, options.seeds, device=device)
    part = current_part(whole, options.results, world_size=size)
    if machine is not None and len(part.phases) < 2:
        size = size or machine.gpus_of_run(part)
    return part, plan_runs(part, world_size=size, need_data=False)


def device_to_plan(text: str, results: Path, settings: list[str] | None) -> str | None:
    """What EXP was planned for if it was, so that it can be planned elsewhere too.

    None where --set says it, or nobody knows.
    """
    overrides = parse_overrides(settings, None)
    if KEY in overrides:
        return None
    return planned_device(str(overrides.get("name") or name_of(text)), results)


def print_overview(plans: list[PlanFacts], *, json: bool) -> None:
    """Several experiments as one table."""
    if json:
        print_json([facts.to_mapping() for facts in plans])
        return
    rows = []
    for facts in plans:
        hours = all_hours(facts.cost, facts.rungs)
        row = {
            "name": facts.name,
            "arms": len(facts.arms),
            "seeds": len(facts.seeds),
            "runs": facts.all_runs,
            "done": facts.done,
            "hours": None if hours is None else round(hours, 1),
            "detectable": facts.power.detectable,
            "question": facts.question,
        }
        rows.append(row)
    print_table(rows)
    n_runs = sum(facts.all_runs for facts in plans)
    n_done = sum(facts.done for facts in plans)
    print(f"{plural(len(plans), 'experiment')}, {plural(n_runs, 'run')}, {n_done} done")


def print_plan(
    e: "Experiment",
    planned: "list[PlannedRun]",
    results: Path,
    about: PlanQuestion,
    *,
    json: bool = False,
) -> None:
    """One experiment, arm by arm.

    results: the results folder, which says what is done. json: for a program.
    """
    facts = plan_facts(e, planned, results, about)
    if json:
        print_json(facts.to_mapping())
        return
    print(f"{e.name}: {e.question}")
    of_arms = f"{plural(len(e.arms), 'arm')} at {plural(len(e.seeds), 'seed')}"
    print(f"{plural(len(planned), 'run')} of {of_arms}, {facts.done} done")
    if e.seeds_rule is not None:
        print(seeds_words(e.seeds_rule))
    if facts.stale:
        print(facts.stale)
    rows = []
    for arm in facts.arms:
        rows.append(vars(arm) | {"changes": changes_of(arm, e)})
    against, lengths = ["against"] if e.parents else [], ["steps", "tokens"][: 1 + e.tells_tokens]
    print_table(rows, ["arm", *against, "runs", "done", *lengths, "changes"])
    if e.branch_at:
        print(f"all arms go on from one trunk a seed, the baseline before update {e.branch_at}")
    print_notes(e)
    if facts.follows:
        print(f"a grid of rates; when it is complete, {facts.follows} on fresh seeds")
    print_missing_corpus(e, planned)
    print(facts.cost.words)
    if e.halving:
        print(rung_words(e.halving, facts.rungs, facts.cost))
        return
    for line in facts.power.words:
        print(line)


def print_notes(e: "Experiment") -> None:
    """What this machine replaces, and what could not become an arm."""
    substituted = dict.fromkeys(note for arm in e.arms for note in arm.substituted)
    for note in substituted:
        print(f"substituted on this machine: {note}")
    for line in gone_words(e):
        print(line)
    for note in e.left_out:
        print(f"left out: {note}")
    if e.scale_rates and not any(field.endswith("_lr") for field in e.departures):
        print(f"learning rates: {e.base}'s at scale {e.scale}, {e.scale_rates}")
    margin = margin_note(e)
    if margin:
        print(margin)
    dear = []
    for arm in e.arms:
        compiled = e.device == "cuda" and arm.config.system.compile != "off"
        if compiled and arm.config.model.loss_rows is not None:
            dear.append(arm.name)
    if dear:
        print(
            f"model.loss_rows in {', '.join(dear)} saves memory and costs time where it is compiled"
            " on a GPU: about 30 ms a step at r08's full size"
        )


def gone_words(e: "Experiment") -> "Iterator[str]":
    """What goes with what arms switch off: of the optimizer by name, else with its values."""
    from harness.config.requires import value_text
    from harness.config.run import flat

    before, told = flat(e.baseline.config), set[str]()
    for arm in e.arms:
        shown = []
        for name in arm.gone:
            was, now = value_text(before[name]), value_text(flat(arm.config)[name])
            shown.append(name if name.startswith("optim.") else f"{name} ({was} to {now})")
        if not told.issuperset(shown):
            yield f"{arm.of}: what requires what it switches off goes with it: {', '.join(shown)}"
        told.update(shown)


def print_missing_corpus(e: "Experiment", planned: "list[PlannedRun]") -> None:
    """What has to be prepared before the first run."""
    from harness.experiment.plan import NO_DATA

    if any(run.spec.data_fingerprint == NO_DATA for run in planned):
        corpus = e.baseline.config.data.corpus
        print(f"not prepared yet: corpus {corpus}; run `ablate data prepare {corpus}`")
