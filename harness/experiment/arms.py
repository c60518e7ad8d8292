"""From an experiment's `base`, `scale`, `set`, `changes`, `design` and `axes` to its arms, each with its whole configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.device import for_device
from harness.config.presets import Values, load_scale, names, preset_values, to_config, with_budget
from harness.config.requires import check_requirements
from harness.config.run import RunConfig, flat
from harness.config.validate import check_config, check_values
from harness.errors import UserError, near
from harness.experiment.axes import Point, arm_name, at_point, grid, read_axes
from harness.experiment.changes import read_changes, read_fixed
from harness.experiment.designs import BASELINE, DESIGNS, LIMITS, Changes
from harness.experiment.file import ExperimentFile

ALL_TOGETHER = ("leave-one-out", "shapley")  # designs in which all changes stand together


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A baseline plus changes, at a point of the axes where there are some, resolved for a device."""

    name: str
    changes: Changes
    config: RunConfig
    fields: Mapping[str, Any]  # what differs from the baseline: dotted field -> value
    substituted: tuple[str, ...]  # what this device replaces, in words
    of: str  # its name without the point
    point: Point  # axis -> '0.01' or 'x0.5'; empty where nothing is crossed
    runs_in: Mapping[str, str]  # the environment of its workers, empty: this one


def differences(config: RunConfig, base: RunConfig) -> dict[str, Any]:
    """Dotted field -> value where the configuration differs from another."""
    before = flat(base)
    return {k: v for k, v in flat(config).items() if before.get(k) != v}


def identity(config: RunConfig) -> str:
    """Equal for configurations that are equal, plug-in toggles included."""
    return repr(sorted(flat(config).items()))


