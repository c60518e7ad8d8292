"""What an experiment will cost and can detect, before anything is spent."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.foreign import print_foreign_plan
from harness.cli.lookup import current_part, read_experiment, read_foreign, refuse_for_foreign
from harness.cli.options import RESULTS, Json, Results, Seeds, Set
from harness.cli.table import print_json, print_table
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.run.spec import PlannedRun


@app.command()
def plan(
    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXP...", help="as for run; several, or a folder such as deltas, make one table"
        ),
    ],
    seeds: Seeds = None,
    settings: Set = None,
    results: Results = RESULTS,
    detect: Annotated[
        float | None,
        typer.Option(
            help="the smallest difference in loss worth knowing: how many seeds does it need?"
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(
            help="of a GPU-hour, in any currency (on a CPU: of an hour of one slot)", min=0.0
        ),
    ] = None,
    gpus_per_run: Annotated[int | None, typer.Option("--gpus-per-run", min=1)] = None,
    json: Json = False,
) -> None:
    """Arms, runs, what is done, what can be detected, what it costs."""
    from harness.experiment.file import in_folder
    from harness.experiment.plan import plan_runs

    named = [name for text in experiments for name in in_folder(text)]
    for name in named:
        if (foreign := read_foreign(name, results, settings, seeds, gpus_per_run)) is None:
            continue
        if len(named) > 1:
            raise UserError(
                f"{name} runs other trainers' scripts: plan it by itself, ablate plan {name}"
            )
        refuse_for_foreign({"--detect": detect is not None}, "leave it out")
        print_foreign_plan(foreign, results, price=price, json=json)
        return
    parts = [
        current_part(read_experiment(name, settings, seeds), results, world_size=gpus_per_run)
        for name in named
    ]
    plans = [(part, plan_runs(part, world_size=gpus_per_run, need_data=False)) for part in parts]
    if len(plans) == 1:
        print_plan(*plans[0], results, detect=detect, price=price, json=json)
    else:
        print_overview(
            [plan_facts(*p, results, detect=detect, price=price) for p in plans], json=json
        )


def plan_facts(
    e: "Experiment",
    planned: "list[PlannedRun]",
    results: Path,
    *,
    detect: float | None = None,
    price: float | None = None,
) -> dict[str, Any]:
    """What `plan --json` prints of an experiment."""
    from harness.cli.power import known_of, power_of, price_of
    from harness.experiment.cost import estimate
    from harness.run.results import read_result
    from harness.store.plans import read_plan, stale_runs, up_to_date

    known_plan = read_plan(results, e.name)
    stale, why = stale_runs(results, up_to_date(results, known_plan)) if known_plan else ((), "")
    done = {
        p.spec.run_id for p in planned if read_result(results / "runs" / p.spec.run_id) is not None
    }
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
    known = known_of(e, results)
    cost = price_of(e, planned, done, estimate(planned, done, results), known, price)
    power = power_of(e, planned, cost, known, detect)
    return {
        "name": e.name,
        "question": e.question,
        "arms": arms,
        "runs": len(planned),
        "done": len(done),
        "stale": f"{len(stale)} {why}" if stale else None,
        "seeds": list(e.seeds),
        "left_out": list(e.left_out),
        "follows": f"then every arm at its best {e.axes[0].name}"
        if e.name.endswith(".grid")
        else None,
        "cost": cost,
        "power": power,
    }


def print_overview(plans: list[dict[str, Any]], *, json: bool) -> None:
    """Several experiments as one table."""
    if json:
        print_json(plans)
        return
    rows = [
        {
            **p,
            "arms": len(p["arms"]),
            "seeds": len(p["seeds"]),
            "hours": hours_of(p),
            "detectable": p["power"]["detectable"],
        }
        for p in plans
    ]
    print_table(rows, ["name", "arms", "seeds", "runs", "done", "hours", "detectable", "question"])
    print(
        f"{len(plans)} experiments, {sum(p['runs'] for p in plans)} runs, {sum(p['done'] for p in plans)} done"
    )


def hours_of(plan: dict[str, Any]) -> float | None:
    hours = plan["cost"]["hours"]
    return None if hours is None else round(hours, 1)


def print_plan(
    e: "Experiment",
    planned: "list[PlannedRun]",
    results: Path,
    *,
    detect: float | None = None,
    price: float | None = None,
    json: bool = False,
) -> None:
    from harness.experiment.plan import NO_DATA

    facts = plan_facts(e, planned, results, detect=detect, price=price)
    if json:
        print_json(facts)
        return
    cost, power = facts["cost"], facts["power"]
    print(
        f"{e.name}: {e.question}\n{len(planned)} runs of {len(e.arms)} arms at {len(e.seeds)} seeds, {facts['done']} done"
    )
    if facts["stale"]:
        print(facts["stale"])
    print_table(facts["arms"], ["arm", "runs", "done", "steps", "changes"])
    for note in dict.fromkeys(s for a in e.arms for s in a.substituted):
        print(f"substituted on this machine: {note}")
    for note in e.left_out:
        print(f"left out: {note}")
    if facts["follows"]:
        print(f"a grid of rates; when it is complete, {facts['follows']} on fresh seeds")
    if any(p.spec.data_fingerprint == NO_DATA for p in planned):
        print(
            f"not prepared yet: corpus {e.baseline.config.data.corpus}; run `ablate data prepare {e.baseline.config.data.corpus}`"
        )
    print(cost["words"])
    for line in power["words"]:
        print(line)
