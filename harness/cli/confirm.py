"""From an exploratory experiment to the confirmatory one that follows: fresh seeds, as many as its noise asks for, a margin."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.lookup import current_part, name_of, parse_overrides, read_experiment
from harness.cli.options import RESULTS, Exp, Results, Set
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from reports.analysis.types import Comparisons

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
    import yaml

    from harness.cli.lookup import compared, load_for_report
    from harness.config.run import plain
    from harness.experiment.file import experiment_path
    from harness.store.plans import read_plan
    from harness.yamlfile import YamlFile

    known = read_plan(results, name_of(experiment))
    if known is not None and (known.foreign or known.imported):
        raise UserError(
            f"{experiment}: what is not our own trainer's is confirmed by a file with `confirm: "
            "true`, which has fresh runs: see "
            "docs/foreign-trainers.md; imported logs cannot be"
        )
    file = YamlFile(experiment_path(experiment))
    if file.data.get("confirm"):
        raise UserError(
            f"{file.where('confirm')}: {name_of(experiment)} confirms already; its report is what "
            "it has to say"
        )
    loaded = current_part(read_experiment(experiment, settings), results)
    explored = load_for_report(loaded.name, results)
    if explored.plan["baseline_config"] != plain(loaded.baseline.config):
        raise UserError(
            f"{file.path}: {loaded.name} was run with other settings: repeat its --set options "
            f"({explored.plan['command']})"
        )
    outcome = compared(explored)
    margin = margin if margin is not None else loaded.margin or half_the_smallest(outcome)
    n, why = planned_seeds(
        loaded,
        outcome,
        results,
        detect if detect is not None else margin,
        len(arms or outcome.arms),
    )
    data = confirmatory(
        file.data, parse_overrides(settings, None), explored.plan, arms or [], n=n, margin=margin
    )
    if plugged := data.pop("plugins", []):
        data["plugins"] = [str((file.path.parent / p).resolve()) for p in plugged]
    path = out or Path("experiments") / f"{data['name']}.yaml"
    text = f"# Follows from {loaded.name}: {why}. Seeds that no exploratory run has seen.\n"
    text += yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UserError(
            f"{path} exists and says something else: remove it, or name another file with -o"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {why}\nnext: ablate plan {path}")


def half_the_smallest(outcome: "Comparisons") -> float:
    """Half of the smallest effect that is told apart from zero.

    Raises UserError where there is none.
    """
    told = [
        abs(c.delta)
        for a in outcome.arms
        if (c := outcome.of(a, outcome.primary)) and c.kind in ("helps", "hurts")
    ]
    if not told:
        raise UserError(
            "confirm: no effect is told apart from zero, so none sets a margin: give one with "
            "--margin"
        )
    return float(f"{min(told) / 2:.2g}")


def planned_seeds(
    e: "Experiment", outcome: "Comparisons", results: Path, difference: float, n_arms: int
) -> tuple[int, str]:
    """How many fresh seeds detect a difference in the primary metric, and why, in words."""
    from harness.cli.power import known_of
    from reports.stats.planning import seeds_needed, upper_sd

    cell, known = outcome.cells[outcome.baseline], known_of(e, results)
    if cell.n_finished < 2:
        raise UserError(
            f"confirm: '{e.name}' has fewer than two finished runs of its baseline: run it first, "
            "its noise plans the seeds"
        )
    unit, sd, worth = "of loss", known.sd, difference
    if e.primary == "step_time":
        unit, sd = "ms a step", upper_sd(cell.sd["step_ms"], cell.n_finished)
    elif e.primary == "time_to_target":
        if known.step_ms is None:
            raise UserError(
                f"confirm: '{e.name}' has no step time yet, which its margin in seconds needs: "
                "run it first"
            )
        unit, worth = "s to target", difference / (known.step_ms / 1e3) * known.slope.per_step
    try:
        n = seeds_needed(worth, sd=sd, n_arms=n_arms)
    except ValueError as error:
        raise UserError(f"--detect: {error}") from None
    if n is None:
        raise UserError(
            f"confirm: 1000 seeds do not detect {difference:g} {unit} at an sd of {sd:.4g}: give "
            "a larger --margin or --detect"
        )
    return (
        n,
        f"{n} seeds detect {difference:g} {unit} with power 0.8 over {n_arms} "
        f"arm{'s' * (n_arms > 1)} (sd {sd:.4g})",
    )


def confirmatory(
    data: Mapping[str, Any],
    overrides: Mapping[str, Any],
    plan: Mapping[str, Any],
    arms: list[str],
    *,
    n: int,
    margin: float,
) -> dict[str, Any]:
    """The new file's keys: the old one's with what was overridden, a name of its own, fresh seeds and the margin."""
    from harness.experiment.experiment import KEYS

    keys = {k: v for k, v in overrides.items() if k in KEYS}
    fields = {k: v for k, v in overrides.items() if k not in KEYS}
    out = {
        **data,
        **keys,
        "name": f"{plan['name']}_confirm",
        "question": f"Confirmed on fresh seeds: {plan['question']}",
    }
    out |= {"seeds": n, "margin": margin, "confirm": True}
    if fields:
        out["set"] = {**(out.get("set") or {}), **fields}
    if arms:
        known = {
            a["name"]: a["changes"]
            for a in plan["arms"]
            if a["name"] == a["of"] != plan["baseline"]
        }
        for arm in arms:
            if arm not in known:
                raise UserError(
                    f"--arm {arm}: no arm of '{plan['name']}'; there is: {', '.join(known)}"
                )
        out |= {"design": "explicit", "arms": {arm: list(known[arm]) for arm in arms}}
    scale = str(out.get("scale", "gpt2"))
    if scale in (out.get("at_scale") or {}):  # what was explored at this scale is what is confirmed
        out["at_scale"] = {
            **out["at_scale"],
            scale: {
                k: v for k, v in out["at_scale"][scale].items() if k not in ("seeds", "margin")
            },
        }
    return out
