"""cluster.yaml: what a site wants in its job scripts. Every key that is not ours is an sbatch option, passed on as written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UserError, near
from harness.yamlfile import YamlFile

OURS = ("device", "setup", "container", "srun", "python", "requeues", "signal_delay_s")
GPU_OPTIONS = ("gres", "gpus", "gpus_per_node", "gpus_per_task", "tres_per_node", "tres_per_task")
TAKEN = ("array", "output", "error", "job_name", "nodes", "ntasks", "ntasks_per_node", "open_mode", "signal")
DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A site's settings."""

    device: str = "cuda"  # of the compute nodes; the login node often has no GPU
    setup: tuple[str, ...] = ()  # lines of the job script before the run
    srun: tuple[str, ...] = ()  # further arguments of srun, the container's among them
    python: str | None = None  # on the compute nodes; that of the login node where not given
    requeues: int = 3  # after the time limit
    signal_delay_s: int = 90  # before the time limit a run is told to stop
    sbatch: Mapping[str, Any] = field(default_factory=dict)  # option -> value as written; True for one without a value

    def asks_for_gpus(self) -> bool:
        return any(option in self.sbatch for option in GPU_OPTIONS)


def minutes(text: str, default: int = 60 * 24 * 365) -> int:
    """A time limit as Slurm writes it (90, 90:00, 1:30:00, 2-12, 2-12:00), in minutes, rounded up."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        return default  # UNLIMITED, INFINITE, or what sbatch will refuse
    days, (a, b, c) = int(match["days"] or 0), (int(match[k]) if match[k] else None for k in "abc")
    assert a is not None
    if match["days"] is not None:
        return days * 1440 + a * 60 + (b or 0) + (1 if c else 0)
    if c is not None:
        return a * 60 + (b or 0) + (1 if c else 0)
    return a + (1 if b else 0)


def read_cluster(path: Path | None) -> Cluster:
    """The file's settings; the defaults where none is named and there is no cluster.yaml here. Raises UserError."""
    if path is None and not Path("cluster.yaml").is_file():
        return Cluster()
    file = YamlFile(path or Path("cluster.yaml"))
    plain = yaml.load(file.path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # text: 2:00:00 is no number here
    ours: dict[str, Any] = {}
    sbatch: dict[str, Any] = {}
    for key, value in plain.items():
        option = str(key).removeprefix("--").replace("-", "_")
        if option in TAKEN:
            raise UserError(f"{file.where(key)}: '{key}' is what `ablate run` sets itself: take it out")
        if option not in OURS and isinstance(value, list | dict):
            raise UserError(f"{file.where(key)}: '{key}' is not a setting{near(option, OURS)}; an sbatch option has one value")
        (ours if option in OURS else sbatch)[option] = True if value == "" else value
    container = ours.pop("container", {})
    parts = {"image": container} if isinstance(container, str) else dict(container)
    srun = [*[f"--container-{k}={v}" for k, v in parts.items()], *_lines(ours.pop("srun", ()))]
    if ours.get("device", "cuda") not in ("cuda", "cpu"):
        raise UserError(f"{file.where('device')}: device is '{ours['device']}', but must be cuda or cpu")
    for key in ("requeues", "signal_delay_s"):
        if key in ours and not str(ours[key]).isdigit():
            raise UserError(f"{file.where(key)}: {key} is '{ours[key]}', but must be a whole number")
    ours |= {k: int(ours[k]) for k in ("requeues", "signal_delay_s") if k in ours}
    setup = tuple(_lines(ours.pop("setup", ())))
    return Cluster(setup=setup, srun=tuple(srun), sbatch=sbatch, **ours)


def _lines(value: Any) -> list[str]:
    return value.splitlines() if isinstance(value, str) else [str(v) for v in value]
