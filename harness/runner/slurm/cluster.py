"""cluster.yaml: what a site wants in its job scripts.

Every key that is not ours is an sbatch option, passed on as written.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UserError, near
from harness.yamlfile import YamlFile

HOME = Path("cluster.yaml")  # where none is named
OURS = ("device", "setup", "container", "srun", "python", "requeues", "signal_delay_s")
NUMBERS = ("requeues", "signal_delay_s")
DEVICES = ("cuda", "cpu")
GPU_OPTIONS = (
    "gres",
    "gpus",
    "gpus_per_node",
    "gpus_per_task",
    "tres_per_node",
    "tres_per_task",
)
TAKEN = (
    "array",
    "output",
    "error",
    "job_name",
    "nodes",
    "ntasks",
    "ntasks_per_node",
    "open_mode",
    "signal",
)
DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")
UNLIMITED_MINUTES = 60 * 24 * 365


SbatchOptions = Mapping[str, Any]  # option -> value; True: it has none
NewOptions = dict[str, Any]  # the same, while they are read


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A site's settings."""

    device: str = "cuda"  # of the compute nodes; the login node often has no GPU
    setup: tuple[str, ...] = ()  # lines of the job script before the run
    srun: tuple[str, ...] = ()  # further arguments of srun, the container's among them
    python: str | None = None  # on the compute nodes; None: that of the login node
    requeues: int = 3  # after the time limit
    signal_delay_s: int = 90  # before the time limit a run is told to stop
    sbatch: SbatchOptions = field(default_factory=dict)

    def asks_for_gpus(self) -> bool:
        return any(option in self.sbatch for option in GPU_OPTIONS)


def minutes(text: str, default: int = UNLIMITED_MINUTES) -> int:
    """A time limit as Slurm writes it, in minutes, rounded up: 90, 90:00, 1:30:00, 2-12, 2-12:00.

    default: of UNLIMITED, INFINITE, and of what sbatch will refuse.
    """
    match = DURATION.fullmatch(text.strip())
    if match is None:
        return default
    first = int(match["a"])
    second = int(match["b"] or 0)
    third = int(match["c"] or 0)
    if match["days"] is not None:  # days-hours:minutes:seconds
        return int(match["days"]) * 1440 + first * 60 + second + (third > 0)
    if match["c"] is not None:  # hours:minutes:seconds
        return first * 60 + second + (third > 0)
    return first + (second > 0)  # minutes:seconds


def read_cluster(path: Path | None) -> Cluster:
    """The file's settings; the defaults if none is named and no cluster.yaml is here.

    Raises UserError for what is no setting.
    """
    if path is None and not HOME.is_file():
        return Cluster()
    file = YamlFile(path or HOME)
    # every value as text: 2:00:00 is no number here
    plain = yaml.load(file.path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    ours: NewOptions = {}
    sbatch: NewOptions = {}
    for key, value in plain.items():
        option = str(key).removeprefix("--").replace("-", "_")
        _check_key(file, key, option, value)
        settings = ours if option in OURS else sbatch
        settings[option] = True if value == "" else value
    _check_values(file, ours)
    for key in NUMBERS:
        if key in ours:
            ours[key] = int(ours[key])
    container = _container_arguments(ours.pop("container", {}))
    srun = (*container, *_lines(ours.pop("srun", ())))
    setup = tuple(_lines(ours.pop("setup", ())))
    return Cluster(setup=setup, srun=srun, sbatch=sbatch, **ours)


def _check_key(file: YamlFile, key: str, option: str, value: object) -> None:
    if option in TAKEN:
        raise UserError(f"{file.where(key)}: '{key}' is what `ablate run` sets itself: take it out")
    if option not in OURS and isinstance(value, list | dict):
        raise UserError(
            f"{file.where(key)}: '{key}' is not a setting{near(option, OURS)}; "
            "an sbatch option has one value"
        )


def _check_values(file: YamlFile, ours: SbatchOptions) -> None:
    device = ours.get("device", "cuda")
    if device not in DEVICES:
        raise UserError(f"{file.where('device')}: device is '{device}', but must be cuda or cpu")
    for key in NUMBERS:
        if key in ours and not str(ours[key]).isdigit():
            raise UserError(
                f"{file.where(key)}: {key} is '{ours[key]}', but must be a whole number"
            )


def _container_arguments(value: Any) -> list[str]:
    """Of srun. value: an image, or a mapping of --container options."""
    parts = {"image": value} if isinstance(value, str) else dict(value)
    return [f"--container-{name}={part}" for name, part in parts.items()]


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    return [str(line) for line in value]
