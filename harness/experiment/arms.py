"""From an experiment's file to its arms, each with its whole configuration.

Its `base`, `scale`, `set`, `changes`, `design` and `axes` say what they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from harness.config.device import for_device
from harness.config.presets import Values, load_scale, names, preset_values, to_config, with_budget
from harness.config.requires import check_requirements
from harness.config.run import RunConfig, flat
from harness.config.validate import check_config
from harness.errors import UserError, near
from harness.experiment.axes import Point, arm_name, at_point, grid, read_axes
from harness.experiment.changes import read_changes, read_fixed
from harness.experiment.designs import BASELINE, CHAIN, DESIGNS, Changes, NamedSets, most_changes
from harness.experiment.file import ExperimentFile
from harness.experiment.parents import read_parents
from harness.experiment.values import check_values
from harness.run.document import Fields

ALL_TOGETHER = ("leave-one-out", "shapley")  # designs in which all changes stand together


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A baseline plus changes, at a point of the axes if there are some, resolved for a device."""

    name: str
    changes: Changes
    config: RunConfig
    fields: Fields  # what differs from the baseline: dotted field -> value
    substituted: tuple[str, ...]  # what this device replaces, in words
    of: str  # its name without the point
    point: Point  # axis -> '0.01' or 'x0.5'; empty where nothing is crossed
    runs_in: Mapping[str, str]  # the environment of its workers, empty: this one


def differences(config: RunConfig, base: RunConfig) -> Fields:
    """Dotted field -> value where the configuration differs from another."""
    before = flat(base)
    changed = {}
    for name, value in flat(config).items():
        if before.get(name) != value:
            changed[name] = value
    return changed


def identity(config: RunConfig) -> str:
    """Equal for configurations that are equal, plug-in toggles included."""
    return repr(sorted(flat(config).items()))


