"""What an experiment file sets: `set` for every arm, and `changes`, taken from records or spelled out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.config import plugins
from harness.config.presets import Values, check_names, frozen, load_preset, names
from harness.config.validate import check_values
from harness.errors import near
from harness.experiment.designs import BASELINE
from harness.experiment.file import ExperimentFile
from harness.provenance.interpreters import is_environment, located


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of `changes`. A record's values are scaled with the arm's, those spelled out are taken as they are."""

    values: Values
    from_record: bool
    runs_in: Mapping[str, str] = field(
        default_factory=dict
    )  # another environment: {python: PATH} or {container: COMMAND}


def read_fixed(file: ExperimentFile) -> Values:
    """`set` and the fields of --set: values of every arm."""
    where = lambda field: file.where("set", field) if field not in file.overrides else "--set"  # noqa: E731
    fixed = {
        **file.value("set", dict, {}, "a mapping of dotted fields to values"),
        **file.overrides,
    }
    check_names(fixed, where, plugins.declared())
    return check_values({k: frozen(v) for k, v in fixed.items()}, where)


def read_changes(file: ExperimentFile) -> dict[str, Entry]:
    return {
        str(name): _entry(file, name, value)
        for name, value in file.value("changes", dict, {}, "a mapping").items()
    }


def _entry(file: ExperimentFile, name: Any, value: Any) -> Entry:
    place = ("changes", str(name))
    if (
        name == BASELINE
        or not str(name).isprintable()
        or any(mark in str(name) for mark in (" + ", " @ "))
    ):
        raise file.fail(
            f"a change cannot be called {name!r}: arms are named by their changes, with ' + ' and ' @ '",
            *place,
        )
    if isinstance(value, str):
        return Entry(values=_of_record(file, name, value), from_record=True)
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        together = {k: v for text in value for k, v in _of_record(file, name, text).items()}
        return Entry(values=together, from_record=True)
    if not isinstance(value, dict) or not value:
        raise file.fail(
            f"change '{name}' must be RECORD.CHANGE or a mapping of dotted fields to values", *place
        )
    where = file.at(*place)
    environment = value.get("environment", {})
    if "environment" in value and not is_environment(environment):
        message = f"environment is {environment!r}, but must be {{python: PATH}} or {{container: COMMAND}}"
        raise file.fail(message, *place, "environment")
    value = {k: v for k, v in value.items() if k != "environment"}
    check_names(value, where, plugins.declared())
    values = check_values({k: frozen(v) for k, v in value.items()}, where)
    return Entry(values=values, from_record=False, runs_in=located(environment, file.path.parent))


def _of_record(file: ExperimentFile, name: str, text: str) -> Values:
    """The values of RECORD.CHANGE."""
    record, _, change = text.partition(".")
    if record not in names("records"):
        message = f"change '{name}' is taken from unknown record '{record}'{near(record, names('records'))}"
        raise file.fail(message, "changes", name)
    available = load_preset(record).changes
    if change not in available:
        raise file.fail(
            f"unknown change '{change}' of {record}{near(change, available)}", "changes", name
        )
    return dict(available[change].values)
