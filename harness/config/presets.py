"""Record presets as a chain of deltas: YAML in, dotted values with origins out."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from harness.config.run import (
    DEFAULTS,
    SECTIONS,
    NewValues,
    RunConfig,
    Values,
    flat,
    frozen,
    toggles,
    with_fields,
)
from harness.errors import UserError, near
from harness.optim.roles import ROWS, SETTINGS
from harness.run.renamed import in_todays_words, lines_in_todays_words
from harness.yamlfile import YamlFile

PACKAGED = Path(__file__).resolve().parent.parent / "experiments"
PRESET_KEYS = ("base", "title", "changes")
MODERN = "modern"  # the newest preset by another name
WhereOf = Callable[[str], str]  # dotted field -> 'file:line'


def search(kind: str) -> list[Path]:
    """Folders that may hold files of a kind ("records", "scales", ".").

    The working directory's come first.
    """
    here = Path(os.path.realpath(f"experiments/{kind}"))
    folders = dict.fromkeys((here, _packaged(kind)))
    return [folder for folder in folders if folder.is_dir()]


@cache
def _packaged(kind: str) -> Path:
    return (PACKAGED / kind).resolve()


def find(kind: str, name: str, what: str) -> Path:
    """The file of a name; a near miss is suggested."""
    path = _in_folders(search(kind), name)
    if path is None:
        raise UserError(f"unknown {what} '{name}'{near(name, names(kind))}")
    return path


def _in_folders(folders: Iterable[Path], name: str) -> Path | None:
    for folder in folders:
        path = os.path.join(folder, f"{name}.yaml")
        if os.path.isfile(path):
            return Path(path)
    return None


def names(kind: str) -> list[str]:
    """The names of all files of a kind."""
    files = {file for folder in search(kind) for file in os.listdir(folder)}
    return sorted(file.removesuffix(".yaml") for file in files if file.endswith(".yaml"))


@dataclass(frozen=True, kw_only=True)
class Change:
    """A named toggle setting: dotted fields and the values a record gives them."""

    name: str
    record: str
    values: Values


@dataclass(frozen=True, kw_only=True)
class Preset:
    name: str
    title: str
    base: str | None
    changes: Mapping[str, Change]
    path: Path

    @property
    def chain(self) -> "list[Preset]":
        """This preset and all it stands on, the first record first."""
        folders, chain = search("records"), [self]
        while (base := chain[0].base) is not None:
            path = _in_folders(folders, base)  # None for `modern`, and for a name of none
            below = load_preset(base) if path is None else _load(path)
            if below in chain:
                raise UserError(
                    f"{read_file(chain[0].path).where('base')}: base {base} stands on "
                    f"{chain[0].name} itself: name another"
                )
            chain.insert(0, below)
        return chain


def check_names(values: Iterable[str], where: WhereOf, plugins: Iterable[str] = ()) -> None:
    """Refuse a dotted name that is no field of the configuration.

    where(name) gives 'file:line' for the message. plugins: the fields of those in force.
    """
    fields = dict.fromkeys([*(name for name, _ in toggles()), *plugins])
    for name in values:
        if name not in fields:
            raise UserError(f"{where(name)}: {_no_field(str(name), list(fields))}")


def _no_field(name: str, fields: Sequence[str]) -> str:
    """That a name is no field, and what is near it, or how one comes to be."""
    section, _, key = name.partition(".")
    if section == "plugin":
        file = key.partition(".")[0]
        if any(field.startswith(f"plugin.{file}.") for field in fields):
            return f"{name} is not a field of plugin{near(name, fields)}"
        return (
            f"{name} is a field of plug-in {file}.py, which `plugins` does not name: "
            f"add plugins: [{file}.py]{_near_plugin(file, key, fields)}"
        )
    by_key: dict[str, list[str]] = {}
    for field in fields:
        by_key.setdefault(field.rpartition(".")[2], []).append(field)
    of_section = {
        field.partition(".")[2]: field for field in fields if field.startswith(f"{section}.")
    }
    if section not in SECTIONS:
        same = by_key.get(key or section)
        hint = f"; did you mean '{same[0]}'?" if same else near(name, fields)
        hint = hint or ": see `ablate toggles` for what there is"
        return f"'{name}' is not a field of the configuration{hint}"
    if key in by_key:
        return f"{name} is not a field of {section}; did you mean '{by_key[key][0]}'?"
    for row, setting in product(ROWS, SETTINGS):
        if name == f"optim.{row}_{setting}":
            there = ", ".join(f"optim.{row}_{read}" for read in ROWS[row].settings)
            return f"{name} is no field: what moves {row} reads no {setting}; there is {there}"
    close = get_close_matches(key, of_section, n=1)
    if close:
        return f"{name} is not a field of {section}; did you mean '{of_section[close[0]]}'?"
    return (
        f"{name}: there is none, see `ablate toggles` for what there is; "
        f"`ablate new-change {key}` begins a plug-in that adds it (docs/your-idea.md)"
    )


def _near_plugin(file: str, key: str, fields: Sequence[str]) -> str:
    """The field of a plug-in in force whose name is nearly this one's, else nothing."""
    for field in fields:
        section, _, there = field.partition(".")
        other = there.partition(".")[0]
        same_key = there.partition(".")[2] == key.partition(".")[2]
        if section == "plugin" and same_key and get_close_matches(file, [other], n=1):
            return f"; or did you mean '{field}'?"
    return ""


def read_file(path: Path) -> YamlFile:
    """A file in today's words."""
    file = YamlFile(path)
    file.data = in_todays_words(file.data, file.where)
    file.lines = lines_in_todays_words(file.lines)
    return file


@cache
def _load(path: Path) -> Preset:
    file = read_file(path)
    for key in file.data:
        if key not in PRESET_KEYS:
            hint = near(str(key), PRESET_KEYS)
            raise UserError(f"{file.where(str(key))}: unknown key '{key}'{hint}")
    changes = {}
    for name, values in (file.data.get("changes") or {}).items():
        changes[name] = _change(file, name, values)
    return Preset(
        name=path.stem,
        title=file.data.get("title", path.stem),
        base=file.data.get("base"),
        changes=changes,
        path=path,
    )


def _change(file: YamlFile, name: str, values: Any) -> Change:
    def where(field: str) -> str:
        return file.where("changes", name, field)

    if not isinstance(values, dict):
        raise UserError(
            f"{file.where('changes', name)}: change '{name}' must be a mapping of dotted fields "
            "to values"
        )
    check_names(values, where)
    return Change(name=name, record=file.path.stem, values=frozen_values(values))


def frozen_values(values: Values) -> NewValues:
    return {name: frozen(value) for name, value in values.items()}


def load_preset(name: str) -> Preset:
    """The preset of a record, from experiments/records; 'modern' is the newest one here."""
    if name == MODERN and MODERN not in names("records"):
        name = newest()
    return _load(find("records", name, "record"))


def newest() -> str:
    """The latest record that has a preset of ours."""
    return max(path.stem for path in (PACKAGED / "records").glob("r[0-9][0-9].yaml"))


def preset_values(name: str) -> tuple[NewValues, dict[str, str]]:
    """All dotted values of a preset and the origin of each: 'default', or 'record change'."""
    values = flat(DEFAULTS)
    origin = dict.fromkeys(values, "default")
    for preset in load_preset(name).chain:
        for change in preset.changes.values():
            values.update(change.values)
            origin.update(dict.fromkeys(change.values, f"{preset.name} {change.name}"))
    return values, origin


def to_config(values: Values) -> RunConfig:
    """The configuration of dotted values (taken as validated)."""
    return with_fields(DEFAULTS, values)
