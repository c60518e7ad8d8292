"""An experiment: a question, a baseline, changes, a design; read from its file and resolved into arms.

experiment_file.py knows the file and its lines, experiment_keys.py every key beside the arms, changes.py and axes.py what is set,
arms.py the arms, designs.py which sets of changes become one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.config import plugins
from harness.errors import UserError
from harness.experiment.arms import Arm, Resolver, differences
from harness.experiment.axes import Axis, at_point
from harness.experiment.file import ExperimentFile, experiment_path
from harness.experiment.keys import (
    ESTIMANDS,
    PRIMARY,
    RETUNED_SEEDS_FROM,
    Phase,
    Role,
    SeedsRule,
    read_alters_noise,
    read_budgets,
    read_margin,
    read_name,
    read_phases,
    read_published,
    read_seeds,
    read_slope,
    read_target,
)
from harness.provenance.redact import redact

KEYS = (
    *(
        "name",
        "question",
        "base",
        "scale",
        "set",
        "changes",
        "design",
        "arms",
        "seeds",
        "budgets",
        "target",
        "primary",
    ),
    *(
        "margin",
        "confirm",
        "published",
        "plugins",
        "axes",
        "estimand",
        "gpu_only",
        "at_scale",
        "phases",
    ),
    *("alters_noise", "slope"),
)
MIN_POINTS = 3  # of a grid through which a quadratic goes


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    question: str
    base: str
    scale: str
    design: str
    arms: tuple[Arm, ...]  # the baseline first
    seeds: tuple[int, ...]
    seeds_rule: SeedsRule | None  # min, max, stop: seeds are added by whole blocks
    phases: Mapping[Role, Phase]  # role -> how its runs are made; the loss runs first
    budgets: tuple[int, ...]  # training steps; empty: each arm's own schedule.steps
    target: Mapping[str, Any] | None
    primary: str
    margin: float | None
    confirm: bool
    published: str | None
    estimand: str
    axes: tuple[Axis, ...]
    grid: "Experiment | None"  # retuned: the grid that comes first and decides at which rates these arms are measured
    rates: Mapping[
        str, Mapping[str, Any]
    ]  # retuned: arm -> axis, factor, at_edge, how; known when the grid is complete
    left_out: tuple[str, ...]  # what could not become an arm, in words
    alters_noise: tuple[str, ...]  # changes whose arms are not pooled with others
    slope: Mapping[str, Any] | None  # loss per step from elsewhere: per_step, se, source
    device: str
    path: Path

    @property
    def baseline(self) -> Arm:
        return self.arms[0]


def load_experiment(
    text: str, *, device: str, overrides: Mapping[str, Any] | None = None
) -> Experiment:
    """Read, check and resolve an experiment; raises UserError with file, key and near miss. overrides: --set key=value."""
    file = ExperimentFile(experiment_path(text), KEYS, overrides or {})
    for key in ("name", "base", "changes"):
        if key not in file.data and not (
            key == "changes" and file.data.get("design") == "explicit"
        ):
            raise UserError(
                f"{file.path}: the key '{key}' is missing; an experiment needs name, base and changes"
            )
    try:
        plugins.use([(file.path.parent / p) for p in file.items("plugins", str)])
    except UserError as error:
        raise file.fail(str(error), "plugins") from None
    resolver = Resolver(file, device)
    confirm = file.value("confirm", bool, False, "true or false")
    estimand = file.choice(
        "estimand", ESTIMANDS, "at-rate", "estimand '{value}' is not one of {known}"
    )
    seeds, rule = read_seeds(file, confirm=confirm)
    arms = resolver.arms(crossed=estimand == "at-rate")
    found = Experiment(
        name=read_name(file),
        question=redact(file.value("question", str, "", "text")),
        base=resolver.base,
        scale=resolver.scale_name,
        design=resolver.design,
        arms=arms,
        seeds=seeds,
        seeds_rule=rule,
        phases=read_phases(file),
        budgets=read_budgets(file, arms[0].config.schedule.steps),
        target=read_target(file),
        primary=file.choice(
            "primary", PRIMARY, "val_loss", "primary '{value}' is not one of {known}"
        ),
        margin=read_margin(file),
        confirm=confirm,
        published=read_published(file),
        estimand=estimand,
        axes=resolver.axes,
        grid=None,
        rates={},
        left_out=tuple(resolver.left_out),
        alters_noise=read_alters_noise(file),
        slope=read_slope(file),
        device=device,
        path=file.path,
    )
    return found if estimand == "at-rate" else _retuned(found, file, resolver)


def _retuned(e: Experiment, file: ExperimentFile, resolver: Resolver) -> Experiment:
    """The same arms twice: over the grid, at the experiment's longest budget, and then at their best rates on fresh seeds."""
    if len(e.axes) != 1 or not e.axes[0].relative or len(e.axes[0].points) < MIN_POINTS:
        raise file.fail(
            f"estimand retuned needs one axis of at least {MIN_POINTS} factors, e.g. optim.*_lr: [x0.5, x1, x2]",
            "estimand",
        )
    if not isinstance(file.data.get("seeds", 3), int):
        raise file.fail(
            "estimand retuned needs `seeds` to be a number: grid and measurement draw from ranges of their own",
            "seeds",
        )
    question = f"At which {e.axes[0].name} does each arm of {e.name} learn best?"
    grid = replace(
        e,
        name=f"{e.name}.grid",
        question=question,
        arms=resolver.arms(),
        budgets=tuple(sorted(e.budgets)[-1:]),
        target=None,
        estimand="at-rate",
        primary="val_loss",
        margin=None,
        confirm=False,
        published=None,
        phases={"loss": e.phases["loss"]},
    )
    return replace(e, grid=grid, seeds=tuple(s + RETUNED_SEEDS_FROM for s in e.seeds), axes=())


def at_rates(e: Experiment, rates: Mapping[str, Mapping[str, Any]]) -> Experiment:
    """A retuned experiment's second part: every arm at the `factor` of its rate, which was best for it."""
    assert e.grid is not None
    axis = e.grid.axes[0]

    def place(field: str) -> str:
        return f"{e.path}: at the best {axis.name}"

    configs = {
        a.name: at_point(a.config, (axis,), {axis.name: f"x{rates[a.name]['factor']:.6g}"}, place)
        for a in e.arms
    }
    base = configs[e.baseline.name]
    arms = [
        replace(a, config=configs[a.name], fields=differences(configs[a.name], base))
        for a in e.arms
    ]
    return replace(
        e,
        arms=tuple(arms),
        rates={name: {"axis": axis.name, **rate} for name, rate in rates.items()},
    )
