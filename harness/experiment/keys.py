"""The keys of an experiment beside its arms: how often, how long, to what end.

Each is read and checked here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.config.presets import names
from harness.data.config import DataConfig
from harness.errors import UserError, near
from harness.experiment.designs import CHAIN, DESIGNS
from harness.experiment.file import ExperimentFile
from harness.run.document import Content, Document
from harness.run.guarded import is_name
from harness.run.plan import PriorNoise, SeedsRule, Target
from harness.run.typed import is_number

FROM_BASELINE = "from baseline"  # a target that is not known beforehand
PRIMARY = ("val_loss", "time_to_target", "step_ms")
ESTIMANDS = ("at-rate", "retuned")
MAX_SEEDS = 1000  # and the first seed of the next range: no two of them share a run
# A confirmatory experiment draws from here on, so that no exploratory run can confirm itself.
CONFIRM_SEEDS_FROM = MAX_SEEDS
# After a grid the chosen rates are measured on these, or (confirming) on the range above.
RETUNED_SEEDS_FROM = 2 * MAX_SEEDS
MAX_BUDGET = 10**7  # training steps
PHASE_KEYS = ("gpus_per_run", "seeds")
SEED_STOPS = {  # the rules, what their number must be below, and what it must be in words
    "decide": (1.0, "an error rate between 0 and 1"),
    "half_width": (float("inf"), "a positive half width, in the primary metric's unit"),
}
Role = Literal["loss", "timing"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """How the runs of one role are made. seeds: how many of the experiment's, None for all."""

    gpus_per_run: int = 1
    seeds: int | None = None


MOST_PRIOR_DF = 4.0  # of noise that was seen elsewhere: more, and runs noisier than it fool it
# Designs whose own question is judged by the runs alone
UNMODERATED = ("ladder", "chain", "factorial", "shapley")


@dataclass(frozen=True, kw_only=True)
class GivenSlope:
    """What one step less costs near the target, known from elsewhere."""

    per_step: float  # loss
    se: float  # its standard error
    source: str


def is_whole(value: Any) -> bool:
    """Whether a value is an integer, which true and false are not here."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_name(name: str, where: str) -> str:
    """The name of an experiment, which is a folder of the results.

    Raises UserError, with `where` in front, for what is no file name.
    """
    if not is_name(name) or len(name) > 100:
        raise UserError(
            f"{where} {name!r} must be a file name of letters, digits, '.', '_' and '-'"
        )
    return name


def read_name(file: ExperimentFile) -> str:
    return check_name(file.value("name", str, None, "text"), f"{file.where('name')}: name")


def read_design(file: ExperimentFile) -> str:
    """`design`; raises UserError where `arms` lists some for one that makes its own."""
    design = file.choice("design", (*DESIGNS, "explicit"), "add-one", "design '{value}' is unknown")
    if "arms" in file.data and design not in ("explicit", CHAIN):
        raise file.fail(
            f"design {design} makes its own arms: say `design: explicit`, or leave `arms` out",
            "arms",
        )
    return design


def read_margin(file: ExperimentFile) -> float | None:
    margin = file.value("margin", (int, float), None, "a positive number")
    if margin is None:
        return None
    if not is_number(margin) or margin <= 0:
        raise file.fail(
            f"margin is {margin}, but must be positive: the largest difference that does not "
            "matter",
            "margin",
        )
    return float(margin)


def margin_is_of(file: ExperimentFile) -> str | None:
    """The corpus that the file's margin was chosen for, None unless --set makes it another."""
    measured_on, corpus = _corpora(file)
    chosen_here = corpus == measured_on or "margin" in file.given
    return None if chosen_here or file.data.get("margin") is None else measured_on


