"""From an experiment's `base`, `scale`, `set`, `changes` and `design` to its arms, each with its whole configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import plugins
from harness.config import RunConfig, flat
from harness.designs import BASELINE, DESIGNS, LIMITS, Changes, labels
from harness.errors import UserError
from harness.experiment_file import ExperimentFile
from harness.presets import (
    Values,
    check_names,
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


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A baseline plus changes, resolved for a device."""

    name: str
    changes: Changes
    config: RunConfig
    fields: Mapping[str, Any]  # what differs from the baseline: dotted field -> value
    substituted: tuple[str, ...]  # what this device replaces, in words


class Resolver:
    """The parts of one file that make its arms, read once; `arms()` puts them together."""

    def __init__(self, file: ExperimentFile, device: str) -> None:
        self.file, self.device = file, device
        self.base = file.value("base", str, None, "the name of a record")
        if self.base not in names("records"):
            raise file.fail(f"unknown record '{self.base}'{near(self.base, names('records'))}", "base")
        self.scale_name = file.value("scale", str, "gpt2", "the name of a scale")
        if self.scale_name not in names("scales"):
            raise file.fail(f"unknown scale '{self.scale_name}'{near(self.scale_name, names('scales'))}", "scale")
        self.scale = load_scale(self.scale_name)
        self.design = file.choice("design", (*DESIGNS, "explicit"), "add-one", "design '{value}' is unknown")
        self.fixed = self._fixed()
        self.changes = {n: self._change(n, v) for n, v in file.value("changes", dict, {}, "a mapping").items()}
        for name, (_, values) in self.changes.items():
            for field in values:
                if field in self.fixed:
                    message = f"change '{name}' sets {field}, which `set` fixes for every arm: take it out of one of them"
                    raise file.fail(message, "changes", name)

    def arms(self) -> tuple[Arm, ...]:
        """The baseline first, then the design's arms in its order."""
        config, substituted = self._resolve(())
        base = flat(config)
        out = [Arm(name=BASELINE, changes=(), config=config, fields={}, substituted=substituted)]
        for label, chosen in self._sets().items():
            config, substituted = self._resolve(chosen)
            fields = {k: v for k, v in flat(config).items() if base.get(k) != v}
            if not fields:
                raise self.file.fail(
                    f"arm '{label}' is the baseline on this machine ({'; '.join(substituted) or 'it changes nothing'}): "
                    "leave it out, or run it where it differs",
                    "changes",
                )
            out.append(Arm(name=label, changes=chosen, config=config, fields=fields, substituted=substituted))
        return tuple(out)

    def _fixed(self) -> Values:
        """`set` and the fields of --set: values of every arm."""
        overrides = self.file.overrides
        where = lambda field: self.file.where("set", field) if field not in overrides else "--set"  # noqa: E731
        fixed = {**self.file.value("set", dict, {}, "a mapping of dotted fields to values"), **overrides}
        check_names(fixed, where, plugins.declared())
        return check_values({k: frozen(v) for k, v in fixed.items()}, where)

    def _change(self, name: str, value: Any) -> tuple[bool, Values]:
        """(whether its values are a record's, its values) of one entry of `changes`."""
        fail = self.file.fail
        if isinstance(value, str):
            record, _, change = value.partition(".")
            if record not in names("records"):
                message = f"change '{name}' is taken from unknown record '{record}'{near(record, names('records'))}"
                raise fail(message, "changes", name)
            available = load_preset(record).changes
            if change not in available:
                raise fail(f"unknown change '{change}' of {record}{near(change, available)}", "changes", name)
            return True, dict(available[change].values)
        if not isinstance(value, dict) or not value:
            raise fail(f"change '{name}' must be RECORD.CHANGE or a mapping of dotted fields to values", "changes", name)
        where = self.file.at("changes", name)
        check_names(value, where, plugins.declared())
        return False, check_values({k: frozen(v) for k, v in value.items()}, where)

    def _sets(self) -> Mapping[str, Changes]:
        """Arm name -> its changes."""
        order = tuple(self.changes)
        if self.design == "explicit":
            return self._explicit()
        limit = LIMITS.get(self.design, 64)
        if len(order) > limit:
            raise self.file.fail(f"design {self.design} takes at most {limit} changes, not {len(order)}", "design")
        sets = list(dict.fromkeys(s for s in DESIGNS[self.design](order, self._feasible) if s))
        if not sets:
            raise self.file.fail("no change can stand on this baseline: " + self._why_not(order), "changes")
        return dict(zip(labels(self.design, order, sets), sets, strict=True))

    def _explicit(self) -> dict[str, Changes]:
        value = self.file.data.get("arms")
        if isinstance(value, list) and all(isinstance(v, list) for v in value):
            value = {" + ".join(map(str, v)): v for v in value if v}
        if not isinstance(value, dict) or not value or not all(isinstance(v, list) for v in value.values()):
            where = "arms" if "arms" in self.file.data else "design"
            raise self.file.fail("an explicit design needs `arms`: a list of lists of changes, or names with such lists", where)
        for label, chosen in value.items():
            for c in chosen:
                if c not in self.changes:
                    raise self.file.fail(f"unknown change '{c}'{near(str(c), self.changes)}", "arms", label)
            if not str(label).isprintable() or label == BASELINE:
                raise self.file.fail(f"arm name {label!r} must be printable and not '{BASELINE}'", "arms", label)
        return {str(k): tuple(v) for k, v in value.items()}

    def _values(self, chosen: Changes) -> tuple[Values, frozenset[str]]:
        """Dotted values of an arm and the fields that the user set: preset, then records' changes, scale, set, own changes."""
        values, _ = preset_values(self.base)
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
            raise self.file.fail(f"arm '{label}': {error}", *(("changes", chosen[0]) if chosen else ("base",))) from None
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
