"""One run's configuration: sections of model/, optim/ and the harness in a frozen RunConfig.

Standard library only, so that the training core runs on a bare GPU image. The file boundary
(harness/experiment/values.py) validates YAML against these same dataclasses. Metadata of a toggle
as in model/config.py.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import Field, asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, TypeVar, get_type_hints

from harness.config.schedule_config import ScheduleConfig
from harness.data.config import DataConfig
from harness.model.config import ModelConfig, toggle
from harness.model.loss_config import LossConfig
from harness.optim.config import OptimConfig

BLOCK = 128  # tokens in one block of a block window; fixed by the records' kernels
UNTIMED_STEPS = 10  # protocol skip10: records 3 to 20 compile and tune their kernels in these
# a validation loss beyond this many times the first one has exploded, in our own trainer beyond
# that many times ln(vocabulary) too
EXPLODED = 2.0


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    mode: Literal["record", "fp32"] = toggle(
        "record",
        record="r02",
        affects=("precision", "loss"),
        doc="the record's roundings, or fp32 throughout (every cast a no-op, by-dtype epsilon "
        "2^-23)",
        choices={"record": "r02"},
    )
    policy: Literal["autocast", "bf16_model", "bf16_embeds"] = toggle(
        "autocast",
        record="r02",
        affects=("parameters", "initial", "precision", "loss"),
        choices={"bf16_model": "r10", "bf16_embeds": "r18"},
        rounds=True,
        doc="fp32 parameters under bf16 autocast; all bf16 but the linears; bf16 tables only",
    )
    val_fp32: bool = toggle(
        False,
        record="r02",
        affects=("validation",),
        doc="validation runs outside autocast, in fp32",
        choices={True: "r02"},
        rounds=True,
        requires={
            True: {
                "precision.policy": ("autocast",),
                "model.attn_kernel": ("sdpa", "math", "dense", "flex"),
            }
        },
    )
    val_grad: bool = toggle(
        False,
        record="r05",
        affects=("validation",),
        doc="validation keeps the graph (a compile problem was being dodged)",
    )


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    accumulate: Literal["mean", "sum"] = toggle(
        "mean",
        record="r02",
        affects=("loss",),
        choices={"sum": "r18"},
        doc="micro-step gradients of a rank are averaged, or summed",
    )
    no_sync: bool = toggle(
        False,
        record="r04",
        affects=("comm",),
        doc="gradients are reduced on the last micro-step only",
    )
    bucket_view: bool = toggle(
        False, record="r16", affects=("comm",), doc="DDP gradients are views into its buckets"
    )
    broadcast_buffers: bool = toggle(
        True,
        record="r02",
        affects=("comm",),
        doc="DDP broadcasts buffers at every forward",
        choices={False: "r16"},
    )
    compile: Literal["auto", "on", "off"] = toggle(
        "auto",
        record="r02",
        affects=("runtime",),
        doc="torch.compile of the model and the orthogonalisation; auto: on CUDA only",
        choices={"auto": "r02"},
    )
    coordinate_descent: bool = toggle(
        False,
        record="r02",
        affects=("runtime",),
        doc="Inductor's coordinate_descent_tuning",
        choices={True: "r02", False: "r18"},
    )
    skip_guards: bool = toggle(
        False,
        record="r16",
        affects=("runtime",),
        doc="the compiler skips guard evaluation from step 5 on",
    )
    expandable_segments: bool = toggle(
        False, record="r17", affects=("runtime",), doc="CUDA allocator with expandable segments"
    )
    cuda_warm_start: bool = toggle(
        False,
        record="r18",
        affects=("runtime",),
        doc="a one-element backward pass before anything else on CUDA",
    )
    checkpoint: Literal["none", "final", "every"] = toggle(
        "none",
        record="r02",
        affects=("runtime",),
        doc="save model and optimizers never, at the end, or every checkpoint_every updates; "
        "outside the clock",
        choices={"every": "r02", "none": "r17"},
    )
    checkpoint_every: int | None = toggle(
        None,
        record="r02",
        affects=("runtime",),
        example=3,
        doc="updates between two checkpoints; null: at each validation",
        ge=1,
        requires={"*": {"system.checkpoint": ("every",)}},
    )


@dataclass(frozen=True, kw_only=True)
class TimingConfig:
    protocol: Literal["warmup-restore", "skip10"] = toggle(
        "warmup-restore",
        record="r04",
        affects=("clock",),
        choices={"skip10": "r04"},
        doc="warm up on dummy data, restore everything, then start the clock; or leave the first "
        "10 updates untimed",
    )
    exclusive_node: bool = toggle(
        False, record="r02", affects=("placement",), doc="a timing run has the node to itself"
    )


Values = Mapping[str, Any]  # dotted field -> value
NewValues = dict[str, Any]  # the same, while it is put together
Hints = Mapping[str, Any]  # field -> its type
Fixed = TypeVar("Fixed")  # a section, or all of them
PlainConfig = dict[str, dict[str, Any]]  # section -> field -> value, as YAML and JSON hold them


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides what a run computes, but its seed."""

    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    system: SystemConfig = field(default_factory=SystemConfig)
    timing: TimingConfig = field(default_factory=TimingConfig)
    # dotted plug-in toggles: {"file.field": value}
    plugin: Values = field(default_factory=dict)


