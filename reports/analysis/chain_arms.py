"""An experiment's arms as a chain: what each is held against, and its runs as figures."""

from collections.abc import Mapping

from harness.run.plan import Plan
from reports.analysis import samples
from reports.analysis.machines import environment_of, known_values
from reports.inputs.experiment import Experiment
from reports.inputs.history import ArmFigures, Link


def chain_links(plan: Plan, parents: Mapping[str, str] | None = None) -> list[Link]:
    """Every arm against its predecessor in the plan, or against the parent that is named.

    Raises ValueError for an arm that the plan does not know."""
    arms = samples.arms_in_order(plan)
    for name in {**(parents or {}), **dict.fromkeys((parents or {}).values())}:
        if name and name not in arms:
            raise ValueError(f"'{name}' is none of the arms: {', '.join(arms)}")
    links = []
    before = ""
    for number, arm in enumerate(arms):
        parent = (parents or {}).get(arm, before)
        link = Link(
            track=plan.name,
            record=str(number),
            date="",
            published=None,
            published_delta=None,
            arm=arm,
            parent=parent,
        )
        links.append(link)
        before = arm
    return links


def figures_of_experiment(experiment: Experiment) -> dict[str, ArmFigures]:
    """The usable runs of every arm at its own steps; an arm of which none ended is absent."""
    use = samples.usable(experiment)
    losses = samples.at_budget(samples.of_role(use.runs, "loss"), None)
    times = samples.at_budget(samples.of_role(use.runs, "timing"), None)
    figures = {}
    for arm in use.arms:
        of_arm = samples.sample(losses, arm, "val_loss")
        if not len(of_arm.values) + of_arm.n_diverged:
            continue
        steps = losses.loc[losses["arm"] == arm, "steps"].dropna()
        figures[arm] = ArmFigures(
            name=arm,
            track=experiment.name,
            date="",
            steps=int(steps.max()),
            losses=of_arm.values,
            n_diverged=of_arm.n_diverged,
            log_times=samples.sample(times, arm, "train_time_s").values,
            log_step_ms=samples.sample(times, arm, "step_ms").values,
            gpu="/".join(known_values(times, arm, "gpu")),
            n_gpus=_n_gpus(known_values(times, arm, "n_gpus")),
            environment=environment_of(times, arm),
        )
    return figures


def _n_gpus(counts: tuple[str, ...]) -> int:
    """0 where it is unknown, or not one number."""
    return int(float(counts[0])) if len(counts) == 1 else 0
