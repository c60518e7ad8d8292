"""The keys of an experiment beside its arms: how often, how long, to what end. Each is read and checked here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.config.presets import names
from harness.errors import UserError, near
from harness.experiment.file import ExperimentFile, factor_of

PRIMARY = ("val_loss", "time_to_target", "step_time")
ESTIMANDS = ("at-rate", "retuned")
MAX_SEEDS = 1000  # and the first seed of the next range: no two of them share a run
CONFIRM_SEEDS_FROM = MAX_SEEDS  # a confirmatory experiment draws from here on, so that no exploratory run can confirm itself
RETUNED_SEEDS_FROM = (
    2 * MAX_SEEDS
)  # after a grid the chosen rates are measured on these, or (confirming) on the range above
PHASE_KEYS = ("gpus_per_run", "seeds")
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
STOPS = {
    "decide": 1.0,
    "half_width": float("inf"),
}  # the rules, and what their number must be below
SeedsRule = Mapping[str, Any]  # min, max, stop
Role = Literal["loss", "timing"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """How the runs of one role are made. seeds: how many of the experiment's, None for all of them."""

    gpus_per_run: int = 1
    seeds: int | None = None


def check_name(name: str, where: str) -> str:
    """The name of an experiment, which is a folder of the results; raises UserError for what is no file name."""
    if not NAME.fullmatch(name) or len(name) > 100:
        raise UserError(
            f"{where} {name!r} must be a file name of letters, digits, '.', '_' and '-'"
        )
    return name


def read_name(file: ExperimentFile) -> str:
    return check_name(file.value("name", str, None, "text"), f"{file.where('name')}: name")


def read_margin(file: ExperimentFile) -> float | None:
    margin = file.value("margin", (int, float), None, "a positive number")
    if margin is not None and not 0 < margin < float("inf"):
        raise file.fail(
            f"margin is {margin}, but must be positive: the largest difference that does not matter",
            "margin",
        )
    return None if margin is None else float(margin)


def read_seeds(file: ExperimentFile, *, confirm: bool) -> tuple[tuple[int, ...], SeedsRule | None]:
    """The seeds to begin with, and the rule that adds more."""
    value, first = file.data.get("seeds", 3), CONFIRM_SEEDS_FROM if confirm else 0
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
        return tuple(range(first, first + value)), None
    if (
        isinstance(value, list)
        and value
        and all(isinstance(v, int) and 0 <= v < 2**31 for v in value)
        and len(set(value)) == len(value)
    ):
        if confirm and min(value) < CONFIRM_SEEDS_FROM:
            message = f"seeds {value} are those of exploratory runs: a confirmatory experiment draws from {CONFIRM_SEEDS_FROM} on"
            raise file.fail(message, "seeds")
        return tuple(value), None
    if isinstance(value, dict) and set(value) == {"min", "max", "stop"}:
        low, high, stop = value["min"], value["max"], value["stop"]
        numbers = isinstance(low, int) and isinstance(high, int) and 2 <= low <= high <= MAX_SEEDS
        if numbers and isinstance(stop, dict) and len(stop) == 1 and set(stop) <= set(STOPS):
            ((kind, limit),) = stop.items()
            if (
                isinstance(limit, bool)
                or not isinstance(limit, int | float)
                or not 0 < limit < STOPS[kind]
            ):
                must = (
                    "an error rate between 0 and 1"
                    if kind == "decide"
                    else "a positive half width, in the primary metric's unit"
                )
                raise file.fail(f"seeds: stop {kind} is {limit!r}, but must be {must}", "seeds")
            return tuple(range(first, first + low)), value
    raise file.fail(
        f"seeds is {value!r}, but must be a number from 1 to {MAX_SEEDS}, a list of different seeds, or "
        "{min: 3, max: 20, stop: {decide: 0.05}}",
        "seeds",
    )


