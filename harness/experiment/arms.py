"""From an experiment's file to its arms, each with its whole configuration.

Its `base`, `scale`, `set`, `changes`, `design` and `axes` say what they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

from harness.config.run import RunConfig, flat, toggles
from harness.config.validate import check_config
from harness.errors import UserError, near
from harness.experiment.axes import GridPoint, arm_name, at_point, grid, read_axes
from harness.experiment.configs import Configs
from harness.experiment.designs import BASELINE, CHAIN, DESIGNS, Changes, NamedSets, most_changes
from harness.experiment.draws import drawn, read_draw
from harness.experiment.file import ExperimentFile
from harness.experiment.keys import read_design
from harness.experiment.parents import read_parents
from harness.run.document import Fields

GRIDS = ("add-one", "factorial")  # designs that axes without changes are, too
ALL_TOGETHER = ("leave-one-out", "shapley")  # designs in which all changes stand together


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A baseline plus changes, at a point of the axes if there are some, resolved for a device."""

    name: str
    changes: Changes
    config: RunConfig
    fields: Fields  # what differs from the baseline: dotted field -> value
    gone: tuple[str, ...]  # fields that go with what its changes switch off
    substituted: tuple[str, ...]  # what this device replaces, in words
    of: str  # its name without the point
    point: GridPoint  # axis -> '0.01' or 'x0.5'; empty where nothing is crossed
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
    """Equal for configurations that train alike, plug-in toggles included.

    In fp32 what says where to round makes none another.
    """
    values = flat(config).items()
    if config.precision.mode == "fp32":
        values = {name: value for name, value in values if name not in roundings()}.items()
    return repr(sorted(values))


@cache
def roundings() -> frozenset[str]:
    """The fields that say where to round, and do nothing in fp32."""
    return frozenset(name for name, f in toggles() if f.metadata.get("rounds"))


