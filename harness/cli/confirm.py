"""From an exploratory experiment to the confirmatory one that follows.

Fresh seeds, as many as its noise asks for, a margin.
"""

import math
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.confirm_arms import chosen_arms, points_named
from harness.cli.devices import KEY
from harness.cli.lookup import name_of, parse_overrides, read_experiment
from harness.cli.options import RESULTS, Exp, Results, Set
from harness.cli.parts import current_part
from harness.errors import UserError
from harness.run.document import Content, Document, Fields

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.run.plan import Plan
    from harness.yamlfile import YamlFile
    from reports.analysis.types import Comparisons
    from reports.inputs.experiment import Experiment as ReportedExperiment

OF_SWEEPS = ("axes", "draw", "halving", "design", "arms", "parents", "gpu_only", "alters_noise")
Out = Annotated[
    Path | None, typer.Option("-o", help="the file; default experiments/NAME_confirm.yaml")
]
Detect = Annotated[
    float | None, typer.Option(help="the smallest difference worth confirming; default: the margin")
]
Margin = Annotated[
    float | None,
    typer.Option(help="the largest difference that does not matter; default: the experiment's"),
]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="ARM", help="confirm this arm alone; repeatable"),
]


@app.command()
def confirm(
    experiment: Exp,
    out: Out = None,
    margin: Margin = None,
    detect: Detect = None,
    arms: Arms = None,
    settings: Set = None,
    results: Results = RESULTS,
) -> None:
    """Write the confirmatory experiment that follows from an exploratory one."""
    from harness.cli.lookup import compared, load_for_report
    from harness.store.plans import read_plan

    file = exploratory_file(experiment, results)
    loaded = current_part(read_experiment(experiment, settings), results)
    explored = load_for_report(loaded.name, results)
    check_same_settings(file, loaded, explored.plan)
    outcome = compared(explored)
    if loaded.halving is not None:
        check_selected(loaded, explored, outcome, arms or [])
    if margin is None:
        margin = loaded.margin or half_the_smallest(outcome, arms or [], detect)
    if detect is None:
        detect = margin
    asked = None if arms else asked_on_page(outcome, detect)
    n, why = asked or planned_seeds(loaded, outcome, results, detect, len(arms or outcome.arms))
    overrides = parse_overrides(settings, None)
    overrides.pop(KEY, None)  # a file is for any device
    is_retuned = loaded.estimand == "retuned"
    seeds = n if is_retuned else fresh_seeds(explored.plan, results, n)
    data = confirmatory(file.data, overrides, explored.plan, arms or [], seeds=seeds, margin=margin)
    if out is not None and read_plan(results, data["name"]) is not None:
        data["name"] = unused_name(out, results)  # asked again before, by one of that name
    plugins = data.pop("plugins", [])
    if plugins:
        data["plugins"] = [str((file.path.parent / path).resolve()) for path in plugins]
    path = out or Path("experiments") / f"{data['name']}.yaml"
    opening = f"# Follows from {loaded.name}: {why}. Seeds that no exploratory run has seen.\n"
    write_experiment(path, opening, data)
    print(f"{path}: {why}\nnext: ablate plan {path}")


def unused_name(out: Path, results: Path) -> str:
    """An experiment's name by its file; raises UserError where it is none, or taken."""
    from harness.experiment.keys import check_name
    from harness.store.plans import read_plan

    name = check_name(out.stem, f"{out}: the experiment's name")
    if read_plan(results, name) is not None:
        raise UserError(f"{out}: {results} has an experiment {name}: name another file with -o")
    return name


def exploratory_file(experiment: str, results: Path) -> "YamlFile":
    """The file of an experiment; raises UserError where nothing can follow from it."""
    from harness.experiment.file import experiment_path
    from harness.store.plans import read_plan
    from harness.yamlfile import YamlFile

    launched = read_plan(results, name_of(experiment))
    if launched is not None and (launched.foreign or launched.imported):
        raise UserError(
            f"{experiment}: what is not our own trainer's is confirmed by a file with "
            "`confirm: true`, which has fresh runs: see docs/foreign-trainers.md; "
            "imported logs cannot be"
        )
    file = YamlFile(experiment_path(experiment))
    if file.data.get("confirm"):
        raise UserError(
            f"{file.where('confirm')}: {name_of(experiment)} confirms already; "
            "its report is what it has to say"
        )
    return file