def read_seeds(file: ExperimentFile, *, confirm: bool) -> tuple[tuple[int, ...], SeedsRule | None]:
    """The seeds to begin with, and the rule that adds more."""
    value = file.data.get("seeds", 3)
    first = CONFIRM_SEEDS_FROM if confirm else 0
    if is_whole(value) and 1 <= value <= MAX_SEEDS:
        return tuple(range(first, first + value)), None
    if _is_list_of_seeds(value):
        if confirm and min(value) < CONFIRM_SEEDS_FROM:
            raise file.fail(
                f"seeds {value} are those of exploratory runs: a confirmatory experiment draws "
                f"from {CONFIRM_SEEDS_FROM} on",
                "seeds",
            )
        return tuple(value), None
    if isinstance(value, dict):
        rule = _seeds_rule(file, value)
        if rule is not None:
            return tuple(range(first, first + rule.least)), rule
    raise file.fail(
        f"seeds is {value!r}, but must be a number from 1 to {MAX_SEEDS}, a list of different "
        "seeds, or {min: 3, max: 20, stop: {decide: 0.05}}",
        "seeds",
    )


def _is_list_of_seeds(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    if not all(is_whole(seed) and 0 <= seed < 2**31 for seed in value):
        return False
    return len(set(value)) == len(value)


def _seeds_rule(file: ExperimentFile, value: Document) -> SeedsRule | None:
    """The rule of {min, max, stop}; None of what has not its form."""
    if set(value) != {"min", "max", "stop"}:
        return None
    low, high, stop = value["min"], value["max"], value["stop"]
    if not isinstance(low, int) or not isinstance(high, int) or not 2 <= low <= high <= MAX_SEEDS:
        return None
    if not isinstance(stop, dict) or len(stop) != 1 or not set(stop) <= set(SEED_STOPS):
        return None
    ((kind, limit),) = stop.items()
    below, must = SEED_STOPS[kind]
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < below:
        raise file.fail(f"seeds: stop {kind} is {limit!r}, but must be {must}", "seeds")
    return SeedsRule.from_mapping(value)


def read_phases(file: ExperimentFile) -> Mapping[Role, Phase]:
    """Role -> how its runs are made: losses packed one GPU each, times on the whole node.

    Loss runs alone where the file says nothing of it.
    """
    must_be = "a mapping such as {loss: {gpus_per_run: 1}, timing: {gpus_per_run: 8, seeds: 3}}"
    given = file.value("phases", dict, {"loss": {}}, must_be)
    for role, phase in given.items():
        _check_phase(file, role, phase)
    if "loss" not in given:
        raise file.fail(
            "phases: loss is missing: a time means nothing without the losses it buys", "phases"
        )
    return {role: Phase(**given[role]) for role in ROLES if role in given}


def _check_phase(file: ExperimentFile, role: Any, phase: Any) -> None:
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
        if not is_whole(value) or not 1 <= value <= MAX_SEEDS:
            raise file.fail(
                f"phases: {key} of {role} is {value!r}, but must be a whole number from 1 to "
                f"{MAX_SEEDS}",
                "phases",
                role,
                key,
            )


def read_target(file: ExperimentFile) -> Target | None:
    """The file's, or what the baseline is to set: where that is asked for, or on another corpus."""
    value = file.data.get("target")
    if value is None:
        return None
    if value == FROM_BASELINE:
        return _from_baseline("as the experiment asks")
    sound = (
        isinstance(value, dict)
        and is_number(value.get("val_loss"))
        and isinstance(value.get("reason"), str | None)
    )
    if not sound or set(value) - {"val_loss", "reason"}:
        raise file.fail(
            f"target is {value!r}, but must be {{val_loss: 3.28}}, with its reason if you like, or "
            f"'{FROM_BASELINE}'",
            "target",
        )
    measured_on, corpus = _corpora(file)
    if corpus != measured_on and "target" not in file.given:
        return _from_baseline(f"as {value['val_loss']:g} was measured on {measured_on}")
    return Target(val_loss=value["val_loss"], reason=value.get("reason"))


def _corpora(file: ExperimentFile) -> tuple[str, str]:
    """(the corpus that the file speaks of, the one that --set makes it)."""
    fixed, field = file.data.get("set"), "data.corpus"
    in_set = fixed.get(field) if isinstance(fixed, dict) else None
    of_file = str(in_set or DataConfig().corpus)
    return of_file, str(file.overrides.get(field, of_file))


def _from_baseline(why: str) -> Target:
    """What is declared before any run of a target that is not known yet."""
    reason = (
        f"set by the baseline's first block, {why}: midway between its final losses at the "
        "shortest and the longest budget; that block takes no part in times to target"
    )
    return Target(val_loss=None, reason=reason, from_baseline=True)


def target_content(target: Target | None) -> Content | None:
    """A target as a lock holds it: with its reason, given or not."""
    if target is None:
        return None
    content: Content = {"val_loss": target.val_loss, "reason": target.reason}
    if target.from_baseline:  # plans without it stay what they were
        content["from_baseline"] = True
    return content


def read_alters_noise(file: ExperimentFile) -> tuple[str, ...]:
    """The changes whose arms have another noise: their variance is never pooled with others'."""
    given = file.items("alters_noise", str)
    changes = file.data.get("changes") or {}
    for name in given:
        if name not in changes:
            raise file.fail(
                f"alters_noise: unknown change '{name}'{near(name, changes)}", "alters_noise"
            )
    return tuple(given)


def read_slope(file: ExperimentFile) -> GivenSlope | None:
    """Loss per step near the target, from elsewhere; used where one budget gives none."""
    value = file.data.get("slope")
    if value is None:
        return None
    if not _is_slope(value):
        example = (
            "{per_step: 0.000145, se: 0.000008}: the loss that one step less costs, and its error"
        )
        raise file.fail(f"slope is {value!r}, but must be such as {example}", "slope")
    return GivenSlope(
        per_step=float(value["per_step"]),
        se=float(value["se"]),
        source=str(value.get("source", "given")),
    )


def _is_slope(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) - {"per_step", "se", "source"}:
        return False
    for key in ("per_step", "se"):
        if not is_number(value.get(key)):
            return False
    return bool(value["per_step"] > 0 <= value["se"])


def read_prior_noise(
    file: ExperimentFile, rule: SeedsRule | None, design: str, *, crossed: bool
) -> PriorNoise | None:
    """One run's noise as other runs of the same era and scale have it; at most MOST_PRIOR_DF.

    crossed: whether axes cross the arms.
    """
    value = file.data.get("prior_noise")
    if value is None:
        return None
    if not _is_prior_noise(value):
        example = "{sd: 0.0018, df: 4, source: where it was seen}, with 1 to 4 df"
        raise file.fail(f"prior_noise is {value!r}, but must be such as {example}", "prior_noise")
    if rule is not None:
        raise file.fail(
            "prior_noise has no place beside a rule for seeds: sequences use none; "
            "give a number of seeds, or leave it out",
            "prior_noise",
        )
    if crossed or design in UNMODERATED:
        beside = "axes" if crossed else f"design {design}"
        raise file.fail(
            f"prior_noise has no place beside {beside}: what that is about is judged by the runs "
            "alone; choose add-one, leave-one-out or explicit arms without axes, or leave it out",
            "prior_noise",
        )
    df = float(value.get("df", MOST_PRIOR_DF))
    return PriorNoise(sd=float(value["sd"]), df=df, source=value["source"])


def _is_prior_noise(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) - {"sd", "df", "source"}:
        return False
    df = value.get("df", MOST_PRIOR_DF)
    numbers = is_number(value.get("sd")) and is_number(df)
    if not numbers or not isinstance(value.get("source"), str):
        return False
    return bool(value["sd"] > 0 and 1 <= df <= MOST_PRIOR_DF)


def read_published(file: ExperimentFile) -> str | None:
    """The record whose published delta stands beside ours."""
    record = file.value("published", str, None, "the name of a record")
    if record is None:
        return None
    if record not in names("records"):
        raise file.fail(
            f"published is '{record}', which is no record{near(record, names('records'))}",
            "published",
        )
    return str(record)
