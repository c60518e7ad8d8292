"""Units of the schedules: every record's own, from record 19 on, by its preset.

N updates, the extension's among them.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from harness.bench.unit import Arrays, Pairs, Unit
from harness.config.presets import names, preset_values, to_config
from harness.config.run import BLOCK, NewValues, RunConfig, Values, with_fields
from harness.config.schedule import (
    ScheduleValues,
    growth_at,
    is_tied,
    max_doc_len_at,
    schedule_at,
    scheduled_steps,
    windows_at,
)

# record without a preset -> what it changes of the one before, in fields of the configuration
SETTINGS: Mapping[int, Values] = {
    88: {"schedule.extension_steps": 10, "loss.prefix_weight": 0.25},
    89: {"loss.prefix_weight": 0.0},
}
NOT_REPRODUCED = {  # how the names of such figures begin, and why
    "r87/": "it belongs to five changes of which one was taken",
    "r72/max_seq_len": "its first batch is drawn before its schedule begins",
}


@cache
def settings_of(record: str, n_steps: int) -> RunConfig:
    """The preset of a record (r53), or the last one before it; of so many updates in all."""
    number = int(record.removeprefix("r"))
    before = max(name for name in names("records") if int(name[1:3]) <= number)
    fields: NewValues = {"schedule.steps": n_steps}
    for first, changed in SETTINGS.items():
        if int(before[1:3]) < first <= number:
            fields |= changed
    return with_fields(to_config(preset_values(before)[0]), fields)


def recorded(
    arrays: Arrays, figure: str, updates: str | None = None
) -> Iterator[tuple[np.ndarray, str, int]]:
    """A figure of every record that has it, the record and how many updates it has.

    updates: a figure of the same record that has a value for each update; None: this one.
    """
    for name, theirs in arrays.items():
        record, _, kind = name.partition("/")
        if kind == figure and not name.startswith(tuple(NOT_REPRODUCED)):
            yield theirs, record, len(arrays[f"{record}/{updates or figure}"])


@cache  # several figures are of the same updates
def values_of(record: str, n_steps: int) -> list[ScheduleValues]:
    """The schedules of all updates."""
    config = settings_of(record, n_steps)
    return [schedule_at(config, step) for step in range(config.schedule.steps)]


def lr_momentum_schedule(arrays: Arrays) -> Pairs:
    """What multiplies the rates, and the matrices' momentum."""
    for name, theirs in arrays.items():
        record, _, kind = name.partition("/")
        if kind == "steps":
            n_steps = int(theirs[1])
            config = settings_of(record, n_steps)
            yield theirs, np.array([scheduled_steps(config), n_steps])
    for theirs, *of_record in recorded(arrays, "lr_factor"):
        yield theirs, np.array([values.lr_factor for values in values_of(*of_record)])
    for theirs, *of_record in recorded(arrays, "muon_momentum"):
        yield theirs, np.array([values.momentum for values in values_of(*of_record)])


def mtp_prefix_schedule(arrays: Arrays) -> Pairs:
    """Weights of the losses on tokens ahead, with zeros for those that are left out, and prefix."""
    for theirs, *of_record in recorded(arrays, "mtp_weights"):
        ours = np.zeros(theirs.shape)
        for step, values in enumerate(values_of(*of_record)):
            ours[step, : len(values.next_tokens)] = values.next_tokens
        yield theirs, ours
    for theirs, *of_record in recorded(arrays, "prefix_weight"):
        yield theirs, np.array([values.prefix_weight for values in values_of(*of_record)])


def window_schedule(arrays: Arrays) -> Pairs:
    """Windows of long and short layers in blocks, and the long one of the last validation."""
    for place, name in enumerate(("window_long", "window_short")):
        for theirs, *of_record in recorded(arrays, name):
            config = settings_of(*of_record)
            windows = (windows_at(config, step) for step in range(config.schedule.steps))
            yield theirs, np.array([window[place] // BLOCK for window in windows])
    for theirs, *of_record in recorded(arrays, "window_validation", "window_long"):
        config = settings_of(*of_record)
        yield theirs, np.array(max(windows_at(config, config.schedule.steps)) // BLOCK)


def batch_size_schedule(arrays: Arrays) -> Pairs:
    """Tokens of a batch, documents' longest, the last update of token table and head as one."""
    for theirs, *of_record in recorded(arrays, "batch_tokens"):
        config = settings_of(*of_record)
        growth = [growth_at(config, step) for step in range(config.schedule.steps)]
        yield theirs, np.array(growth) * config.data.batch_tokens
    for theirs, *of_record in recorded(arrays, "max_seq_len"):
        config = settings_of(*of_record)
        lengths = [max_doc_len_at(config, step) for step in range(config.schedule.steps)]
        yield theirs, np.array(lengths)
    for theirs, *of_record in recorded(arrays, "split_step", "batch_tokens"):
        config = settings_of(*of_record)
        n_tied = sum(is_tied(config, step) for step in range(config.schedule.steps))
        told = {"before_pass": n_tied, "after_adam": n_tied - 1}  # first one apart, last one tied
        yield theirs, np.array(told[config.optim.tie_ends])


RATES = Unit(pairs=lr_momentum_schedule, bound=1e-6)
SCHEDULE_UNITS: Mapping[str, Unit] = {
    **{f"lr_momentum_schedule_{part}": RATES for part in "abc"},
    "window_schedule": Unit(pairs=window_schedule, bound=0.0),
    "batch_size_schedule": Unit(pairs=batch_size_schedule, bound=0.0),
    "mtp_prefix_schedule": Unit(pairs=mtp_prefix_schedule, bound=1e-6),
}
OTHER_SCHEDULES: Mapping[str, Unit] = {"lr_momentum_schedule": RATES}