def check_same_settings(file: "YamlFile", loaded: "Experiment", explored: "Plan") -> None:
    """Refuse settings that were not those of the exploratory runs."""
    from harness.config.run import plain

    if explored.baseline_config != plain(loaded.baseline.config):
        raise UserError(
            f"{file.path}: {loaded.name} was run with other settings: "
            f"repeat its --set options ({explored.command})"
        )


def write_experiment(path: Path, opening: str, data: Document) -> None:
    """Write an experiment's file; raises UserError where another is there."""
    import yaml

    text = opening + yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UserError(
            f"{path} exists and says something else: remove it, or name another file with -o"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_selected(
    loaded: "Experiment", explored: "ReportedExperiment", outcome: "Comparisons", arms: list[str]
) -> None:
    """Refuse to confirm a halving before its end, or without the name of a point."""
    from reports.page.selection import chosen_points

    chosen = chosen_points(explored)
    if loaded.halving is None or not loaded.halving.is_last or not chosen:
        raise UserError(
            f"confirm: the halving of {loaded.path} has not ended, so that nothing is selected: "
            f"ablate run {loaded.path}"
        )
    if not arms:
        raise UserError(f"confirm: name the selected point: --arm {quote(chosen[0])}")
    if all(outcome.of(arm, "val_loss") is None for arm in arms):
        points = [arm for arm in explored.plan.by_arm if arm != explored.plan.baseline]
        raise UserError(f"--arm {arms[0]}: no point of the last rung; there is: {points}")


def half_the_smallest(
    outcome: "Comparisons", arms: list[str], detect: float | None = None
) -> float:
    """Half of the smallest effect that is told apart from zero; of a halving, of the arms' own.

    Of none half of what is to be detected; raises UserError where nothing says that either.
    """
    from reports.stats.verdicts import NOT_JUDGED

    sizes = []
    for arm in outcome.arms:
        comparison = outcome.of(arm, outcome.primary)
        if comparison is None:
            continue
        selected = arm in arms and comparison.verdict == NOT_JUDGED.text and comparison.delta
        if comparison.kind in ("helps", "hurts") or selected:
            sizes.append(abs(comparison.delta))
    if not sizes and detect is not None and detect > 0:
        return detect / 2
    if not sizes:
        raise UserError(
            "confirm: no effect is told apart from zero, so none sets a margin: give one with "
            "--margin"
        )
    return float(f"{min(sizes) / 2:.2g}")


def asked_on_page(outcome: "Comparisons", difference: float) -> tuple[int, str] | None:
    """How many fresh seeds the page asks for to find this difference, and which arms they decide.

    None where it asks for none; then the baseline's noise plans them.
    """
    from reports.page.naming import NAMED, listing

    seeds = {}
    for arm in outcome.arms:
        c = outcome.judged(arm)
        if c is not None and c.fresh_seeds and f"--detect {difference:g}:" in c.next_action:
            seeds[arm] = c.fresh_seeds
    if not seeds:
        return None
    n = max(seeds.values())
    said = listing([*seeds], most=NAMED)
    return n, f"{n} seeds with power 0.8, as its page asks, decide {said} at {difference:g}"


def planned_seeds(
    e: "Experiment", outcome: "Comparisons", results: Path, difference: float, n_arms: int
) -> tuple[int, str]:
    """How many fresh seeds detect a difference in the primary metric, and why, in words.

    n_arms: how many are compared with the baseline.
    results: the results folder. difference: in the metric's unit.
    """
    from harness.cli.power import known_of
    from reports.analysis.prior import prior_of
    from reports.stats.planning import seeds_needed, upper_sd

    cell, assumed = outcome.cells[outcome.baseline], known_of(e, results)
    if cell.n_finished < 2:
        raise UserError(
            f"confirm: '{e.name}' has fewer than two finished runs of its baseline: run it first, "
            "its noise plans the seeds"
        )
    unit, sd, worth = "of loss", assumed.sd, difference
    prior = prior_of(e.prior_noise) if e.primary == "val_loss" else None
    if e.primary == "step_ms":
        unit, sd = "ms a step", upper_sd(cell.sd["step_ms"], cell.n_finished)
        paired = paired_step_sd(outcome)
        if paired < cell.sd["step_ms"]:
            sd = paired
    elif e.primary == "time_to_target":
        if assumed.step_ms is None:
            raise UserError(
                f"confirm: '{e.name}' has no step time yet, which its margin in seconds needs: "
                "run it first"
            )
        unit, worth = "s to target", difference / (assumed.step_ms / 1e3) * assumed.slope.per_step
    try:
        n = seeds_needed(worth, sd=sd, n_arms=n_arms, prior=prior)
    except ValueError as error:
        raise UserError(f"--detect: {error}") from None
    if n is None:
        raise UserError(
            f"confirm: 1000 seeds do not detect {difference:g} {unit} at an sd of {sd:.4g}: give "
            "a larger --margin or --detect"
        )
    plural = "s" if n_arms > 1 else ""
    why = (
        f"{n} seeds detect {difference:g} {unit} with power 0.8 over {n_arms} arm{plural} "
        f"(sd {sd:.4g})"
    )
    return n, why


def fresh_seeds(plan: "Plan", results: Path, n: int) -> int | list[int]:
    """How many seeds from the first confirmatory one on; where those have results, others."""
    from harness.experiment.keys import CONFIRM_SEEDS_FROM
    from harness.store.looks import seeds_with_results

    used = seeds_with_results(results, plan)
    if not any(CONFIRM_SEEDS_FROM <= seed < CONFIRM_SEEDS_FROM + n for seed in used):
        return n
    first = max(used) + 1
    return list(range(first, first + n))


def paired_step_sd(outcome: "Comparisons") -> float:
    """One run's sd of the step time beside its block, in ms: of the arm that pairs worst.

    Infinite where an arm shares fewer than two blocks with the baseline.
    """
    import numpy as np

    from reports.stats.contrasts import paired
    from reports.stats.planning import upper_sd

    worst = 0.0
    for arm in outcome.arms:
        comparison = outcome.of(arm, "step_ms")
        if comparison is None:
            return math.inf
        differences = np.subtract(*paired(comparison.of_arm, comparison.of_baseline))
        if len(differences) < 2 or not np.ptp(differences):
            return math.inf
        of_difference = upper_sd(float(differences.std(ddof=1)), len(differences))
        worst = max(worst, comparison.mean_baseline * of_difference / math.sqrt(2))
    return worst


def confirmatory(
    data: Document,
    overrides: Fields,
    plan: "Plan",
    arms: list[str],
    *,
    seeds: int | list[int],
    margin: float,
) -> Content:
    """The new file's keys: the old one's, a name of its own, fresh seeds and the margin.

    data: the old file's. overrides: what --set replaced. plan: of the exploratory runs.
    arms: those to confirm alone; empty: all. seeds: so many from the first on, or these.
    """
    from harness.experiment.experiment import KEYS

    keys = dict(data)
    fields: Content = {}
    for key, value in overrides.items():
        target = keys if key in KEYS else fields
        target[key] = value
    keys |= {
        "name": f"{plan.name}_confirm",
        "question": f"Confirmed on fresh seeds: {plan.question}",
        "seeds": seeds,
        "margin": margin,
        "confirm": True,
    }
    if fields:
        keys["set"] = {**(keys.get("set") or {}), **fields}
    tried = plan.halving.n_points if plan.halving else len(plan.arms) - 1
    if 0 < len(arms) < tried:
        keys["question"] = (
            f"Confirmed on fresh seeds, {len(arms)} of {tried} arms of {plan.name}, whose runs "
            f"there are no evidence here: {plan.question}"
        )
    scale = str(keys.get("scale", "gpt2"))
    of_scale = (keys.get("at_scale") or {}).get(scale) or {}
    fixed = {**(keys.get("set") or {}), **(of_scale.get("set") or {})}
    points = points_named(plan, arms, fixed)
    if plan.halving:
        keys["budgets"] = list(plan.budgets)
    if points:
        keys = {k: v for k, v in keys.items() if k not in OF_SWEEPS} | points
    elif arms:
        keys |= {"design": "explicit", "arms": chosen_arms(plan, arms)}
        keys.pop("parents", None)  # of a chain
    if scale in (keys.get("at_scale") or {}):
        # what was explored at this scale is what is confirmed
        kept = dict(of_scale)
        of_points = ["axes"] if points else []
        of_points += ["budgets"] if plan.halving else []
        for key in ("seeds", "margin", *of_points):
            kept.pop(key, None)
        keys["at_scale"] = {**keys["at_scale"], scale: kept}
    return keys