def read_budgets(file: ExperimentFile, steps: int) -> tuple[int, ...]:
    """Training steps: whole numbers, or factors such as x0.9 on the baseline's own `steps`."""
    given = file.items("budgets", (int, str))
    budgets = tuple(round(steps * factor) if (factor := factor_of(b)) else b for b in given)
    if any(isinstance(b, str) or not 1 <= b <= 10**7 for b in budgets) or len(set(budgets)) != len(
        budgets
    ):
        raise file.fail(
            f"budgets {given} must be different numbers of training steps, or factors such as x0.9",
            "budgets",
        )
    return budgets


def read_phases(file: ExperimentFile) -> Mapping[Role, Phase]:
    """Role -> how its runs are made: losses packed one GPU each, times on the whole node. Loss runs alone where not given."""
    words = "a mapping such as {loss: {gpus_per_run: 1}, timing: {gpus_per_run: 8, seeds: 3}}"
    given = file.value("phases", dict, {"loss": {}}, words)
    for role, phase in given.items():
        if role not in ROLES:
            raise file.fail(
                f"phases: '{role}' is not one of {', '.join(ROLES)}{near(str(role), ROLES)}",
                "phases",
                str(role),
            )
        if not isinstance(phase, dict):
            raise file.fail(
                f"phases: {role} must be a mapping such as {{gpus_per_run: 8, seeds: 3}}",
                "phases",
                role,
            )
        for key, value in phase.items():
            if key not in PHASE_KEYS:
                raise file.fail(
                    f"phases: unknown key '{key}' of {role}{near(str(key), PHASE_KEYS)}",
                    "phases",
                    role,
                    str(key),
                )
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SEEDS:
                raise file.fail(
                    f"phases: {key} of {role} is {value!r}, but must be a whole number from 1 on",
                    "phases",
                    role,
                    key,
                )
    if "loss" not in given:
        raise file.fail(
            "phases: loss is missing: a time means nothing without the losses it buys", "phases"
        )
    return {role: Phase(**given[role]) for role in ROLES if role in given}


def read_target(file: ExperimentFile) -> Mapping[str, Any] | None:
    value = file.data.get("target")
    if value is None:
        return None
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("val_loss"), int | float)
        or set(value) - {"val_loss", "reason"}
    ):
        raise file.fail(
            f"target is {value!r}, but must be {{val_loss: 3.28}}, with its reason if you like",
            "target",
        )
    return {"val_loss": float(value["val_loss"]), "reason": value.get("reason")}


def read_alters_noise(file: ExperimentFile) -> tuple[str, ...]:
    """The changes whose arms have another noise than the rest: their variance is never pooled with that of others."""
    given = file.items("alters_noise", str)
    changes = file.data.get("changes") or {}
    for name in given:
        if name not in changes:
            raise file.fail(
                f"alters_noise: unknown change '{name}'{near(name, changes)}", "alters_noise"
            )
    return tuple(given)


def read_slope(file: ExperimentFile) -> Mapping[str, Any] | None:
    """Loss per step near the target, from elsewhere, with its standard error; used where one budget gives none."""
    value = file.data.get("slope")
    if value is None:
        return None
    keys = set(value) if isinstance(value, dict) else set()
    numbers = [value[k] for k in ("per_step", "se") if k in keys and type(value[k]) in (int, float)]
    if len(numbers) < 2 or keys - {"per_step", "se", "source"} or not numbers[0] > 0 <= numbers[1]:
        example = (
            "{per_step: 0.000145, se: 0.000008}: the loss that one step less costs, and its error"
        )
        raise file.fail(f"slope is {value!r}, but must be such as {example}", "slope")
    return {
        "per_step": float(numbers[0]),
        "se": float(numbers[1]),
        "source": str(value.get("source", "given")),
    }


def read_published(file: ExperimentFile) -> str | None:
    """The record whose published delta stands beside ours."""
    record = file.value("published", str, None, "the name of a record")
    if record is not None and record not in names("records"):
        raise file.fail(
            f"published is '{record}', which is no record{near(record, names('records'))}",
            "published",
        )
    return None if record is None else str(record)