class Resolver:
    """The parts of one file that make its arms, read once; `arms()` puts them together."""

    def __init__(self, file: ExperimentFile, device: str) -> None:
        self.file, self.device = file, device
        self.base = file.value("base", str, None, "the name of a record")
        if self.base not in names("records"):
            raise file.fail(
                f"unknown record '{self.base}'{near(self.base, names('records'))}", "base"
            )
        self.scale_name = file.value("scale", str, "gpt2", "the name of a scale")
        if self.scale_name not in names("scales"):
            raise file.fail(
                f"unknown scale '{self.scale_name}'{near(self.scale_name, names('scales'))}",
                "scale",
            )
        self.scale, self.preset = load_scale(self.scale_name), preset_values(self.base)[0]
        self.design = file.choice(
            "design", (*DESIGNS, "explicit"), "add-one", "design '{value}' is unknown"
        )
        self.fixed, self.changes, self.axes = read_fixed(file), read_changes(file), read_axes(file)
        absolute = {field for axis in self.axes if not axis.relative for field in axis.fields}
        for name, entry in self.changes.items():
            for field in entry.values:
                setter = (
                    "`set` fixes for"
                    if field in self.fixed
                    else "an axis moves in"
                    if field in absolute
                    else ""
                )
                if setter:
                    message = f"change '{name}' sets {field}, which {setter} every arm: take it out of one of them"
                    raise file.fail(message, "changes", name)
        self.absent = self._absent()
        self.left_out = [
            f"{name}: needs CUDA, which this machine lacks" for name in self.absent
        ]  # what became no arm, in words

    def arms(self, *, crossed: bool = True) -> tuple[Arm, ...]:
        """The baseline first, then the design's arms in its order, each at every point of the axes where `crossed`."""
        base, substituted = self._resolve(())
        first = Arm(
            name=BASELINE,
            changes=(),
            config=base,
            fields={},
            substituted=substituted,
            of=BASELINE,
            point={},
            runs_in={},
        )
        out = {identity(base): first}
        for label, chosen in {BASELINE: (), **self._sets()}.items():
            config, substituted = self._resolve(chosen)
            runs_in = {k: v for name in chosen for k, v in self.changes[name].runs_in.items()}
            for point in grid(self.axes if crossed else ()):
                at = at_point(config, self.axes, point, self.file.at("axes"))
                check_config(at)
                name = label if at == config else arm_name(label, self.axes, point)
                if (key := identity(at) + str(runs_in or "")) in out and name != BASELINE:
                    raise self.file.fail(same(name, out[key], substituted), "changes")
                out[key] = Arm(
                    name=name,
                    changes=chosen,
                    config=at,
                    fields=differences(at, base),
                    substituted=substituted,
                    of=label,
                    point=point,
                    runs_in=runs_in,
                )
        return tuple(out.values())

    def _absent(self) -> tuple[str, ...]:
        """The changes of `gpu_only` on a machine without CUDA, where the file wants them left out."""
        listed = self.file.items("gpu_only", str)
        for name in listed:
            if name not in self.changes:
                raise self.file.fail(
                    f"gpu_only: unknown change '{name}'{near(name, self.changes)}", "gpu_only"
                )
        return tuple(listed) if self.device == "cpu" else ()

    def _sets(self) -> Mapping[str, Changes]:
        """Arm name -> its changes."""
        if self.design == "explicit":
            return self._explicit()
        order = tuple(c for c in self.changes if c not in self.absent)
        limit = LIMITS.get(self.design, 64)
        if len(order) > limit:
            raise self.file.fail(
                f"design {self.design} takes at most {limit} changes, not {len(order)}", "design"
            )
        if self.design in ALL_TOGETHER and order and (why := self._refusal(order)):
            raise self.file.fail(
                f"design {self.design} needs all changes to stand together, but {why}", "design"
            )
        sets = DESIGNS[self.design](order, lambda chosen: not self._refusal(chosen))
        alone = {
            name: self._unmet((name,))
            for name in order
            if not any(name in s for s in sets.values())
        }
        for name, why in alone.items():
            if not why:
                self._resolve(
                    (name,)
                )  # a size that does not fit is the file's fault, not the design's
                alone[name] = self._refusal(order)
        if not self.changes:
            raise self.file.fail(
                "there are no changes: name one at least, for example untied_head: r08.untied_head",
                "changes",
            )
        if not sets:
            reason = next((f"{name}: {why}" for name, why in alone.items()), "there are none")
            raise self.file.fail(f"no change can stand on this baseline: {reason}", "changes")
        self.left_out += [f"{name}, which cannot stand: {why}" for name, why in alone.items()]
        return sets

    def _explicit(self) -> dict[str, Changes]:
        value = self.file.data.get("arms")
        if isinstance(value, list) and all(isinstance(v, list) for v in value):
            value = {" + ".join(map(str, v)): v for v in value if v}
        if (
            not isinstance(value, dict)
            or not value
            or not all(isinstance(v, list) for v in value.values())
        ):
            place = "arms" if "arms" in self.file.data else "design"
            raise self.file.fail(
                "an explicit design needs `arms`: a list of lists of changes, or names with such lists",
                place,
            )
        out: dict[str, Changes] = {}
        for label, chosen in value.items():
            for c in chosen:
                if c not in self.changes:
                    raise self.file.fail(
                        f"unknown change '{c}'{near(str(c), self.changes)}", "arms", str(label)
                    )
            if not str(label).isprintable() or label == BASELINE:
                raise self.file.fail(
                    f"arm name {label!r} must be printable and not '{BASELINE}'", "arms", str(label)
                )
            here = tuple(dict.fromkeys(c for c in chosen if c not in self.absent))
            if here and (len(here) == len(chosen) or here not in out.values()):
                out[str(label)] = here
        if not out:
            raise self.file.fail(
                "no arm is left on this machine: " + "; ".join(self.left_out), "arms"
            )
        return out

    def _values(self, chosen: Changes) -> tuple[Values, frozenset[str]]:
        """Dotted values of an arm and the fields that the user set: preset, then records' changes, scale, set, own changes."""
        values, own = dict(self.preset), Values()
        for entry in (self.changes[name] for name in chosen):
            (values if entry.from_record else own).update(entry.values)
        scaled = self.scale.apply(values)
        given = {**self.fixed, **own}
        out = {**scaled, **given}
        if out["schedule.steps"] != scaled["schedule.steps"]:
            out = {**with_budget(out, values), **given}
        return out, frozenset(self.fixed) | frozenset(own)

    def _resolve(self, chosen: Changes) -> tuple[RunConfig, tuple[str, ...]]:
        """An arm's configuration and what this device replaces; raises UserError naming the arm."""
        label = " + ".join(chosen) or BASELINE
        values, asked = self._values(chosen)
        try:
            config = to_config(check_values(values, lambda field: f"arm '{label}'"))
            check_requirements(config)
            config, substituted = for_device(config, self.device, asked)
            check_config(config)
        except UserError as error:
            raise self.file.fail(
                f"arm '{label}': {error}", *(("changes", chosen[0]) if chosen else ("base",))
            ) from None
        return config, substituted

    def _unmet(self, chosen: Changes) -> str:
        """The requirement or conflict between toggles that excludes these changes; '' where there is none."""
        try:
            check_requirements(to_config(self._values(chosen)[0]))
        except UserError as error:
            return str(error)
        return ""

    def _refusal(self, chosen: Changes) -> str:
        """Why changes cannot stand together, by their requirements or by sizes; '' where they can.

        What this machine lacks is no such reason: such an arm is refused by name when it is resolved."""
        if why := self._unmet(chosen):
            return why
        values, asked = self._values(chosen)
        try:
            config, _ = for_device(to_config(values), self.device, asked)
        except UserError:
            return ""
        try:
            check_config(config)
        except UserError as error:
            return str(error)
        return ""


def same(name: str, other: Arm, substituted: tuple[str, ...]) -> str:
    """The refusal of an arm whose runs would be another's."""
    if other.name == BASELINE:
        why = "; ".join(substituted) or "it changes nothing"
        return f"arm '{name}' is the baseline on this machine ({why}): leave it out, or run it where it differs"
    return f"arms '{other.name}' and '{name}' are one and the same on this machine: leave one of them out"
