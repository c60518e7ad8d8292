"""An experiment: a question, a baseline, changes, a design; read from its file, resolved into arms.

file.py knows the file and its lines, keys.py every key beside the arms, changes.py and axes.py
what is set, arms.py the arms, designs.py which sets of changes become one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config import plugins
from harness.errors import UserError
from harness.experiment.arms import Arm, Resolver, differences
from harness.experiment.axes import Axis, at_point, read_axes
from harness.experiment.branch import read_branch_at
from harness.experiment.budgets import is_told_in_tokens, read_lengths, steps_differ
from harness.experiment.changes import read_changes, read_fixed
from harness.experiment.configs import read_base, read_scale
from harness.experiment.draws import Draw
from harness.experiment.file import ExperimentFile, experiment_path
from harness.experiment.halving import read_halving
from harness.experiment.keys import (
    ESTIMANDS,
    PRIMARY,
    RETUNED_SEEDS_FROM,
    GivenSlope,
    Phase,
    Role,
    margin_is_of,
    read_alters_noise,
    read_margin,
    read_name,
    read_phases,
    read_prior_noise,
    read_published,
    read_seeds,
    read_slope,
    read_target,
)
from harness.provenance.redact import redact
from harness.provenance.source import refuse_secrets_in
from harness.run.document import Document, Fields
from harness.run.halving import GRID, Halving
from harness.run.plan import PriorNoise, SeedsRule, Target

KEYS = (
    "name",
    "question",
    "base",
    "scale",
    "set",
    "changes",
    "design",
    "arms",
    "parents",
    "seeds",
    "budgets",
    "target",
    "primary",
    "margin",
    "confirm",
    "published",
    "plugins",
    "axes",
    "draw",
    "halving",
    "estimand",
    "gpu_only",
    "at_scale",
    "phases",
    "alters_noise",
    "slope",
    "prior_noise",
    "branch_at",
)
MIN_POINTS = 3  # of a grid through which a quadratic goes


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    question: str
    base: str
    scale: str
    scale_rates: str | None  # where the scale's learning rates are from
    departures: Fields  # what the record has at this scale, where `set` makes it something else
    design: str
    arms: tuple[Arm, ...]  # the baseline first
    parents: Mapping[str, str]  # of a chain: arm -> the arm it is held against
    seeds: tuple[int, ...]
    seeds_rule: SeedsRule | None  # seeds are added by whole blocks
    phases: Mapping[Role, Phase]  # role -> how its runs are made; the loss runs first
    budgets: tuple[int, ...]  # training steps; empty: each arm's own schedule.steps
    budgets_in_tokens: bool  # as the file tells them
    target: Target | None
    primary: str
    margin: float | None
    margin_of: str | None  # the corpus that it was chosen for, where this is another one
    confirm: bool
    published: str | None
    estimand: str
    axes: tuple[Axis, ...]
    draw: Draw | None  # points between the axes' ends, instead of all combinations
    halving: Halving | None  # the points go on from budget to budget, these as far as its rung
    grid: "Experiment | None"  # what comes first and decides the rates of these arms, or these arms
    # retuned: arm -> axis, factor, at_edge, how; known when the grid is complete
    rates: Mapping[str, Document]
    left_out: tuple[str, ...]  # what could not become an arm, in words
    alters_noise: tuple[str, ...]  # changes whose arms are not pooled with others
    slope: GivenSlope | None
    prior_noise: PriorNoise | None
    branch_at: int | None  # the update before which all arms are one trunk
    device: str
    path: Path

    @property
    def baseline(self) -> Arm:
        return self.arms[0]

    @property
    def longest(self) -> int:
        """Steps of the longest budget, of the baseline's schedule where there is none."""
        return max(self.budgets, default=self.baseline.config.schedule.steps)

    @property
    def tells_tokens(self) -> bool:
        """Whether lengths are told in tokens too: as the file does, or as no step is a unit."""
        return self.budgets_in_tokens or steps_differ(self.arms, self.longest)


def load_experiment(text: str, *, device: str, overrides: Fields | None = None) -> Experiment:
    """Read, check and resolve an experiment; raises UserError with file, key and near miss.

    text: its path or name. overrides: --set key=value.
    """
    file = ExperimentFile(experiment_path(text), KEYS, overrides or {})
    plugged = [(file.path.parent / path) for path in file.items("plugins", str)]
    try:
        refuse_secrets_in(plugged)
        plugins.use(plugged)
    except UserError as error:
        raise file.fail(str(error), "plugins") from None
    _refuse_mistakes(file)
    resolver = Resolver(file, device)
    confirm = file.value("confirm", bool, False, "true or false")
    estimand = read_choice(file, "estimand", ESTIMANDS)
    seeds, rule = read_seeds(file, confirm=confirm)
    arms, budgets = read_lengths(file, resolver.arms(crossed=estimand == "at-rate"))
    crossed = bool(resolver.axes) and estimand == "at-rate"
    experiment = Experiment(
        name=read_name(file),
        question=redact(file.value("question", str, "", "text")),
        base=resolver.configs.base,
        scale=resolver.configs.scale_name,
        scale_rates=resolver.configs.scale.era.rates,
        departures=resolver.configs.departures(),
        design=resolver.design,
        arms=arms,
        parents=resolver.parents(arms),
        seeds=seeds,
        seeds_rule=rule,
        phases=read_phases(file),
        budgets=budgets,
        budgets_in_tokens=is_told_in_tokens(file),
        target=read_target(file),
        primary=read_choice(file, "primary", PRIMARY),
        margin=read_margin(file),
        margin_of=margin_is_of(file),
        confirm=confirm,
        published=read_published(file),
        estimand=estimand,
        axes=resolver.axes,
        draw=resolver.draw,
        halving=read_halving(file, arms, budgets, seeds),
        grid=None,
        rates={},
        left_out=tuple(resolver.left_out),
        alters_noise=read_alters_noise(file),
        slope=read_slope(file),
        prior_noise=read_prior_noise(file, rule, resolver.design, crossed=crossed),
        branch_at=read_branch_at(file, arms),
        device=device,
        path=file.path,
    )
    if estimand == "at-rate":
        return experiment
    return _retuned(experiment, file, resolver)


