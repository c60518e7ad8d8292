"""One small experiment of every kind that a page can show, from synthetic runs: what pages are drawn of in tests.

Few runs and few points, so that a page is drawn in a tenth of a second.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.inputs.published_experiments import published_experiment
from tests.proof.surface import drawn_points
from tests.report_arms import FACTORIAL, HOSTILE, LADDER, Arm, many_arms
from tests.report_fixtures import write_experiment

AXES = ("optim.muon_lr", "optim.adam_lr")
RATES, DECAYS = ("x0.5", "x1", "x2"), ("x1", "x2")
BATCHES = (  # a step of half the tokens takes little more than half the time
    LADDER[0],
    Arm(
        name="half",
        loss_effect=0.01,
        step_factor=0.53,
        token_factor=0.5,
        changes=("half",),
        fields=(("plugin.arm", "half"),),
    ),
    Arm(
        name="grows",
        loss_effect=-0.02,
        token_factor=1.25,
        changes=("grows",),
        fields=(("plugin.arm", "grows"),),
    ),
)
LEFT_OUT = tuple(arm for arm in FACTORIAL if len(arm.changes) in (0, 2, 3))


def written(folder: Path, **facts: Any) -> Experiment:
    write_experiment(folder, **{"n_points": 4, "n_seeds": 3, **facts})
    return load("split", folder)


def edited(folder: Path, change: Callable[[dict], dict], **facts: Any) -> Experiment:
    """With its plan changed by hand."""
    write_experiment(folder, **{"n_points": 4, "n_seeds": 3, **facts})
    path = folder / "experiments" / "split" / "experiment.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return load("split", folder)


def outside_blocks(plan: dict) -> dict:
    return {**plan, "runs": [{**run, "block": None} for run in plan["runs"]]}


def noisy(plan: dict) -> dict:
    arms = [{**arm, "alters_noise": i in (1, 2)} for i, arm in enumerate(plan["arms"])]
    return {**plan, "arms": arms}


def on_axes(
    folder: Path,
    places: Mapping[str, Mapping[tuple[str, str], float]],
    outcome: Mapping[tuple[str, int], str] | None = None,
    **facts: Any,
) -> Experiment:
    """places: of every arm of the design, (value on the first axis, on the second) -> its effect.

    outcome: of runs that did not finish. facts: of the plan."""
    arms, placed = [], {}
    for of, effects in places.items():
        for words, effect in effects.items():
            is_centre = words == ("x1", "x1")
            name = of if is_centre else f"{of} @ muon_lr {words[0]}, adam_lr {words[1]}"
            arms.append(Arm(name=name, loss_effect=effect, fields=(("plugin.arm", name),)))
            placed[name] = {"of": of, "point": dict(zip(AXES, words, strict=True))}
    first = next(iter(places))
    arms.sort(key=lambda arm: arm.name != first)
    how = {"n_points": 3, "design": "add-one", "target": None, "sd": 1e-3, "outcome": outcome}
    made = written(folder, arms=arms, **how)
    of_plan = tuple(replace(arm, **placed[arm.name]) for arm in made.plan.arms)
    return replace(made, plan=replace(made.plan, arms=of_plan, **facts))


def grid(folder: Path, outcome: Mapping[tuple[str, int], str] | None = None) -> Experiment:
    """Two arms on three values by two, lowest inside for one and beyond for the other."""
    octave = {"x0.5": -1.0, "x1": 0.0, "x2": 1.0}
    places = {}
    for of, at in (("base", 0.3), ("a", -2.5)):
        effects = {}
        for rate, decay in itertools.product(RATES, DECAYS):
            effects[rate, decay] = 0.05 * (octave[rate] - at) ** 2 + 0.02 * octave[decay]
        places[of] = effects
    return on_axes(folder, places, outcome, axes={AXES[0]: [*RATES], AXES[1]: [*DECAYS]})


HOLES = {  # of a grid: a point that diverged, one of which nothing is known, one with a hole
    **{("a @ muon_lr x2, adam_lr x2", seed): "diverged" for seed in range(3)},
    **{("a @ muon_lr x0.5, adam_lr x1", seed): "pending" for seed in range(3)},
    ("base @ muon_lr x2, adam_lr x1", 1): "diverged",
}


def points(folder: Path, outcome: Mapping[tuple[str, int], str] | None = None) -> Experiment:
    """An arm at points drawn along two axes, its losses a bowl."""
    effects = {("x1", "x1"): 0.05}
    for across, up in drawn_points(8):
        words = f"x{4**across:.3g}", f"x{4**up:.3g}"
        x, y = across - 0.3, up + 0.2
        effects[words] = 0.1 * x**2 + 0.06 * y**2 + 0.05 * x * y
    axes = {axis: ["x0.25", "x4"] for axis in AXES}
    drawn = {"axes": axes, "draw": {"sobol": 8, "seed": 0}}
    return on_axes(folder, {"base": effects}, outcome, **drawn)


KINDS: Mapping[str, Callable[[Path], Experiment]] = {
    "ladder": lambda folder: written(
        folder,
        n_seeds=4,
        n_nodes=2,
        outcome={("r07", 3): "diverged", ("r08", 3): "failed", ("untied_head", 3): "oom"},
        stale=[("untied_head", 0)],
        published="r08",
    ),
    "budgets": lambda folder: written(
        folder, arms=LADDER[:3], budgets=(200, 300, 400), target=1.57, single_steps=False
    ),
    "tokens": lambda folder: written(
        folder, arms=BATCHES, budgets=(200, 300, 400), target=1.57, single_steps=False
    ),
    "rungs": lambda folder: written(
        folder, arms=LADDER[:4], n_seeds=4, n_points=3, single_steps=False, target=None
    ),
    "factorial": lambda folder: written(
        folder, arms=FACTORIAL, design="factorial", sd=1e-3, target=None
    ),
    "left_out": lambda folder: written(
        folder, arms=LEFT_OUT, design="leave-one-out", sd=1e-3, single_steps=False
    ),
    "watched": lambda folder: written(
        folder,
        arms=LADDER[:2],
        n_seeds=9,
        outcome={("untied_head", 8): "pending"},
        design="add-one",
    ),
    "one_run": lambda folder: written(folder, arms=LADDER[:3], n_seeds=1, design="add-one"),
    "loose": lambda folder: edited(folder, outside_blocks, arms=LADDER[:3], design="add-one"),
    "noisy": lambda folder: edited(
        folder, noisy, arms=LADDER[:4], n_seeds=5, design="add-one", sd=0.01
    ),
    "confirmed": lambda folder: edited(
        folder,
        lambda plan: {**plan, "primary": "step_ms", "margin": 0.5},
        arms=LADDER[:2],
        n_seeds=6,
        confirm=True,
        design="add-one",
    ),
    "many": lambda folder: written(
        folder, arms=many_arms(10), n_seeds=2, design="add-one", n_points=3, single_steps=False
    ),
    "grid": grid,
    "points": points,
    "holes": lambda folder: grid(folder, HOLES),
    "unfinished": lambda folder: written(
        folder,
        arms=LADDER[:3],
        n_seeds=1,
        outcome={("r07", 0): "pending", ("untied_head", 0): "failed"}
        | {("untied_head + embed_norm", 0): "diverged"},
    ),
    "hostile": lambda folder: written(folder, arms=HOSTILE, design="add-one", n_seeds=2),
    "crowd": lambda folder: written(
        folder, arms=many_arms(16), n_seeds=2, n_points=3, design="add-one", n_nodes=2
    ),
    "evidence": lambda folder: published_experiment("r09_ladder"),
    "records": lambda folder: published_experiment("ladder"),
    "optimizers": lambda folder: published_experiment("optimizers_on_r07"),
}
