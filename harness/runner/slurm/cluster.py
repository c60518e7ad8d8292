"""cluster.yaml: what a site wants in its job scripts.

Every key that is not ours is an option of sbatch.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.errors import Mistakes, UserError, near
from harness.runner.slurm.options import CONTAINER, ON, SBATCH, OptionValue, container_arguments
from harness.yamlfile import YamlFile

HOME = Path("cluster.yaml")  # where none is named
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
UNLIMITED_MINUTES = 60 * 24 * 365  # what a limit of none is taken for


SbatchOptions = Mapping[str, Any]  # option -> value; True: it has none
SiteSettings = dict[str, Any]  # the same, and settings of ours, while they are read


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A site's settings."""

    device: str = "cuda"  # of the compute nodes; the login node often has no GPU
    setup: tuple[str, ...] = ()  # lines of the job script before the run
    container: tuple[str, ...] = ()  # arguments of srun that start the run in one
    srun: tuple[str, ...] = ()  # further arguments of srun
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

    Raises UserError with a line for everything that is no setting.
    """
    if path is None and not HOME.is_file():
        return Cluster()
    file = YamlFile(path or HOME)
    # every value as text: 2:00:00 is no number here
    plain = yaml.load(file.path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    ours: SiteSettings = {}
    sbatch: SiteSettings = {}
    mistakes = Mistakes()
    for key, value in plain.items():
        name = option_name(key)
        with _told_of(mistakes, file, key):
            if name in OURS:
                ours[name] = OURS[name](value)
            elif name in TAKEN:
                raise UserError("is what `ablate run` sets itself: take it out")
            elif name in SBATCH.names:
                _put(sbatch, name, SBATCH.value(name, value))
            else:
                raise UserError(
                    "is not a setting, nor an option of sbatch (one of your site's own goes below "
                    f"`sbatch:`){near(name, [*OURS, *SBATCH.names])}"
                )
    container: list[str] = []
    for key, value in ours.pop("container", {}).items():
        with _told_of(mistakes, file, "container", key):
            container += container_arguments(option_name(key), value)
    mistakes.refuse()
    sbatch = {**ours.pop("sbatch", {}), **sbatch}
    return Cluster(container=tuple(container), sbatch=sbatch, **ours)


def option_name(key: str) -> str:
    """--mem-per-cpu, mem-per-cpu and mem_per_cpu are one."""
    return key.removeprefix("--").replace("-", "_")


@contextmanager
def _told_of(mistakes: Mistakes, file: YamlFile, *keys: str) -> Iterator[None]:
    """What is refused meanwhile is gathered with its place."""
    with mistakes.gathered():
        try:
            yield
        except UserError as error:
            raise UserError(f"{file.where(*keys)}: '{keys[-1]}' {error}") from None


def _put(options: SiteSettings, name: str, value: OptionValue) -> None:
    if value is not None:
        options[name] = value


def _device(value: object) -> str:
    if value not in DEVICES:
        raise UserError(f"is '{value}', but must be cuda or cpu")
    return str(value)


def _whole_number(value: object) -> int:
    if not str(value).isdigit():
        raise UserError(f"is '{value}', but must be a whole number")
    return int(str(value))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UserError("must be one text")
    return value


def _lines(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.splitlines())
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise UserError("must be a text, or a list of texts")
    return tuple(value)


def _container(value: object) -> Mapping[str, object]:
    """What srun is asked for of a container. value: an image, or a mapping of such settings."""
    settings = {"image": value} if isinstance(value, str) else value
    if not isinstance(settings, dict):
        raise UserError("must be an image, or a mapping with `image`")
    names = {option_name(key) for key in settings}
    if names <= CONTAINER.names and not names & {"image", "name"}:
        raise UserError("says no image: add `image: FILE.sqsh`")
    return settings


def _site_options(value: object) -> SiteSettings:
    """sbatch's options of a site's own plug-ins, passed on as written."""
    if not isinstance(value, dict):
        raise UserError("must be a mapping of options")
    return {option_name(name): True if v in ("", *ON) else v for name, v in value.items()}


OURS: Mapping[str, Callable[[object], Any]] = {  # our own settings -> how each is read
    "device": _device,
    "setup": _lines,
    "container": _container,
    "srun": _lines,
    "python": _text,
    "requeues": _whole_number,
    "signal_delay_s": _whole_number,
    "sbatch": _site_options,
}
