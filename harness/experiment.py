"""An experiment file: a question, a baseline, changes, a design; resolved into arms with full configurations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import plugins
from harness.config import RunConfig, flat
from harness.designs import BASELINE, DESIGNS, LIMITS, Changes, labels
from harness.errors import UserError
from harness.presets import (
    Values,
    check_names,
    find,
    frozen,
    load_preset,
    load_scale,
    names,
    near,
    preset_values,
    to_config,
    with_budget,
)
from harness.validate import check_config, check_requirements, check_values, for_device
from harness.yamlfile import YamlFile

PRIMARY = ("val_loss", "time_to_target", "step_time")
CONFIRM_SEEDS_FROM = 1000  # a confirmatory experiment draws from here on, so that no exploratory run can confirm itself
MAX_SEEDS = 10_000
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
KEYS = (
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
    "margin",
    "confirm",
    "published",
    "plugins",
)


@dataclass(frozen=True, kw_only=True)
class Arm:
    name: str
    changes: Changes
    config: RunConfig
    fields: Mapping[str, Any]  # what differs from the baseline: dotted field -> value
    substituted: tuple[str, ...]  # what this device replaces, in words


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    question: str
    base: str
    scale: str
    design: str
    arms: tuple[Arm, ...]  # the baseline first
    seeds: tuple[int, ...]
    seeds_rule: Mapping[str, Any] | None  # min, max, stop: seeds are added by whole blocks
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


def experiment_path(text: str) -> Path:
    """The file of EXP: a path, or a name in experiments/."""
    if text.endswith((".yaml", ".yml")):
        path = Path(text)
        if not path.is_file():
            raise UserError(f"{path}: no such experiment file{near(path.stem, names('.'))}")
        return path
    return find(".", text, "experiment")


def load_experiment(text: str, *, device: str, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read, check and resolve an experiment; raises UserError with file, key and near miss. overrides: --set key=value."""
    file = YamlFile(experiment_path(text))
    return _Reader(file, device, dict(overrides or {})).experiment()


