"""Record presets as a chain of deltas, and scales: YAML in, dotted values with origins out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

from harness.config.depth import at_depth
from harness.config.run import (
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
# these keep their fraction of the budget
RESCALED_WITH_STEPS = (
    "schedule.warmup_steps",
    "schedule.cooldown_steps",
    "schedule.extension_steps",
)
# of a scale's number of steps, but not of a budget
RESCALED_WITH_SCALE = (
    "optim.muon_momentum_warmup_steps",
    "optim.muon_momentum_cooldown_steps",
    "optim.scalar_freeze_steps",
)
PRESET_KEYS = ("base", "title", "changes")
NOISE_KEYS = {"sd", "df", "source"}
SCALE_KEYS = ("set", "layers", "rates", "factor", "noise", "since")
ERA_KEYS = ("rates", "factor", "noise")  # of a scale, that may differ from a record on
MODERN = "modern"  # the newest preset by another name
WhereOf = Callable[[str], str]  # dotted field -> 'file:line'


def search(kind: str) -> list[Path]:
    """Folders that may hold files of a kind ("records", "scales", ".").

    The working directory's come first.
    """
    here = (Path.cwd() / "experiments" / kind).resolve()
    folders = dict.fromkeys((here, _packaged(kind)))
    return [folder for folder in folders if folder.is_dir()]


@cache
def _packaged(kind: str) -> Path:
    return (PACKAGED / kind).resolve()


def find(kind: str, name: str, what: str) -> Path:
    """The file of a name; a near miss is suggested."""
    for folder in search(kind):
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise UserError(f"unknown {what} '{name}'{near(name, names(kind))}")


def names(kind: str) -> list[str]:
    """The names of all files of a kind."""
    stems = {path.stem for folder in search(kind) for path in folder.glob("*.yaml")}
    return sorted(stems)


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
        if self.base is None:
            return [self]
        return [*load_preset(self.base).chain, self]


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


def _read(path: Path) -> YamlFile:
    """A file in today's words."""
    file = YamlFile(path)
    file.data = in_todays_words(file.data, file.where)
    file.lines = lines_in_todays_words(file.lines)
    return file


@cache
def _load(path: Path) -> Preset:
    file = _read(path)
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
    return Change(name=name, record=file.path.stem, values=_frozen_values(values))


def _frozen_values(values: Values) -> NewValues:
    return {name: frozen(value) for name, value in values.items()}


def load_preset(name: str) -> Preset:
    """The preset of a record, from experiments/records; 'modern' is the newest one here."""
    if name == MODERN and MODERN not in names("records"):
        name = newest()
    return _load(find("records", name, "record"))


def newest() -> str:
    """The latest record that has a preset of ours."""
    return max(path.stem for path in (PACKAGED / "records").glob("r[0-9][0-9].yaml"))


