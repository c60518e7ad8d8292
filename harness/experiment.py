"""An experiment: a question, a baseline, changes, a design; read from its file and resolved into arms.

experiment_file.py knows the file and its lines, experiment_keys.py every key beside the arms, arms.py the arms, designs.py
which sets of changes become one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import plugins
from harness.arms import Arm, Resolver
from harness.errors import UserError
from harness.experiment_file import ExperimentFile, experiment_path
from harness.experiment_keys import (
    NAME,
    PRIMARY,
    SeedsRule,
    read_budgets,
    read_margin,
    read_name,
    read_published,
    read_seeds,
    read_target,
)

KEYS = (
    *("name", "question", "base", "scale", "set", "changes", "design", "arms", "seeds", "budgets", "target", "primary"),
    *("margin", "confirm", "published", "plugins"),
)


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
    budgets: tuple[int, ...]  # training steps; empty: each arm's own schedule.steps
    target: Mapping[str, Any] | None
    primary: str
    margin: float | None
    confirm: bool
    published: str | None
    device: str
    path: Path

    @property
    def baseline(self) -> Arm:
        return self.arms[0]


def load_experiment(text: str, *, device: str, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read, check and resolve an experiment; raises UserError with file, key and near miss. overrides: --set key=value."""
    file = ExperimentFile(experiment_path(text), KEYS, overrides or {})
    for key in ("name", "base", "changes"):
        if key not in file.data and not (key == "changes" and file.data.get("design") == "explicit"):
            raise UserError(f"{file.path}: the key '{key}' is missing; an experiment needs name, base and changes")
    try:
        plugins.use([(file.path.parent / p) for p in file.items("plugins", str)])
    except UserError as error:
        raise file.fail(str(error), "plugins") from None
    confirm = file.value("confirm", bool, False, "true or false")
    name, margin, budgets, target = read_name(file), read_margin(file), read_budgets(file), read_target(file)
    primary = file.choice("primary", PRIMARY, "val_loss", "primary '{value}' is not one of {known}")
    seeds, rule = read_seeds(file, confirm=confirm)
    resolver = Resolver(file, device)
    return Experiment(
        name=name,
        question=file.value("question", str, "", "text"),
        base=resolver.base,
        scale=resolver.scale_name,
        design=resolver.design,
        arms=resolver.arms(),
        seeds=seeds,
        seeds_rule=rule,
        budgets=budgets,
        target=target,
        primary=primary,
        margin=margin,
        confirm=confirm,
        published=read_published(file),
        device=device,
        path=file.path,
    )


__all__ = ["KEYS", "NAME", "PRIMARY", "Arm", "Experiment", "experiment_path", "load_experiment"]
