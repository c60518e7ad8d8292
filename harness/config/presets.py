"""Record presets as a chain of deltas, and scales: YAML files in, dotted values with their origin out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

from harness.config.run import RunConfig, flat, toggles, with_fields
from harness.errors import UserError, near
from harness.yamlfile import YamlFile

PACKAGED = Path(__file__).resolve().parent.parent / "experiments"
RESCALED_WITH_STEPS = (
    "schedule.warmup_steps",
    "schedule.cooldown_steps",
)  # keep their fraction of the budget
Values = dict[str, Any]  # dotted field -> value


def search(kind: str) -> list[Path]:
    """Folders that may hold files of a kind ("records", "scales", "."): the working directory's come first."""
    here = Path.cwd() / "experiments" / kind
    return [p for p in dict.fromkeys((here.resolve(), (PACKAGED / kind).resolve())) if p.is_dir()]


def find(kind: str, name: str, what: str) -> Path:
    """The file of a name; a near miss is suggested."""
    for folder in search(kind):
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise UserError(f"unknown {what} '{name}'{near(name, names(kind))}")


def names(kind: str) -> list[str]:
    found = {p.stem for folder in search(kind) for p in folder.glob("*.yaml")}
    return sorted(found)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A named toggle setting: dotted fields and the values a record gives them."""

    name: str
    record: str
    values: Mapping[str, Any]


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
        return [*(load_preset(self.base).chain if self.base else []), self]


def frozen(value: Any) -> Any:
    """Lists of a YAML file as tuples."""
    return tuple(frozen(v) for v in value) if isinstance(value, list) else value


def check_names(values: Mapping[str, Any], where: Any, plugins: Iterable[str] = ()) -> None:
    """Refuse a dotted name that is no field of the configuration. where(name) gives 'file:line' for the message."""
    known = [*(name for name, _ in toggles()), *plugins]
    for name in values:
        if name not in known:
            section = str(name).partition(".")[0]
            if section not in (f.name for f in fields(RunConfig)):
                raise UserError(
                    f"{where(name)}: '{name}' is not a field of the configuration{near(str(name), known)}"
                )
            raise UserError(
                f"{where(name)}: {name} is not a field of {section}{near(str(name), known)}"
            )


@cache
def _load(path: Path) -> Preset:
    file = YamlFile(path)
    for key in file.data:
        if key not in ("base", "title", "changes"):
            raise UserError(
                f"{file.where(str(key))}: unknown key '{key}'{near(str(key), ('base', 'title', 'changes'))}"
            )
    changes = {}
    for name, values in (file.data.get("changes") or {}).items():
        if not isinstance(values, dict):
            raise UserError(
                f"{file.where('changes', name)}: change '{name}' must be a mapping of dotted fields to values"
            )
        check_names(values, lambda field, change=name: file.where("changes", change, field))
        changes[name] = Change(
            name=name, record=path.stem, values={k: frozen(v) for k, v in values.items()}
        )
    return Preset(
        name=path.stem,
        title=file.data.get("title", path.stem),
        base=file.data.get("base"),
        changes=changes,
        path=path,
    )


def load_preset(name: str) -> Preset:
    """The preset of a record, from experiments/records."""
    return _load(find("records", name, "record"))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes of a small or full model: absolute values, and factors on what the preset says."""

    name: str
    values: Mapping[str, Any]
    factors: Mapping[str, Fraction]
    noise: Mapping[
        str, Any
    ]  # sd of one run's final loss, its df, and where it was seen; empty where none is recorded

    def apply(self, values: Values) -> Values:
        """Preset values at this scale. Learning rates scale the effective spectral rate lr * update scale."""
        out = {**values, **self.values}
        idle = (
            {"optim.muon_lr"} if values["optim.matrix_optimizer"] == "adamw" else set()
        )  # record 2 has no such rate to scale
        for name, factor in self.factors.items():
            if values.get(name) is not None and name not in idle:
                out[name] = (
                    max(1, round(values[name] * factor))
                    if isinstance(values[name], int)
                    else values[name] * float(factor)
                )
        if values["optim.update_scale"] in (
            "unit_rms",
            "sqrt_max",
        ):  # these scales grow with the square root of the width
            out["optim.muon_lr"] *= sqrt(values["model.d_model"] / out["model.d_model"])
        if out["schedule.steps"] != values["schedule.steps"]:
            out = with_budget(out, values, extra=("optim.muon_momentum_warmup_steps",))
        return out


def with_budget(out: Values, before: Values, extra: tuple[str, ...] = ()) -> Values:
    """Values whose steps were changed, with warm-up and cooldown at the same fraction of them."""
    ratio = out["schedule.steps"] / before["schedule.steps"]
    for name in (*RESCALED_WITH_STEPS, *extra):
        if before[name]:
            out[name] = max(1, round(before[name] * ratio))
    return out


def load_scale(name: str) -> Scale:
    """A scale from experiments/scales; 'gpt2' is the presets' own size."""
    file = YamlFile(find("scales", name, "scale"))
    values, factors = file.data.get("set") or {}, file.data.get("factor") or {}
    check_names(
        {**values, **factors},
        lambda field: file.where("set" if field in values else "factor", field),
    )
    noise = file.data.get("noise") or {}
    if noise and not (
        set(noise) == {"sd", "df", "source"} and noise["sd"] > 0 and noise["df"] >= 1
    ):
        raise UserError(
            f"{file.where('noise')}: noise needs sd > 0, df >= 1 and source, the baseline runs that it was seen in"
        )
    return Scale(
        name=name,
        values={k: frozen(v) for k, v in values.items()},
        factors={k: Fraction(str(v)) for k, v in factors.items()},
        noise=noise,
    )


def preset_values(name: str) -> tuple[Values, dict[str, str]]:
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