@dataclass(frozen=True, kw_only=True)
class ScaleNoise:
    """The noise of one run's final loss at a scale, and where it was seen."""

    sd: float
    df: int
    source: str
    corpus: str | None = None  # None: the file does not say


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes of a small or full model: absolute values, and factors on what the preset says."""

    name: str
    rates: str | None  # where its learning rates are from
    values: Values
    factors: Mapping[str, Fraction]
    layers: Mapping[int, tuple[int, ...]]  # of a preset with so many: which are kept
    noise: "ScaleNoise | None"

    def apply(self, values: Values) -> NewValues:
        """Preset values at this scale.

        Learning rates scale the effective spectral rate lr * update scale.
        """
        kept = self.layers.get(values["model.n_layer"])
        scaled = {**(at_depth(values, kept) if kept else values), **self.values}
        for name, factor in self.factors.items():
            before = values.get(name)
            if name == "optim.muon_lr" and values["optim.matrix_optimizer"] == "adamw":
                continue  # record 2 has no such rate to scale
            if isinstance(before, int):
                scaled[name] = max(1, round(before * factor))
            elif isinstance(before, tuple):
                scaled[name] = tuple(max(1, round(part * factor)) for part in before)
            elif before is not None:
                scaled[name] = before * float(factor)
        # these scales of the update grow with the square root of the width
        if values["optim.update_scale"] in ("unit_rms", "sqrt_max"):
            narrowing = values["model.d_model"] / scaled["model.d_model"]
            scaled["optim.muon_lr"] *= sqrt(narrowing)
        if scaled["schedule.steps"] != values["schedule.steps"]:
            scaled = with_budget(scaled, values, extra=RESCALED_WITH_SCALE)
        return scaled


def with_budget(out: NewValues, before: Values, extra: tuple[str, ...] = ()) -> NewValues:
    """Values whose steps were changed, with warm-up and cooldown at the same fraction of them."""
    ratio = out["schedule.steps"] / before["schedule.steps"]
    for name in (*RESCALED_WITH_STEPS, *extra):
        if before[name]:
            out[name] = max(1, round(before[name] * ratio))
    return out


def load_scale(name: str, base: str) -> Scale:
    """A scale from experiments/scales, for a base; 'gpt2' is the presets' own size."""
    file = _read(find("scales", name, "scale"))
    for key in file.data:
        if key not in SCALE_KEYS:
            raise UserError(f"{file.where(key)}: unknown key '{key}'{near(key, SCALE_KEYS)}")
    values = file.data.get("set") or {}
    check_names(values, lambda field: file.where("set", field))
    era = _era(file, file.data)
    on_the_way = {preset.name for preset in load_preset(base).chain}
    for record, later in (file.data.get("since") or {}).items():
        place = ("since", record)
        if record not in names("records"):
            hint = near(record, names("records"))
            raise UserError(f"{file.where(*place)}: unknown record '{record}'{hint}")
        for key in later:
            if key not in ERA_KEYS:
                raise UserError(
                    f"{file.where(*place, key)}: '{key}' is none of {', '.join(ERA_KEYS)}, which "
                    f"may differ from a record on{near(key, ERA_KEYS)}"
                )
        differing = _era(file, later, *place)
        if record in on_the_way:
            factors = {**era["factor"], **differing["factor"]}
            era = {**era, **differing, "factor": factors}
    noise = era.get("noise")
    layers = {n: tuple(kept) for n, kept in (file.data.get("layers") or {}).items()}
    for n, kept in layers.items():
        if sorted(set(kept)) != [*kept] or len(kept) != values.get("model.n_layer"):
            raise UserError(
                f"{file.where('layers', str(n))}: layers {list(kept)} of {n} must be as many as "
                f"model.n_layer={values.get('model.n_layer')}, in ascending order: mend the list"
            )
    return Scale(
        name=name,
        rates=era.get("rates"),
        values=_frozen_values(values),
        factors={field: Fraction(str(factor)) for field, factor in era["factor"].items()},
        layers=layers,
        noise=ScaleNoise(**noise) if noise else None,
    )


def _era(file: YamlFile, section: Mapping[str, Any], *place: str) -> dict[str, Any]:
    """What a scale's file says for bases from a record on, its factors and its noise checked."""
    era = {key: section[key] for key in ERA_KEYS if section.get(key)}
    factors = era.setdefault("factor", {})
    check_names(factors, lambda field: file.where(*place, "factor", field))
    noise = era.get("noise")
    if noise is not None:
        sound = set(noise) - {"corpus"} == NOISE_KEYS and noise["sd"] > 0 and noise["df"] >= 1
        if not sound:
            raise UserError(
                f"{file.where(*place, 'noise')}: noise needs sd > 0, df >= 1 and source, the "
                "baseline runs that it was seen in"
            )
    return era


def preset_values(name: str) -> tuple[NewValues, dict[str, str]]:
    """All dotted values of a preset and the origin of each: 'default', or 'record change'."""
    values = flat(RunConfig())
    origin = dict.fromkeys(values, "default")
    for preset in load_preset(name).chain:
        for change in preset.changes.values():
            values.update(change.values)
            origin.update(dict.fromkeys(change.values, f"{preset.name} {change.name}"))
    return values, origin


def to_config(values: Values) -> RunConfig:
    """The configuration of dotted values (taken as validated)."""
    return with_fields(RunConfig(), values)