class _Reader:
    """One experiment file being read; every message says where."""

    def __init__(self, file: YamlFile, device: str, overrides: dict[str, Any]) -> None:
        self.file, self.data, self.device = file, dict(file.data), device
        for key in self.data:
            if key not in KEYS:
                raise UserError(f"{file.where(str(key))}: unknown key '{key}'{near(str(key), KEYS)}")
        for key in ("name", "base", "changes"):
            if key not in self.data and not (key == "changes" and self.data.get("design") == "explicit"):
                raise UserError(f"{file.path}: the key '{key}' is missing; an experiment needs name, base and changes")
        plugins.use([(file.path.parent / p) for p in self._list("plugins", str)])
        for key in [k for k in overrides if k in KEYS]:  # --set scale=tiny, --set seeds=2
            self.data[key] = overrides.pop(key)
        self.overrides = overrides

    def fail(self, message: str, *keys: str) -> UserError:
        return UserError(f"{self.file.where(*keys)}: {message}")

    def _list(self, key: str, kind: type) -> list[Any]:
        value = self.data.get(key) or []
        if not isinstance(value, list) or any(not isinstance(v, kind) or isinstance(v, bool) for v in value):
            raise self.fail(f"{key} must be a list of {'names' if kind is str else 'whole numbers'}", key)
        return value

    def _is(self, key: str, kind: type | tuple[type, ...], default: Any, words: str) -> Any:
        value = self.data.get(key, default)
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise self.fail(f"{key} is {value!r}, but must be {words}", key)
        return value

    def experiment(self) -> Experiment:
        name = self._is("name", str, None, "text")
        if not NAME.fullmatch(name) or len(name) > 100:
            raise self.fail(f"name {name!r} must be a file name of letters, digits, '.', '_' and '-'", "name")
        primary = self._is("primary", str, "val_loss", "text")
        if primary not in PRIMARY:
            raise self.fail(f"primary '{primary}' is not one of {', '.join(PRIMARY)}{near(primary, PRIMARY)}", "primary")
        margin = self._is("margin", (int, float), None, "a positive number")
        if margin is not None and not 0 < margin < float("inf"):
            raise self.fail(f"margin is {margin}, but must be positive: the largest difference that does not matter", "margin")
        confirm = self._is("confirm", bool, False, "true or false")
        seeds, rule = self._seeds(confirm)
        budgets = tuple(self._list("budgets", int))
        if any(not 1 <= b <= 10**7 for b in budgets) or len(set(budgets)) != len(budgets):
            raise self.fail(f"budgets {list(budgets)} must be different numbers of training steps", "budgets")
        return Experiment(
            name=name,
            question=self._is("question", str, "", "text"),
            base=self.data["base"],
            scale=self._is("scale", str, "gpt2", "the name of a scale"),
            design=self._design(),
            arms=self._arms(),
            seeds=seeds,
            seeds_rule=rule,
            budgets=budgets,
            target=self._target(),
            primary=primary,
            margin=margin,
            confirm=confirm,
            published=self._is("published", str, None, "the name of a record"),
            device=self.device,
            path=self.file.path,
        )

    def _seeds(self, confirm: bool) -> tuple[tuple[int, ...], Mapping[str, Any] | None]:
        value, first = self.data.get("seeds", 3), CONFIRM_SEEDS_FROM if confirm else 0
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
            return tuple(range(first, first + value)), None
        if (
            isinstance(value, list)
            and value
            and all(isinstance(v, int) and 0 <= v < 2**31 for v in value)
            and len(set(value)) == len(value)
        ):
            return tuple(value), None
        if isinstance(value, dict) and set(value) == {"min", "max", "stop"}:
            low, high, stop = value["min"], value["max"], value["stop"]
            numbers = isinstance(low, int) and isinstance(high, int) and 2 <= low <= high <= MAX_SEEDS
            if numbers and isinstance(stop, dict) and len(stop) == 1 and set(stop) <= {"decide", "half_width"}:
                return tuple(range(first, first + low)), value
        raise self.fail(
            f"seeds is {value!r}, but must be a number from 1 to {MAX_SEEDS}, a list of different seeds, or "
            "{min: 3, max: 20, stop: {decide: 0.05}}",
            "seeds",
        )

    def _target(self) -> Mapping[str, Any] | None:
        value = self.data.get("target")
        if value is None:
            return None
        if (
            not isinstance(value, dict)
            or not isinstance(value.get("val_loss"), int | float)
            or set(value) - {"val_loss", "reason"}
        ):
            raise self.fail(f"target is {value!r}, but must be {{val_loss: 3.28}}, with its reason if you like", "target")
        return {"val_loss": float(value["val_loss"]), "reason": value.get("reason")}

    def _design(self) -> str:
        design = self._is("design", str, "add-one", "text")
        if design not in (*DESIGNS, "explicit"):
            raise self.fail(f"design '{design}' is unknown{near(design, [*DESIGNS, 'explicit'])}", "design")
        return design

    # ------------------------------------------------------------ arms

    def _arms(self) -> tuple[Arm, ...]:
        where_set = lambda field: self.file.where("set", field) if field not in self.overrides else "--set"  # noqa: E731
        fixed = {**self._is("set", dict, {}, "a mapping of dotted fields to values"), **self.overrides}
        known = plugins.declared()
        check_names(fixed, where_set, known)
        fixed = check_values({k: frozen(v) for k, v in fixed.items()}, where_set)
        if not isinstance(self.data["base"], str):
            raise self.fail(f"base is {self.data['base']!r}, but must be the name of a record", "base")
        if self.data["base"] not in names("records"):
            raise self.fail(f"unknown record '{self.data['base']}'{near(self.data['base'], names('records'))}", "base")
        self.scale = load_scale(self._is("scale", str, "gpt2", "the name of a scale"))
        self.fixed = fixed
        self.changes = {name: self._change(name, value) for name, value in self._is("changes", dict, {}, "a mapping").items()}
        for name, (_, values) in self.changes.items():
            for field in values:
                if field in fixed:
                    raise self.fail(
                        f"change '{name}' sets {field}, which `set` fixes for every arm: take it out of one of them",
                        "changes",
                        name,
                    )

        design, order = self._design(), tuple(self.changes)
        if design == "explicit":
            arms = self._explicit()
        else:
            if len(order) > LIMITS.get(design, 64):
                raise self.fail(f"design {design} takes at most {LIMITS.get(design, 64)} changes, not {len(order)}", "design")
            sets = list(dict.fromkeys(s for s in DESIGNS[design](order, self._feasible) if s))
            if not sets:
                raise self.fail("no change can stand on this baseline: " + self._why_not(order), "changes")
            arms = dict(zip(labels(design, order, sets), sets, strict=True))
        base = self._resolve(())
        baseline = Arm(name=BASELINE, changes=(), config=base[0], fields={}, substituted=base[1])
        out = [baseline]
        for label, chosen in arms.items():
            config, substituted = self._resolve(chosen)
            fields = {k: v for k, v in flat(config).items() if flat(base[0]).get(k) != v}
            if not fields:
                raise self.fail(
                    f"arm '{label}' is the baseline on this machine ({'; '.join(substituted) or 'it changes nothing'}): "
                    "leave it out, or run it where it differs",
                    "changes",
                )
            out.append(Arm(name=label, changes=chosen, config=config, fields=fields, substituted=substituted))
        return tuple(out)

    def _change(self, name: str, value: Any) -> tuple[bool, Values]:
        """(whether its values are a record's, its values) of one entry of `changes`."""
        if isinstance(value, str):
            record, _, change = value.partition(".")
            if record not in names("records"):
                raise self.fail(
                    f"change '{name}' is taken from unknown record '{record}'{near(record, names('records'))}", "changes", name
                )
            available = load_preset(record).changes
            if change not in available:
                raise self.fail(f"unknown change '{change}' of {record}{near(change, available)}", "changes", name)
            return True, dict(available[change].values)
        if not isinstance(value, dict) or not value:
            raise self.fail(f"change '{name}' must be RECORD.CHANGE or a mapping of dotted fields to values", "changes", name)
        where = partial(self.file.where, "changes", name)
        check_names(value, where, plugins.declared())
        return False, check_values({k: frozen(v) for k, v in value.items()}, where)

    def _explicit(self) -> dict[str, Changes]:
        value = self.data.get("arms")
        if isinstance(value, list) and all(isinstance(v, list) for v in value):
            value = {" + ".join(map(str, v)): v for v in value if v}
        if not isinstance(value, dict) or not value or not all(isinstance(v, list) for v in value.values()):
            raise self.fail("an explicit design needs `arms`: a list of lists of changes, or names with such lists", "arms")
        for label, chosen in value.items():
            for c in chosen:
                if c not in self.changes:
                    raise self.fail(f"unknown change '{c}'{near(str(c), self.changes)}", "arms", label)
            if not str(label).isprintable() or label == BASELINE:
                raise self.fail(f"arm name {label!r} must be printable and not '{BASELINE}'", "arms", label)
        return {str(k): tuple(v) for k, v in value.items()}

    def _values(self, chosen: Changes) -> tuple[Values, frozenset[str]]:
        """Dotted values of an arm and the fields that the user set: preset, then records' changes, scale, set, own changes."""
        values, _ = preset_values(self.data["base"])
        own: Values = {}
        for name in chosen:
            from_record, change = self.changes[name]
            (values if from_record else own).update(change)
        scaled = self.scale.apply(values)
        given = {**self.fixed, **own}
        out = {**scaled, **given}
        if out["schedule.steps"] != scaled["schedule.steps"]:
            out = {**with_budget(out, values), **given}
        return out, frozenset(self.fixed) | frozenset(own)

    def _resolve(self, chosen: Changes) -> tuple[RunConfig, tuple[str, ...]]:
        label = " + ".join(chosen) or BASELINE
        values, asked = self._values(chosen)
        try:
            config = to_config(check_values(values, lambda field: f"arm '{label}'"))
            check_requirements(config)
            config, substituted = for_device(config, self.device, asked)
            check_config(config)
        except UserError as error:
            raise self.fail(f"arm '{label}': {error}", *(("changes", chosen[0]) if chosen else ("base",))) from None
        return config, substituted

    def _feasible(self, chosen: Changes) -> bool:
        try:
            check_requirements(to_config(self._values(chosen)[0]))
        except UserError:
            return False
        return True

    def _why_not(self, order: Changes) -> str:
        for name in order:
            try:
                check_requirements(to_config(self._values((name,))[0]))
            except UserError as error:
                return f"{name}: {error}"
        return "there are none"