class Resolver:
    """The parts of one file that make its arms, read once; `arms()` puts them together."""

    def __init__(self, file: ExperimentFile, device: str) -> None:
        self.file, self.device = file, device
        self.base = file.value("base", str, None, "the name of a record")
        records = names("records")
        if self.base not in records:
            raise file.fail(f"unknown record '{self.base}'{near(self.base, records)}", "base")
        self.scale_name = file.value("scale", str, "gpt2", "the name of a scale")
        scales = names("scales")
        if self.scale_name not in scales:
            unknown = f"unknown scale '{self.scale_name}'{near(self.scale_name, scales)}"
            raise file.fail(unknown, "scale")
        self.scale = load_scale(self.scale_name)
        self.preset = preset_values(self.base)[0]
        self.design = file.choice(
            "design", (*DESIGNS, "explicit"), "add-one", "design '{value}' is unknown"
        )
        self.fixed = read_fixed(file)
        self.changes = read_changes(file)
        self.axes = read_axes(file)
        self._check_set_once()
        self.absent = self._absent()
        self.left_out: list[str] = []  # what became no arm, in words
        for name in self.absent:
            self.left_out.append(f"{name}: needs CUDA, which this machine lacks")

    def _check_set_once(self) -> None:
        """Refuse a change of what is the same in every arm, or what an axis moves to a number."""
        setters = {}
        for axis in self.axes:
            if not axis.relative:
                setters.update(dict.fromkeys(axis.fields, "an axis moves in"))
        setters.update(dict.fromkeys(self.fixed, "`set` fixes for"))
        for name, entry in self.changes.items():
            for field in entry.values:
                if field in setters:
                    raise self.file.fail(
                        f"change '{name}' sets {field}, which {setters[field]} every arm: "
                        "take it out of one of them",
                        "changes",
                        name,
                    )

    def arms(self, *, crossed: bool = True) -> tuple[Arm, ...]:
        """The baseline first, then the design's arms in its order.

        crossed: each at every point of the axes.
        """
        base, substituted = self._resolve(())
        baseline = Arm(
            name=BASELINE,
            changes=(),
            config=base,
            fields={},
            substituted=substituted,
            of=BASELINE,
            point={},
            runs_in={},
        )
        arms = {identity(base): baseline}
        axes = self.axes if crossed else ()
        for label, chosen in {BASELINE: (), **self._sets()}.items():
            config, substituted = self._resolve(chosen)
            runs_in: dict[str, str] = {}
            for change in chosen:
                runs_in.update(self.changes[change].runs_in)
            for point in grid(axes):
                at = at_point(config, self.axes, point, self.file.at("axes"))
                check_config(at)
                name = label if at == config else arm_name(label, self.axes, point)
                key = identity(at) + str(runs_in or "")
                if key in arms and name != BASELINE:
                    raise self.file.fail(same(name, arms[key], substituted), "changes")
                arms[key] = Arm(
                    name=name,
                    changes=chosen,
                    config=at,
                    fields=differences(at, base),
                    substituted=substituted,
                    of=label,
                    point=point,
                    runs_in=runs_in,
                )
        return tuple(arms.values())

    def _absent(self) -> tuple[str, ...]:
        """The changes of `gpu_only` on a machine without CUDA, where the file leaves them out."""
        listed = self.file.items("gpu_only", str)
        for name in listed:
            if name not in self.changes:
                unknown = f"gpu_only: unknown change '{name}'{near(name, self.changes)}"
                raise self.file.fail(unknown, "gpu_only")
        if self.device == "cpu":
            return tuple(listed)
        return ()

    def parents(self, arms: Sequence[Arm]) -> Mapping[str, str]:
        """Of a chain: arm -> the arm that it is held against."""
        present = list(dict.fromkeys(arm.of for arm in arms))
        return read_parents(self.file, self.design, present, self._listed(arms))

    def _listed(self, arms: Sequence[Arm]) -> tuple[str, ...]:
        """The arms of a chain as the file has them, those too that this machine leaves out."""
        if self.design != CHAIN:
            return ()
        if "arms" in self.file.data:
            return (BASELINE, *map(str, self._listed_arms()))
        order = list(self.changes)
        places = {f"+{name}": order.index(name) for name in self.absent}
        for arm in arms:
            places[arm.of] = order.index(arm.changes[-1]) if arm.changes else -1
        return tuple(sorted(places, key=places.__getitem__))

    def _sets(self) -> Mapping[str, Changes]:
        """Arm name -> its changes."""
        if self.design == "explicit" or (self.design == CHAIN and "arms" in self.file.data):
            return self._explicit()
        order = self._present(self.changes)
        limit = most_changes(self.design)
        if len(order) > limit:
            raise self.file.fail(
                f"design {self.design} takes at most {limit} changes, not {len(order)}", "design"
            )
        if self.design in ALL_TOGETHER and order:
            why = self._refusal(order)
            if why:
                raise self.file.fail(
                    f"design {self.design} needs all changes to stand together, but {why}",
                    "design",
                )

        def feasible(chosen: Changes) -> bool:
            return not self._refusal(chosen)

        sets = DESIGNS[self.design](order, feasible)
        reasons = self._unplaced(order, sets)
        if not self.changes:
            raise self.file.fail(
                "there are no changes: name one at least, for example untied_head: r08.untied_head",
                "changes",
            )
        if not sets:
            refusals = [f"{name}: {why}" for name, why in reasons.items()] or ["there are none"]
            raise self.file.fail(f"no change can stand on this baseline: {refusals[0]}", "changes")
        for name, why in reasons.items():
            self.left_out.append(f"{name}, which cannot stand: {why}")
        return sets

    def _present(self, changes: Iterable[str]) -> Changes:
        """The changes that this machine can make, each once."""
        return tuple(name for name in dict.fromkeys(changes) if name not in self.absent)

    def _unplaced(self, order: Changes, sets: NamedSets) -> dict[str, str]:
        """Why the changes that are in no arm of a design are in none."""
        placed = set().union(*sets.values())
        reasons = {name: self._unmet((name,)) for name in order if name not in placed}
        for name, why in reasons.items():
            if not why:
                # a size that does not fit is the file's fault, not the design's
                self._resolve((name,))
                reasons[name] = self._refusal(order)
        return reasons

    def _explicit(self) -> NamedSets:
        """The arms that the file lists: its names, or their changes' names together."""
        arms: NamedSets = {}
        for label, chosen in self._listed_arms().items():
            for change in chosen:
                if change not in self.changes:
                    unknown = f"unknown change '{change}'{near(str(change), self.changes)}"
                    raise self.file.fail(unknown, "arms", str(label))
            if not str(label).isprintable() or label == BASELINE:
                raise self.file.fail(
                    f"arm name {label!r} must be printable and not '{BASELINE}'",
                    "arms",
                    str(label),
                )
            present = self._present(chosen)
            whole = len(present) == len(chosen)
            if present and (whole or present not in arms.values()):
                arms[str(label)] = present
        if not arms:
            raise self.file.fail(
                "no arm is left on this machine: " + "; ".join(self.left_out), "arms"
            )
        return arms

    def _listed_arms(self) -> Mapping[Any, list[Any]]:
        """`arms` as the file has it: label -> changes."""
        value = self.file.data.get("arms")
        if is_lists(value):
            value = {" + ".join(map(str, chosen)): chosen for chosen in value if chosen}
        if isinstance(value, dict) and value and is_lists(list(value.values())):
            return value
        raise self.file.fail(
            "an explicit design needs `arms`: a list of lists of changes, or names with such lists",
            "arms" if "arms" in self.file.data else "design",
        )

    def _values(self, chosen: Changes) -> tuple[Values, frozenset[str]]:
        """Dotted values of an arm, and the fields that the user set.

        In this order: preset, then records' changes, scale, `set`, the file's own changes.
        """
        values = dict(self.preset)
        given = dict(self.fixed)
        for name in chosen:
            entry = self.changes[name]
            target = values if entry.from_record else given
            target.update(entry.values)
        scaled = self.scale.apply(values)
        resolved = {**scaled, **given}
        if resolved["schedule.steps"] != scaled["schedule.steps"]:
            resolved = {**with_budget(resolved, values), **given}
        return resolved, frozenset(given)

    def departures(self) -> Fields:
        """Field -> what the record has at this scale, where the baseline has something else."""
        of_record = self.scale.apply(dict(self.preset))
        departures = {}
        for name, value in self._values(())[0].items():
            if of_record.get(name) != value:
                departures[name] = of_record.get(name)
        return departures

    def _resolve(self, chosen: Changes) -> tuple[RunConfig, tuple[str, ...]]:
        """An arm's configuration and what this device replaces; raises UserError naming the arm."""
        label = " + ".join(chosen) or BASELINE
        values, asked = self._values(chosen)

        def where(field: str) -> str:
            return f"arm '{label}'"

        try:
            config = to_config(check_values(values, where))
            check_requirements(config)
            config, substituted = for_device(config, self.device, asked)
            check_config(config)
        except UserError as error:
            place = ("changes", chosen[0]) if chosen else ("base",)
            raise self.file.fail(f"arm '{label}': {error}", *place) from None
        return config, substituted

    def _unmet(self, chosen: Changes) -> str:
        """The requirement or conflict between toggles that excludes these changes.

        '' where there is none.
        """
        try:
            check_requirements(to_config(self._values(chosen)[0]))
        except UserError as error:
            return str(error)
        return ""

    def _refusal(self, chosen: Changes) -> str:
        """Why changes cannot stand together, by their requirements or by sizes; '' where they can.

        What this machine lacks is no such reason: such an arm is refused by name when it is
        resolved.
        """
        why = self._unmet(chosen)
        if why:
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


def is_lists(value: Any) -> TypeGuard[list[list[Any]]]:
    """Whether a value is a list of lists."""
    return isinstance(value, list) and all(isinstance(entry, list) for entry in value)


def same(name: str, other: Arm, substituted: tuple[str, ...]) -> str:
    """The refusal of an arm whose runs would be another's."""
    if other.name == BASELINE:
        why = "; ".join(substituted) or "it changes nothing"
        return (
            f"arm '{name}' is the baseline on this machine ({why}): leave it out, or run it where "
            "it differs"
        )
    return (
        f"arms '{other.name}' and '{name}' are one and the same on this machine: leave one of "
        "them out"
    )