READERS: Mapping[str, Callable[[ExperimentFile], object]] = {  # of keys that stand by themselves
    "name": read_name,
    "base": read_base,
    "scale": read_scale,
    "set": read_fixed,
    "changes": read_changes,
    "axes": read_axes,
    "target": read_target,
    "margin": read_margin,
    "published": read_published,
    "alters_noise": read_alters_noise,
    "slope": read_slope,
    "phases": read_phases,
    "seeds": lambda file: read_seeds(file, confirm=file.data.get("confirm") is True),
    "budgets": lambda file: file.items("budgets", (int, str)),
    "primary": lambda file: read_choice(file, "primary", PRIMARY),
    "estimand": lambda file: read_choice(file, "estimand", ESTIMANDS),
}


def _refuse_mistakes(file: ExperimentFile) -> None:
    """Raises UserError with all that is wrong with single keys, a line each."""
    needed = ["name", "base"]
    if file.data.get("design") != "explicit" and not file.data.get("axes"):
        needed.append("axes" if "halving" in file.data else "changes")
    for key in needed:
        if key not in file.data:
            with file.mistakes.gathered():
                raise UserError(
                    f"{file.path}: the key '{key}' is missing; "
                    "an experiment needs name, base, and changes or axes"
                )
    for key, read in READERS.items():
        if key in file.data or (key == "set" and file.overrides):
            with file.mistakes.gathered():
                read(file)
    file.mistakes.refuse()


def read_choice(file: ExperimentFile, key: str, choices: Sequence[str]) -> str:
    """One of the choices, the first where the file says nothing."""
    return file.choice(key, choices, choices[0], f"{key} '{{value}}' is not one of {{choices}}")


def _retuned(e: Experiment, file: ExperimentFile, resolver: Resolver) -> Experiment:
    """The same arms twice: over a grid, and then at their best rates on fresh seeds.

    The grid is run at the experiment's longest budget.
    """
    if len(e.axes) != 1 or not e.axes[0].relative or len(e.axes[0].points) < MIN_POINTS:
        raise file.fail(
            f"estimand retuned needs one axis of at least {MIN_POINTS} factors, "
            "e.g. optim.*_lr: [x0.5, x1, x2]",
            "estimand",
        )
    if not resolver.changes:
        raise file.fail(
            "estimand retuned compares changes, each at its best rate, and there are none: leave "
            "it out, and the grid tells where the baseline's loss is lowest",
            "estimand",
        )
    if not isinstance(file.data.get("seeds", 3), int):
        raise file.fail(
            "estimand retuned needs `seeds` to be a number: grid and measurement draw from "
            "ranges of their own",
            "seeds",
        )
    points, _ = read_lengths(file, resolver.arms())
    steps = {arm.name: arm.config.schedule.steps for arm in e.arms}
    if any(point.config.schedule.steps != steps[point.of] for point in points):
        raise file.fail(
            f"budgets in tokens are other steps along {e.axes[0].name}: give steps", "budgets"
        )
    longest = sorted(e.budgets)[-1:]
    grid = replace(
        e,
        name=f"{e.name}{GRID}",
        question=f"At which {e.axes[0].name} does each arm of {e.name} learn best?",
        arms=points,
        budgets=tuple(longest),
        target=None,
        estimand="at-rate",
        primary="val_loss",
        margin=None,
        margin_of=None,
        confirm=False,
        published=None,
        prior_noise=None,
        phases={"loss": e.phases["loss"]},
    )
    fresh = tuple(seed + RETUNED_SEEDS_FROM for seed in e.seeds)
    return replace(e, grid=grid, seeds=fresh, axes=())


def at_rates(e: Experiment, rates: Mapping[str, Document]) -> Experiment:
    """A retuned experiment's second part: every arm at its rate.

    rates: arm -> `factor`, which was best for it, and what else is known of it.
    """
    assert e.grid is not None
    axis = e.grid.axes[0]

    def place(field: str) -> str:
        return f"{e.path}: at the best {axis.name}"

    configs = {}
    for arm in e.arms:
        point = {axis.name: f"x{rates[arm.name]['factor']:.6g}"}
        configs[arm.name] = at_point(arm.config, (axis,), point, place)
    base = configs[e.baseline.name]
    arms = []
    for arm in e.arms:
        config = configs[arm.name]
        arms.append(replace(arm, config=config, fields=differences(config, base)))
    named = {arm: {"axis": axis.name, **rate} for arm, rate in rates.items()}
    return replace(e, arms=tuple(arms), rates=named)