class Resolver:
    """The parts of one file that make its arms, read once; `arms()` puts them together."""

    def __init__(self, file: ExperimentFile, device: str) -> None:
        self.file, self.device = file, device
        self.configs = Configs(file, device)
        self.design = read_design(file)
        self.changes = self.configs.changes
        self.axes = read_axes(file)
        self.draw = read_draw(file, self.axes)
        self._check_set_once()
        self.absent = self._absent()
        self.alike: dict[str, Changes] = {}  # arms that are others again where nothing is rounded
        self.left_out: list[str] = []  # what became no arm, in words
        for name in self.absent:
            self.left_out.append(f"{name}: needs CUDA, which this machine lacks")

    def _check_set_once(self) -> None:
        """Refuse a change of what is the same in every arm, or what an axis moves to a number.

        A factor in a change is on what `set` gives.
        """
        fixed = (*self.configs.fixed.values, *self.configs.fixed.factors)
        moved = [f for axis in self.axes if not axis.relative for f in axis.fields]
        for name, entry in self.changes.items():
            setters = dict.fromkeys(moved, "an axis moves in")
            by_factor = setters.keys() & entry.factors
            setters |= dict.fromkeys(fixed, "`set` fixes for")
            for field in (*entry.values, *by_factor):
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
        base, substituted, _ = self.configs.resolve(())
        baseline = Arm(
            name=BASELINE,
            changes=(),
            config=base,
            fields={},
            gone=(),
            substituted=substituted,
            of=BASELINE,
            point={},
            runs_in={},
        )
        arms = {identity(base): baseline}
        points: list[GridPoint] = [{}]
        if crossed:
            points = drawn(self.axes, self.draw) if self.draw else grid(self.axes)
        refusal = ""
        for label, chosen in {BASELINE: (), **self._sets()}.items():
            config, substituted, gone = self.configs.resolve(chosen)
            runs_in: dict[str, str] = {}
            for change in chosen:
                runs_in.update(self.changes[change].runs_in)
            for point in points:
                at = at_point(config, self.axes, point, self.file.at("axes"))
                name = label if at == config else arm_name(label, self.axes, point)
                try:
                    check_config(at)
                except UserError as error:
                    raise self.file.fail(f"arm '{name}': {error}", "axes") from None
                key = identity(at) + str(runs_in or "")
                if key in arms and name != BASELINE:
                    refusal = same(name, arms[key], at, substituted)
                    self._leave_out(name, chosen, at, arms[key], refusal)
                    continue
                arms[key] = Arm(
                    name=name,
                    changes=chosen,
                    config=at,
                    fields=differences(at, base),
                    gone=gone,
                    substituted=substituted,
                    of=label,
                    point=point,
                    runs_in=runs_in,
                )
        if len(arms) == 1 and refusal:
            raise self.file.fail(refusal, "changes")
        if len(arms) == 1 and crossed:
            raise self.file.fail(
                "the axes have no point beside the baseline: give another one", "axes"
            )
        return tuple(arms.values())

    def _leave_out(
        self, name: str, chosen: Changes, at: RunConfig, other: Arm, refusal: str
    ) -> None:
        """An arm that is another where nothing is rounded; one that is so anyway is refused."""
        if flat(at) == flat(other.config):
            raise self.file.fail(refusal, "changes")
        self.alike[name] = chosen
        self.left_out.append(
            f"{name}: '{other.name}' again, for fp32 rounds nowhere: "
            "--set precision.mode=record tells them apart"
        )

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
        places |= {label: order.index(chosen[-1]) for label, chosen in self.alike.items()}
        for arm in arms:
            places[arm.of] = order.index(arm.changes[-1]) if arm.changes else -1
        return tuple(sorted(places, key=places.__getitem__))

    def _sets(self) -> Mapping[str, Changes]:
        """Arm name -> its changes; none where axes alone make the arms."""
        if self._is_axes_alone():
            return {}
        if self.design == "explicit" or (self.design == CHAIN and "arms" in self.file.data):
            return self._explicit()
        order = self._present(self.changes)
        limit = most_changes(self.design)
        if len(order) > limit:
            raise self.file.fail(
                f"design {self.design} takes at most {limit} changes, not {len(order)}", "design"
            )
        if self.design in ALL_TOGETHER and order:
            why = self.configs.refusal(order)
            if why:
                raise self.file.fail(
                    f"design {self.design} needs all changes to stand together, but {why}",
                    "design",
                )

        def feasible(chosen: Changes) -> bool:
            return not self.configs.refusal(chosen)

        sets = DESIGNS[self.design](order, feasible)
        reasons = self._unplaced(order, sets)
        if not sets:
            refusals = [f"{name}: {why}" for name, why in reasons.items()] or ["there are none"]
            raise self.file.fail(f"no change can stand on this baseline: {refusals[0]}", "changes")
        for name, why in reasons.items():
            self.left_out.append(f"{name}, which cannot stand: {why}")
        return sets

    def _is_axes_alone(self) -> bool:
        """Whether the axes' points are all there is to compare.

        Raises UserError where there are neither changes nor axes, or a design is about changes.
        """
        if self.changes or self.design == "explicit":
            return False
        if not self.axes:
            raise self.file.fail(
                "there are neither changes nor axes: name a change, for example "
                "untied_head: r08.untied_head, or an axis, for example "
                "optim.muon_lr: [x0.5, x1, x2]",
                "changes",
            )
        if self.design not in GRIDS:
            raise self.file.fail(
                f"design {self.design} is about changes, and there are none: leave `design` out, "
                "and the axes alone make a grid of all their points",
                "design",
            )
        return True

    def _present(self, changes: Iterable[str]) -> Changes:
        """The changes that this machine can make, each once."""
        return tuple(name for name in dict.fromkeys(changes) if name not in self.absent)

    def _unplaced(self, order: Changes, sets: NamedSets) -> dict[str, str]:
        """Why the changes that are in no arm of a design are in none."""
        placed = set().union(*sets.values())
        reasons = {name: self.configs.unmet((name,)) for name in order if name not in placed}
        for name, why in reasons.items():
            if not why:
                # a size that does not fit is the file's fault, not the design's
                self.configs.resolve((name,))
                reasons[name] = self.configs.refusal(order)
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


def is_lists(value: Any) -> TypeGuard[list[list[Any]]]:
    """Whether a value is a list of lists."""
    return isinstance(value, list) and all(isinstance(entry, list) for entry in value)


def same(name: str, other: Arm, at: RunConfig, substituted: tuple[str, ...]) -> str:
    """The refusal of an arm whose runs would be another's. at: its configuration."""
    if name == other.name:
        return f"the axes move nothing in arm '{name}': leave it out, or the axes"
    if other.name == BASELINE:
        why = "; ".join(substituted) or "it changes nothing"
        what, way = f"arm '{name}' is the baseline on this machine ({why})", "leave it out"
        elsewhere = "run it where it differs"
    else:
        what = f"arms '{other.name}' and '{name}' are one and the same on this machine"
        way, elsewhere = "leave one of them out", ""
    if flat(at) != flat(other.config):
        elsewhere = "run it with precision.mode=record: fp32 rounds nowhere"
    return f"{what}: {', or '.join(filter(None, [way, elsewhere]))}"
