"""Scales: sizes for presets, factors on what they say, and what differs from a record on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

from harness.config.depth import at_depth
from harness.config.presets import (
    check_names,
    find,
    frozen_values,
    load_preset,
    names,
    read_file,
)
from harness.config.run import NewValues, Values
from harness.errors import UserError, near
from harness.run.document import Document
from harness.yamlfile import YamlFile

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
SCALE_KEYS = ("set", "layers", "rates", "factor", "noise", "since")
ERA_KEYS = ("rates", "factor", "noise")  # that may differ from a record on
NOISE_KEYS = {"sd", "df", "source"}


@dataclass(frozen=True, kw_only=True)
class ScaleNoise:
    """The noise of one run's final loss at a scale, and where it was seen."""

    sd: float
    df: int
    source: str
    corpus: str | None = None  # None: the file does not say


@dataclass(frozen=True, kw_only=True)
class Era:
    """What a scale's file says for some bases."""

    rates: str | None  # where its learning rates are from
    factors: Mapping[str, Fraction]
    noise: ScaleNoise | None

    def followed_by(self, later: "Era") -> "Era":
        """What holds where both do: the later one's word, and what it leaves open."""
        return Era(
            rates=later.rates or self.rates,
            factors={**self.factors, **later.factors},
            noise=later.noise or self.noise,
        )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes of a small or full model: absolute values, and factors on what the preset says."""

    name: str
    values: Values
    layers: Mapping[int, tuple[int, ...]]  # of a preset with so many: which are kept
    era: Era

    def apply(self, values: Values) -> NewValues:
        """Preset values at this scale.

        Learning rates scale the effective spectral rate lr * update scale.
        """
        kept = self.layers.get(values["model.n_layer"])
        scaled = {**(at_depth(values, kept) if kept else values), **self.values}
        for name, factor in self.era.factors.items():
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
    """A scale from experiments/scales, as it is for a base; 'gpt2' is the presets' own size."""
    file = read_file(find("scales", name, "scale"))
    _refuse_others(file, file.data, SCALE_KEYS)
    values = file.data.get("set") or {}
    check_names(values, lambda field: file.where("set", field))
    era = _era(file, file.data)
    on_the_way = {preset.name for preset in load_preset(base).chain}
    for record, section in (file.data.get("since") or {}).items():
        place = ("since", record)
        if record not in names("records"):
            hint = near(record, names("records"))
            raise UserError(f"{file.where(*place)}: unknown record '{record}'{hint}")
        _refuse_others(file, section, ERA_KEYS, *place)
        later = _era(file, section, *place)
        if record in on_the_way:
            era = era.followed_by(later)
    return Scale(name=name, values=frozen_values(values), layers=_layers(file, values), era=era)


def _refuse_others(file: YamlFile, section: Document, keys: Sequence[str], *place: str) -> None:
    for key in section:
        if key not in keys:
            raise UserError(
                f"{file.where(*place, key)}: unknown key '{key}', there may be "
                f"{', '.join(keys)}{near(key, keys)}"
            )


def _era(file: YamlFile, section: Document, *place: str) -> Era:
    """A section's factors, noise and origin of rates, checked."""
    factors = section.get("factor") or {}
    check_names(factors, lambda field: file.where(*place, "factor", field))
    noise = section.get("noise") or {}
    sound = set(noise) - {"corpus"} == NOISE_KEYS and noise["sd"] > 0 and noise["df"] >= 1
    if noise and not sound:
        raise UserError(
            f"{file.where(*place, 'noise')}: noise needs sd > 0, df >= 1 and source, the baseline "
            "runs that it was seen in"
        )
    return Era(
        rates=section.get("rates"),
        factors={field: Fraction(str(factor)) for field, factor in factors.items()},
        noise=ScaleNoise(**noise) if noise else None,
    )


def _layers(file: YamlFile, values: Values) -> Mapping[int, tuple[int, ...]]:
    """Of a preset with so many layers those that are kept."""
    n_layer = values.get("model.n_layer")
    layers = {n: tuple(kept) for n, kept in (file.data.get("layers") or {}).items()}
    for n, kept in layers.items():
        if sorted(set(kept)) != [*kept] or len(kept) != n_layer:
            raise UserError(
                f"{file.where('layers', str(n))}: layers {list(kept)} of {n} must be as many as "
                f"model.n_layer={n_layer}, in ascending order: mend the list"
            )
    return layers