DEFAULTS = RunConfig()  # shared, as is its empty `plugin`: nobody writes into them
SECTIONS = ("model", "optim", "schedule", "loss", "data", "precision", "system", "timing")


@cache
def toggles() -> tuple[tuple[str, Field], ...]:
    """Every toggle as (dotted name, dataclass field), in the order of declaration."""
    declared = []
    for section in SECTIONS:
        for f in fields(getattr(DEFAULTS, section)):
            declared.append((f"{section}.{f.name}", f))
    return tuple(declared)


def hint_of(name: str) -> Any:
    """The type of a dotted field."""
    section, _, key = name.partition(".")
    return _hints(section)[key]


@cache
def _hints(section: str) -> Hints:
    return get_type_hints(type(getattr(DEFAULTS, section)))


def get(config: RunConfig, name: str) -> Any:
    """The value of a dotted field."""
    section, _, key = name.partition(".")
    if section == "plugin":
        return config.plugin[key]
    return getattr(getattr(config, section), key)


def with_fields(config: RunConfig, values: Values) -> RunConfig:
    """A copy with dotted fields replaced; names and values are taken as validated."""
    by_section: dict[str, NewValues] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        by_section.setdefault(section, {})[key] = value
    changed: NewValues = {}
    for section, new in by_section.items():
        if section == "plugin":
            changed[section] = {**config.plugin, **new}
        else:
            changed[section] = _with(getattr(config, section), new)
    return _with(config, changed)


def _with(given: Fixed, new: Values) -> Fixed:
    """A copy with fields replaced, of what has nothing but fields.

    `dataclasses.replace` would set a hundred others again.
    """
    if unknown := new.keys() - vars(given).keys():
        raise TypeError(f"{type(given).__name__} has no field {', '.join(sorted(unknown))}")
    made = copy(given)
    vars(made).update(new)
    return made


def flat(config: RunConfig) -> NewValues:
    """Dotted names to plain values, in the order of declaration."""
    values: NewValues = {}
    for section in SECTIONS:
        for key, value in vars(getattr(config, section)).items():
            values[f"{section}.{key}"] = value
    for key, value in config.plugin.items():
        values[f"plugin.{key}"] = value
    return values


def plain_value(value: Any) -> Any:
    """Tuples as lists, as YAML and JSON know them."""
    if isinstance(value, tuple):
        return list(map(plain_value, value))
    return value


def frozen(value: Any) -> Any:
    """Lists as tuples, as a configuration holds them."""
    if isinstance(value, list):
        return tuple(map(frozen, value))
    return value


def plain(config: RunConfig) -> PlainConfig:
    """Nested plain mapping (YAML, JSON): what config.yaml holds."""
    content: PlainConfig = {}
    for section in fields(config):
        part = getattr(config, section.name)
        values = asdict(part) if section.name in SECTIONS else dict(part)
        content[section.name] = {key: plain_value(value) for key, value in values.items()}
    return content


def from_plain(values: Mapping[str, Values]) -> RunConfig:
    """The inverse of `plain`, for configurations that were validated when they were written."""
    dotted = {}
    for section, part in values.items():
        for key, value in part.items():
            dotted[f"{section}.{key}"] = frozen(value)
    return with_fields(DEFAULTS, dotted)
