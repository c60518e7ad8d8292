"""The statistics of a run, each declared once, in the order of the tidy table."""

import math
from functools import partial
from operator import attrgetter

from reports.inputs.columns import Column
from reports.inputs.recorded import RecordedRun, float_or_nan


def recorded(run: RecordedRun, *, key: str) -> float:
    """A number of result.json, nan where it has none."""
    return float_or_nan(getattr(run.measured, key))


def recorded_time(run: RecordedRun, *, key: str) -> float:
    """The same of a time, nan too where the machine stood still meanwhile."""
    if run.stood_still:
        return math.nan
    return recorded(run, key=key)


def time_of_trunk(run: RecordedRun) -> float:
    """The part of a training time that is its trunk's, nan where it has none."""
    return float_or_nan((run.measured.wall or {}).get("trunk_s"))


RUN_COLUMNS: tuple[Column[RecordedRun], ...] = (
    Column(
        key="experiment",
        json_name="experiment",
        value=attrgetter("plan.name"),
        meaning="The experiment's name.",
    ),
    Column(
        key="arm",
        json_name="arm",
        value=attrgetter("planned.arm"),
        meaning="The arm's name.",
    ),
    Column(
        key="seed",
        json_name="seed",
        value=attrgetter("planned.seed"),
        head="seed",
        format="{}",
        is_always_shown=True,
        meaning="Keys the initial weights and the order of the data.",
    ),
    Column(
        key="replicate",
        json_name="replicate",
        value=attrgetter("planned.replicate"),
        head="replicate",
        format="{}",
        meaning="Counts repeated runs of one arm, seed and budget.",
    ),
    Column(
        key="budget",
        json_name="budget",
        value=attrgetter("planned.budget"),
        head="budget",
        format="{}",
        meaning="Training steps the run was planned with; the schedule scales with it.",
    ),
    Column(
        key="role",
        json_name="role",
        value=attrgetter("planned.role"),
        head="role",
        format="{}",
        meaning="Whether the run was made to measure loss or time.",
    ),
    Column(
        key="block",
        json_name="block",
        value=attrgetter("planned.block"),
        meaning="Runs that were made together, one per arm.",
    ),
    Column(
        key="status",
        json_name="status",
        head="status",
        format="{}",
        place=1,  # after the losses, which a phone shows beside the arm
        is_always_shown=True,
        meaning="How the run ended; of a run without a result, what it is waiting for.",
    ),
    Column(
        key="reason",
        json_name="reason",
        meaning="Why the run ended as it did, where that is known.",
    ),
    Column(
        key="val_loss",
        json_name="val_loss",
        value=partial(recorded, key="val_loss"),
        head="loss",
        format="{:loss}",
        is_always_shown=True,
        meaning="Validation loss after the last step, on the fixed validation tokens.",
    ),
    Column(
        key="bits_per_byte",
        json_name="bits_per_byte",
        head="bits/byte",
        format="{:loss}",
        meaning=(
            "The loss in bits per byte of text, comparable between tokenizers: loss / ln 2 / "
            "bytes per token of the validation set."
        ),
    ),
    Column(
        key="heldout_loss",
        json_name="heldout_loss",
        value=partial(recorded, key="heldout_loss"),
        head="held-out loss",
        format="{:loss}",
        meaning=(
            "Loss on the text that data.heldout names, after the last step: is the gain real "
            "on other text?"
        ),
    ),
    Column(
        key="train_time_s",
        json_name="train_time_s",
        value=partial(recorded_time, key="train_time_s"),
        head="training time, s",
        format="{:s}",
        place=3,
        is_always_shown=True,
        meaning=(
            "The training clock: steps alone, without imports, compilation, warm-up or validation."
        ),
    ),
    Column(
        key="step_ms",
        json_name="step_ms",
        value=partial(recorded_time, key="step_ms"),
        head="step time, ms",
        format="{:ms}",
        place=2,
        is_always_shown=True,
        meaning="Mean time of one training step.",
    ),
    Column(
        key="step_ms_median",
        json_name="step_ms_median",
        value=partial(recorded_time, key="step_ms_median"),
        meaning="Median time of one training step, milliseconds.",
    ),
    Column(
        key="step_ms_p95",
        json_name="step_ms_p95",
        value=partial(recorded_time, key="step_ms_p95"),
        meaning="95th percentile of the time of one training step, milliseconds.",
    ),
    Column(
        key="steps",
        json_name="steps",
        value=partial(recorded, key="steps"),
        head="steps",
        format="{:count}",
        place=1,
        is_always_shown=True,
        meaning="Optimizer updates made.",
    ),
    Column(
        key="tokens",
        json_name="tokens",
        value=partial(recorded, key="tokens"),
        meaning="Tokens seen.",
    ),
    Column(
        key="tokens_per_s",
        json_name="tokens_per_s",
        value=partial(recorded_time, key="tokens_per_s"),
        meaning="Throughput.",
    ),
    Column(
        key="mfu",
        json_name="mfu",
        value=partial(recorded_time, key="mfu"),
        head="MFU",
        format="{:mfu}",
        place=6,
        meaning=(
            "Model FLOPs utilisation: useful floating point work over this device's measured "
            "matrix rate."
        ),
    ),
    Column(
        key="peak_allocated_mib",
        json_name="peak_allocated_mib",
        value=partial(recorded, key="peak_allocated_mib"),
        head="memory, MiB",
        format="{:mib}",
        place=5,
        meaning="Highest memory allocated.",
    ),
    Column(
        key="peak_reserved_mib",
        json_name="peak_reserved_mib",
        value=partial(recorded, key="peak_reserved_mib"),
        meaning="Highest memory reserved.",
    ),
    Column(
        key="first_crossing_s",
        json_name="first_crossing_s",
        head="first at the target, s",
        format="{:s}",
        place=4,
        meaning=(
            "Training time at the first validation at or below the target, interpolated; "
            "empty when it was never reached. Descriptive only."
        ),
    ),
    Column(
        key="censored",
        json_name="censored",
        meaning="Whether the target loss was never reached.",
    ),
    Column(
        key="node",
        json_name="node",
        head="node",
        format="{}",
        place=7,
        meaning="The machine it ran on.",
    ),
    Column(
        key="session",
        json_name="session",
        meaning="The call that made it, of a foreign trainer: times are compared within one.",
    ),
    Column(
        key="borrowed",
        json_name="borrowed",
        value=attrgetter("planned.borrowed"),
        meaning="Made for another experiment: its loss counts, its time does not.",
    ),
    Column(
        key="device",
        json_name="device",
        meaning="The kind of device it ran on.",
    ),
    Column(
        key="gpu",
        json_name="gpu",
        head="GPU",
        format="{}",
        place=7,
        meaning="The accelerator it ran on.",
    ),
    Column(
        key="n_gpus",
        json_name="n_gpus",
        meaning="How many GPUs it ran on; empty where that is not known.",
    ),
    Column(
        key="gpu_memory_gb",
        json_name="gpu_memory_gb",
        meaning="Memory of one GPU, in GB; empty where that is not known.",
    ),
    Column(
        key="driver",
        json_name="driver",
        meaning="Version of the GPUs' driver.",
    ),
    Column(
        key="cuda",
        json_name="cuda",
        meaning="Version of CUDA that torch was built for.",
    ),
    Column(
        key="torch",
        json_name="torch",
        meaning="Version of torch.",
    ),
    Column(
        key="fingerprint",
        json_name="fingerprint",
        meaning="Digest of the corpus it ran on.",
    ),
    Column(
        key="stale",
        json_name="stale",
        head="stale",
        format="{}",
        place=8,
        meaning=(
            "Made by code or an environment that is no longer the current one; the files that"
            " changed are named."
        ),
    ),
    Column(
        key="trunk_s",
        json_name="trunk_s",
        value=time_of_trunk,
        meaning="Seconds of its training time that are its trunk's; empty where it has none.",
    ),
    Column(
        key="disturbed",
        json_name="disturbed",
        head="disturbed",
        format="{}",
        place=7,
        meaning=(
            "What disturbed the run's time. A machine that stood still while the clock ran leaves "
            "no time that could be compared."
        ),
    ),
    Column(
        key="stale_files",
        json_name="stale_files",
        meaning="The files that changed since a stale run was made.",
    ),
    Column(
        key="imported",
        json_name="imported",
        meaning="Whether it was brought in from a log.",
    ),
    Column(
        key="self_reported",
        json_name="self_reported",
        meaning="Whether its clock is the script's own.",
    ),
    Column(
        key="metrics_digest",
        json_name="metrics_digest",
        meaning="sha256 of its metrics.",
    ),
    Column(
        key="run_id",
        json_name="run_id",
        head="run",
        format="{}",
        place=9,
        is_always_shown=True,
        meaning=(
            "Digest of everything that can change the result; of a run made here the folder's name "
            "in results/runs/."
        ),
    ),
)
RUN_KEYS = tuple(column.key for column in RUN_COLUMNS)
