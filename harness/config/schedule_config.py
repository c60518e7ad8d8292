"""The schedules' configuration: how many updates there are, and what changes with them.

Standard library only, as harness/config/run.py.
"""

from dataclasses import dataclass
from typing import Literal

from harness.model.config import ON, toggle


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Steps are optimizer updates.

    A budget rescales warm-up and cooldown with `steps`, momentum warm-up stays.
    """

    steps: int = toggle(
        9536,
        record="r02",
        affects=("schedule", "clock", "validation", "loss"),
        doc="optimizer updates",
        ge=1,
        le=10_000_000,
    )
    warmup_steps: int = toggle(
        0,
        record="r02",
        affects=("schedule", "loss"),
        doc="learning rate rises linearly over this many updates",
        choices={256: "r02", 250: "r03"},
        ge=0,
    )
    cooldown_steps: int | None = toggle(
        None,
        record="r02",
        affects=("schedule", "loss"),
        example=3,
        doc="learning rate falls linearly over the last updates; the last one uses "
        "1/cooldown_steps",
        ge=1,
    )
    cooldown_frac: float | None = toggle(
        None,
        record="r18",
        affects=("schedule", "loss"),
        doc="the same as a fraction of the steps left",
        choices={0.4: "r18"},
        gt=0,
        le=1,
        conflicts={"*": {"schedule.cooldown_steps": ON}},
    )
    cooldown_from: Literal["fraction", "update"] = toggle(
        "fraction",
        record="r18",
        affects=("schedule", "loss"),
        choices={"update": "r65"},
        doc="the cooldown falls by the fraction of steps left, or by updates from the first one on "
        "that begins in it",
        requires={"update": {"schedule.cooldown_frac": ON}},
    )
    lr_floor: float = toggle(
        0.0,
        record="r02",
        affects=("schedule", "loss"),
        example=0.1,
        doc="the cooldown ends at this fraction of the rate",
        ge=0,
        lt=1,
    )
    extension_steps: int = toggle(
        0,
        record="r35",
        affects=("schedule", "loss"),
        choices={40: "r35", 10: "r81"},
        doc="the last of the steps, after the rates' own end and the last stage",
        ge=0,
    )
    extension_rate: Literal["floor", "almost_floor", "cooling"] = toggle(
        "floor",
        record="r46",
        affects=("schedule", "loss"),
        choices={"almost_floor": "r35", "cooling": "r41", "floor": "r46"},
        doc="rates of the extension: the cooldown's end; the cooldown at 0.9999 of its steps; or "
        "the cooldown itself goes on to its end",
        requires={"*": {"schedule.extension_steps": ON}},
    )
    stages: int = toggle(
        1,
        record="r29",
        affects=("schedule", "loss"),
        choices={3: "r29"},
        doc="equal parts of the steps before the extension, through which goes what is listed for "
        "stages",
        ge=1,
        le=100,
    )
    stage_start: Literal["nearest", "next", "next_of_one_more"] = toggle(
        "nearest",
        record="r65",
        affects=("schedule", "loss"),
        choices={"next_of_one_more": "r29", "next": "r42", "nearest": "r65"},
        doc="a stage begins at the update nearest to its part's, a half at the even one, or at the "
        "next whole one; or at that of parts of one step more",
    )
    stage_rates: tuple[float, ...] = toggle(
        (),
        record="r46",
        affects=("schedule", "loss"),
        example=(1.0, 1.5),
        doc="what multiplies the rates in each stage, which a cooldown then falls from; "
        "[1, 1.52, 1.73] in record 53",
    )
    stage_rates_after: Literal["fraction", "hundredth"] | None = toggle(
        None,
        record="r46",
        affects=("schedule", "loss"),
        choices={"hundredth": "r46", "fraction": "r49", None: "r65"},
        doc="the rates' stages begin with the stages; or past the fraction of the steps that these "
        "begin at; or past that rounded down to hundredths",
        requires={"*": {"schedule.stage_rates": ON}},
    )
    batch_growth: tuple[int, ...] = toggle(
        (),
        record="r46",
        affects=("data", "schedule", "loss"),
        example=(2,),
        doc="passes, and so batches, of each stage in multiples of data.micro_tokens and "
        "data.batch_tokens; [1, 2, 3] in record 46",
        requires={"*": {"data.alignment": ON}},
    )
    window_tokens: int = toggle(
        1024,
        record="r12",
        affects=("schedule", "mask", "loss"),
        doc="attention window, or the end of its warm-up",
        choices={1024: "r12", 1792: "r13"},
        ge=64,
        unit="tokens",
    )
    window_warmup: Literal["tokens", "blocks", "next_block"] | None = toggle(
        None,
        record="r13",
        affects=("schedule", "mask", "loss"),
        choices={"tokens": "r13", "blocks": "r18", "next_block": "r19"},
        doc="the window grows linearly with the step from 64 tokens (one block), interpolated in "
        "tokens or in whole blocks; or from 0, rounded up to blocks, one of them at least",
        requires={
            "tokens": {"model.attn_window": ON},
            "blocks": {"model.attn_window": ("block", "counted")},
            "next_block": {"model.attn_window": ("block", "counted")},
        },
    )
    windows: tuple[int, ...] = toggle(
        (),
        record="r29",
        affects=("schedule", "mask", "loss"),
        example=(64,),
        doc="window of each stage in tokens; after them, where these have their own, of the "
        "extension and of the last validation; in blocks of 128 3, 7, 11, 13, 20 in record 42",
        requires={"*": {"model.attn_window": ON}},
        conflicts={"*": {"schedule.window_warmup": ON}},
    )
    window_last_layer: int | None = toggle(
        None,
        record="r33",
        affects=("schedule", "mask", "loss"),
        choices={2560: "r33"},
        example=64,
        doc="window of the last layer, one of the long ones, in the last validation; null: theirs",
        ge=0,
        unit="tokens",
        requires={"*": {"model.attn_window_layers": ON, "schedule.windows": ON}},
    )
    windows_short: tuple[int, ...] = toggle(
        (),
        record="r29",
        affects=("schedule", "mask", "loss"),
        example=(16,),
        doc="the same of layers that are not model.attn_window_layers; in blocks 1, 3, 5, 6, 6 in "
        "record 42",
        requires={"*": {"model.attn_window_layers": ON, "schedule.windows": ON}},
    )
    yarn_until: int | None = toggle(
        None,
        record="r33",
        affects=("schedule", "loss"),
        choices={1664: "r35"},
        example=1664,
        doc="the widest window that model.window_yarn follows; null: every one",
        ge=1,
        unit="tokens",
        requires={"*": {"model.window_yarn": (True,)}},
    )
