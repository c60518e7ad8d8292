"""From a set of changes to a whole configuration: preset, scale, `set`, factors, the device."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from harness.config.device import for_device
from harness.config.presets import MODERN, Values, load_preset, names, preset_values, to_config
from harness.config.requires import OFF, check_requirements, resting_on
from harness.config.run import NewValues, RunConfig
from harness.config.scales import load_scale, with_budget
from harness.config.validate import check_config
from harness.errors import UserError, near
from harness.experiment.changes import Entry, read_changes, read_fixed
from harness.experiment.designs import BASELINE, Changes
from harness.experiment.file import ExperimentFile
from harness.experiment.values import check_values, multiplied, off_value
from harness.run.document import Fields

STEPS = "schedule.steps"


class Factor(NamedTuple):
    """One factor of the file."""

    place: tuple[str, ...]  # the keys under which it stands
    field: str
    times: float


class ArmValues(NamedTuple):
    """An arm's values, before they are a configuration."""

    values: Values  # by dotted field
    asked: frozenset[str]  # fields that the user set
    gone: tuple[str, ...]  # fields at their default, since a change switches off what they require


class Resolved(NamedTuple):
    """An arm's configuration."""

    config: RunConfig
    substituted: tuple[str, ...]  # what this device replaces, in words
    gone: tuple[str, ...]  # as of ArmValues


class Configs:
    """What one file says of its arms' values, read once; `resolve` puts an arm's together."""

    def __init__(self, file: ExperimentFile, device: str) -> None:
        self.file, self.device = file, device
        self.base = read_base(file)
        self.scale_name = read_scale(file)
        self.scale = load_scale(self.scale_name, self.base)
        self.preset = preset_values(self.base)[0]
        self.fixed = read_fixed(file)
        self.changes: Mapping[str, Entry] = read_changes(file)

    def departures(self) -> Fields:
        """Field -> what the record has at this scale, where the baseline has something else."""
        of_record = self.scale.apply(dict(self.preset))
        departures = {}
        for name, value in self._values(()).values.items():
            if of_record.get(name) != value:
                departures[name] = of_record.get(name)
        return departures

    def resolve(self, chosen: Changes) -> Resolved:
        """An arm as this device runs it; raises UserError naming the arm."""
        label = " + ".join(chosen) or BASELINE

        def where(field: str) -> str:
            return f"arm '{label}'"

        values, asked, gone = self._values(chosen)
        try:
            config = to_config(check_values(values, where))
            check_requirements(config)
            config, substituted = for_device(config, self.device, asked)
            check_config(config)
        except UserError as error:
            place = ("changes", chosen[0]) if chosen else ("base",)
            went = f" ({', '.join(gone)} went with what it switches off)" if gone else ""
            raise self.file.fail(f"arm '{label}': {error}{went}", *place) from None
        return Resolved(config, substituted, gone)

    def unmet(self, chosen: Changes) -> str:
        """The requirement or conflict between toggles that excludes these changes.

        '' where there is none.
        """
        values = self._values(chosen).values
        try:
            check_requirements(to_config(values))
        except UserError as error:
            return str(error)
        return ""

    def refusal(self, chosen: Changes) -> str:
        """Why changes cannot stand together, by their requirements or by sizes; '' where they can.

        What this machine lacks is no such reason: such an arm is refused by name when it is
        resolved.
        """
        why = self.unmet(chosen)
        if why:
            return why
        values, asked, _ = self._values(chosen)
        try:
            config, _ = for_device(to_config(values), self.device, asked)
        except UserError:
            return ""
        try:
            check_config(config)
        except UserError as error:
            return str(error)
        return ""

    def _values(self, chosen: Changes) -> ArmValues:
        """An arm's values.

        In this order: preset, then records' changes, scale, `set`, the file's own changes, the
        factors of both, and last what goes with what is switched off.
        """
        values = dict(self.preset)
        given = dict(self.fixed.values)
        factors = [Factor(("set",), *pair) for pair in self.fixed.factors.items()]
        for name in chosen:
            entry = self.changes[name]
            target = values if entry.from_record else given
            target.update(entry.values)
            factors += [Factor(("changes", name), *pair) for pair in entry.factors.items()]
        scaled = self.scale.apply(values)
        on_steps = [factor for factor in factors if factor.field == STEPS]
        given.update(self._multiplied({**scaled, **given}, on_steps))
        resolved = {**scaled, **given}
        if resolved[STEPS] != scaled[STEPS]:
            resolved = {**with_budget(resolved, values), **given}
        others = [factor for factor in factors if factor.field != STEPS]
        given.update(self._multiplied(resolved, others))
        resolved = {**resolved, **given}
        gone = self._resting(resolved, chosen)
        return ArmValues({**resolved, **gone}, frozenset(given), tuple(gone))

    def _resting(self, values: Values, chosen: Changes) -> Values:
        """What requires a field that these changes switch off: dotted field -> its default."""
        entries = [self.changes[name] for name in chosen]
        said = {field for entry in entries for field in (*entry.values, *entry.factors)}
        out = {field for field in said if values[field] in OFF}
        return resting_on(to_config(values), out, said) if out else {}

    def _multiplied(self, values: Values, factors: Iterable[Factor]) -> Values:
        """What the fields of the factors are then; raises UserError where one is off."""
        multiples: NewValues = {}
        for factor in factors:
            field = factor.field
            before = multiples.get(field, values.get(field, off_value(field)))
            if before is None:
                raise self.file.fail(
                    f"{field} is off, so that there is nothing to multiply by x{factor.times:g}: "
                    "give it a number",
                    *factor.place,
                    field,
                )
            multiples[field] = multiplied(before, factor.times)
        return multiples


def read_base(file: ExperimentFile) -> str:
    """The record of the baseline; of `modern` the one that it is today."""
    return load_preset(_named(file, "base", None, "records", MODERN)).name


def read_scale(file: ExperimentFile) -> str:
    return _named(file, "scale", "gpt2", "scales")


def _named(file: ExperimentFile, key: str, default: str | None, kind: str, *others: str) -> str:
    """The record or scale that a key names; others: names besides those of files."""
    what = kind.removesuffix("s")
    name = str(file.value(key, str, default, f"the name of a {what}"))
    choices = [*names(kind), *others]
    if name not in choices:
        raise file.fail(f"unknown {what} '{name}'{near(name, choices)}", key)
    return name
