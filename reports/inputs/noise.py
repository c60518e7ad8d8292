"""The noise of the public benchmark by era, as fitted from its logs: one file of constants."""

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import yaml

from reports.stats.node_noise import NodeNoise

PUBLISHED = Path(str(resources.files("harness"))) / "published"
NOISE = PUBLISHED / "noise_by_era.yaml"
TRACK = "short"  # of the records whose era an experiment may name


@dataclass(frozen=True, kw_only=True)
class EraNoise:
    """One era of a track: the sd of one run's final loss, and the slope of the loss."""

    track: str
    name: str
    since: str  # date
    until: str
    sd: float  # nats
    df: int
    n_runs: int


@dataclass(frozen=True, kw_only=True)
class BenchmarkNoise:
    """All that was fitted, with its date and source."""

    date: str
    source: str
    eras: tuple[EraNoise, ...]
    nats_per_log_step: float
    nats_per_log_step_se: float
    nodes: NodeNoise

    @property
    def latest(self) -> EraNoise:
        """The last era of the records."""
        return [era for era in self.eras if era.track == TRACK][-1]

    def era_of(self, track: str, date: str) -> EraNoise:
        """The era of a date; the nearest one before it where none holds it, else the first.

        Of an unknown date ('') the latest."""
        of_track = [era for era in self.eras if era.track == track] or list(self.eras)
        if not date:
            return of_track[-1]
        chosen = of_track[0]
        for era in of_track:
            if era.since <= date:
                chosen = era
        return chosen


@lru_cache(maxsize=4)
def benchmark_noise(path: Path = NOISE) -> BenchmarkNoise:
    """The constants of a file; raises ValueError where it is missing or says something else."""
    cure = "restore it from the repository"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        eras = [EraNoise(**era) for era in content["loss"]]
        return BenchmarkNoise(
            date=str(content["date"]),
            source=content["source"],
            eras=tuple(eras),
            nats_per_log_step=content["slope"]["nats_per_log_step"],
            nats_per_log_step_se=content["slope"]["se"],
            nodes=NodeNoise(**content["nodes"]),
        )
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: no constants of noise ({error}): {cure}") from None
