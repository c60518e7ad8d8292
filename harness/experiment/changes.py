"""What an experiment file sets: `set` for every arm, and `changes`, of records or spelled out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.config import plugins
from harness.config.presets import check_names, frozen, load_preset, names
from harness.config.run import NewValues, Values
from harness.errors import Mistakes, near
from harness.experiment.designs import BASELINE
from harness.experiment.file import ExperimentFile, factor_of
from harness.experiment.values import check_values, holds_number
from harness.provenance.interpreters import is_environment, located
from harness.run.document import Fields


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of `changes`.

    A record's values are scaled with the arm's, those spelled out are taken as they are; factors
    are on what the arm has otherwise.
    """

    values: Values
    from_record: bool = False
    factors: Mapping[str, float] = field(default_factory=dict)
    # another environment: {python: PATH} or {container: COMMAND}
    runs_in: Mapping[str, str] = field(default_factory=dict)


def read_fixed(file: ExperimentFile) -> Entry:
    """`set` and the fields of --set: values and factors of every arm."""

    def where(name: str) -> str:
        if name in file.overrides:
            return "--set"
        return file.where("set", name)

    of_file = file.value("set", dict, {}, "a mapping of dotted fields to values")
    return _checked({**of_file, **file.overrides}, where)


def _checked(values: Fields, where: Callable[..., str]) -> Entry:
    """Values of dotted fields, names and types checked; where(name) is the place of one."""
    declared, mistakes = plugins.declared(), Mistakes()
    factors: dict[str, float] = {}
    checked: NewValues = {}
    for name, value in values.items():
        with mistakes.gathered():
            check_names([name], where, declared)
            factor = factor_of(value)
            if factor is not None and holds_number(name):
                factors[name] = factor
            else:
                checked |= check_values({name: frozen(value)}, where)
    mistakes.refuse()
    return Entry(values=checked, factors=factors)


def read_changes(file: ExperimentFile) -> dict[str, Entry]:
    changes, mistakes = {}, Mistakes()
    if file.data.get("changes", {}) is None:
        raise file.fail(
            "changes is empty: name some, such as softcap: r09.softcap, "
            "or leave it out beside axes",
            "changes",
        )
    for name, value in file.value("changes", dict, {}, "a mapping").items():
        with mistakes.gathered():
            changes[str(name)] = _entry(file, name, value)
    mistakes.refuse()
    return changes


def _entry(file: ExperimentFile, name: Any, value: Any) -> Entry:
    place = ("changes", str(name))
    if not _is_change_name(name):
        raise file.fail(
            f"a change cannot be called {name!r}: arms are named by their changes, "
            "with ' + ' and ' @ '",
            *place,
        )
    if isinstance(value, str) and factor_of(value) is not None:
        raise file.fail(
            f"change '{name}' is a factor of no field: name it, such as {{optim.muon_lr: {value}}}",
            *place,
        )
    if isinstance(value, str):
        return Entry(values=_of_record(file, name, value), from_record=True)
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        together: NewValues = {}
        for text in value:
            together.update(_of_record(file, name, text))
        return Entry(values=together, from_record=True)
    if not isinstance(value, dict) or not value:
        raise file.fail(
            f"change '{name}' must be RECORD.CHANGE or a mapping of dotted fields to values",
            *place,
        )
    environment = value.get("environment", {})
    if "environment" in value and not is_environment(environment):
        raise file.fail(
            f"environment is {environment!r}, but must be {{python: PATH}} "
            "or {container: COMMAND}",
            *place,
            "environment",
        )
    fields = {key: v for key, v in value.items() if key != "environment"}
    entry = _checked(fields, file.at(*place))
    return replace(entry, runs_in=located(environment, file.path.parent))


def _is_change_name(name: Any) -> bool:
    text = str(name)
    if name == BASELINE or " + " in text or " @ " in text:
        return False
    return text.isprintable()


def _of_record(file: ExperimentFile, name: str, text: str) -> Values:
    """The values of RECORD.CHANGE."""
    record, _, change = text.partition(".")
    if record not in names("records"):
        message = (
            f"change '{name}' is taken from unknown record "
            f"'{record}'{near(record, names('records'))}"
        )
        raise file.fail(message, "changes", name)
    available = load_preset(record).changes
    if change not in available:
        raise file.fail(
            f"unknown change '{change}' of {record}{near(change, available)}", "changes", name
        )
    return dict(available[change].values)
