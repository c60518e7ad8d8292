"""What an experiment will cost and can detect, before anything is spent."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.catalogue import Json
from harness.cli.runs import RESULTS, Exp, Results, Seeds, Set, read_experiment
from harness.cli.table import print_json, print_table
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment import Experiment
    from harness.plan import PlannedRun


@app.command()
def plan(
    experiment: Exp,
    seeds: Seeds = None,
    settings: Set = None,
    results: Results = RESULTS,
    detect: Annotated[
        float | None, typer.Option(help="the smallest difference worth knowing: how many seeds does it need?")
    ] = None,
    gpus_per_run: Annotated[int, typer.Option("--gpus-per-run")] = 1,
    json: Json = False,
) -> None:
    """Arms, runs, what is done, what can be detected, what it costs."""
    from harness.plan import plan_runs

    loaded = read_experiment(experiment, settings, seeds)
    print_plan(loaded, plan_runs(loaded, world_size=gpus_per_run), results, detect=detect, json=json)


def print_plan(
    e: "Experiment", planned: "list[PlannedRun]", results: Path, *, detect: float | None = None, json: bool = False
) -> None:
    from harness.cost import estimate
    from harness.records import read_result

    done = {p.spec.run_id for p in planned if read_result(results / "runs" / p.spec.run_id) is not None}
    arms = [
        {
            "arm": a.name,
            "runs": sum(p.arm == a.name for p in planned),
            "done": sum(p.arm == a.name and p.spec.run_id in done for p in planned),
            "steps": a.config.schedule.steps if not e.budgets else list(e.budgets),
            "changes": [f"{k}={v}" for k, v in a.fields.items()],
            "substituted": list(a.substituted),
        }
        for a in e.arms
    ]
    cost = estimate(planned, done, results)
    power = power_of(e, results, detect)
    if json:
        print_json(
            {
                "name": e.name,
                "question": e.question,
                "arms": arms,
                "runs": len(planned),
                "done": len(done),
                "seeds": list(e.seeds),
                "cost": cost,
                "power": power,
            }
        )
        return
    print(f"{e.name}: {e.question}\n{len(planned)} runs of {len(e.arms)} arms at {len(e.seeds)} seeds, {len(done)} done")
    print_table(arms, ["arm", "runs", "done", "steps", "changes"])
    for note in dict.fromkeys(s for a in e.arms for s in a.substituted):
        print(f"substituted on this machine: {note}")
    print(cost["words"])
    for line in power["words"]:
        print(line)


def power_of(e: "Experiment", results: Path, detect: float | None) -> dict[str, Any]:
    """What this many seeds can detect and how many a given difference needs, from the baseline's measured noise."""
    from reports.planning import plan_detectable, seeds_needed

    sd, source = known_noise(e, results)
    n, k = len(e.seeds), len(e.arms) - 1
    if sd is None:
        return {"words": ["smallest detectable difference: not known before the baseline has finished at two seeds"]}
    loss = plan_detectable(sd=sd, n=n, n_arms=k).loss
    words = [
        f"noise of the baseline: sd {sd:.4f} ({source})",
        "one seed: no difference can be tested"
        if loss is None
        else f"smallest difference that {n} seeds detect (power 0.8, {k} comparisons): {loss:.4f}",
    ]
    needed = None
    if detect is not None:
        try:
            needed = seeds_needed(detect, sd=sd, n_arms=k)
        except ValueError as error:
            raise UserError(f"--detect: {error}") from None
        words.append(f"a difference of {detect} needs {needed or 'more than 1000'} seeds per arm")
    return {"sd": sd, "source": source, "detectable": loss, "detect": detect, "seeds_needed": needed, "words": words}


def known_noise(e: "Experiment", results: Path) -> tuple[float | None, str]:
    """sd of the baseline's final loss over its finished runs, as its upper 80 % bound; None below two of them."""
    from statistics import stdev

    from harness.plan import read_plan
    from harness.records import read_result
    from reports.planning import upper_sd

    plan = read_plan(results, e.name) or {"runs": []}
    found = [read_result(results / "runs" / r["run_id"]) for r in plan["runs"] if r["arm"] == e.baseline.name]
    losses = [r["val_loss"] for r in found if r and r["status"] == "finished"]
    if len(losses) < 2:
        return None, ""
    return upper_sd(stdev(losses), len(losses)), f"upper 80 % bound from {len(losses)} runs"
