"""The noise of the public benchmark by era, as fitted from its logs: one file of constants."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from harness.run.document import Content
from reports.stats.node_noise import NodeNoise

PUBLISHED = Path(str(resources.files("harness"))) / "published"
NOISE = PUBLISHED / "noise_by_era.yaml"
TRACK = "short"  # of the records whose era an experiment may name


@dataclass(frozen=True, kw_only=True)
class EraNoise:
    """One era of a track: the sd of one run's final loss."""

    track: str
    name: str
    since: str  # date
    until: str
    sd: float  # nats, pooled over its arms
    df: int
    n_runs: int
    prior_sd: float | None = None  # of one arm's runs before any is seen: its prior_noise
    prior_df: float | None = None


@dataclass(frozen=True, kw_only=True)
class HistorySlope:
    """Loss that a longer schedule gains, d loss / d log steps, near the target."""

    nats_per_log_step: float
    se: float
    n_pairs: int  # of one recipe's arms at two lengths
    name: str = ""  # of the era that it is of


@dataclass(frozen=True, kw_only=True)
class RecordNoise:
    """One run's sd of the final loss up to a record, rounded: what published deltas are held by."""

    until: int  # number of the record
    sd: float  # nats
    n_runs: int
    date: str  # of the runs, the first and the last
    source: str


@dataclass(frozen=True, kw_only=True)
class RecordSlope:
    """Loss that a longer schedule of the early records gains, d loss / d log steps, as quoted."""

    nats_per_log_step: float
    date: str
    source: str


@dataclass(frozen=True, kw_only=True)
class BenchmarkNoise:
    """All that was fitted, with its date and source, and what is quoted of the early records."""

    date: str
    source: str
    eras: tuple[EraNoise, ...]
    slope: HistorySlope  # of the pairs up to a date
    slope_until: str  # that date: later pairs judge the slope and did not make it
    slope_later: HistorySlope | None  # of the pairs since then; None without one
    slope_by_era: tuple[HistorySlope, ...]
    nodes: NodeNoise
    of_records: tuple[RecordNoise, ...]  # oldest first; not fitted
    slope_of_records: RecordSlope

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


NoiseRow = EraNoise | HistorySlope | RecordNoise


@lru_cache(maxsize=4)
def benchmark_noise(path: Path = NOISE) -> BenchmarkNoise:
    """The constants of a file; raises ValueError where it is missing or says something else."""
    cure = "restore it from the repository"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        slope = content["slope"]
        later = slope["later"]
        return BenchmarkNoise(
            date=str(content["date"]),
            source=content["source"],
            eras=tuple(EraNoise(**era) for era in content["loss"]),
            slope=HistorySlope(
                **{name: slope[name] for name in ("nats_per_log_step", "se", "n_pairs")}
            ),
            slope_until=str(slope["until"]),
            slope_later=None if later is None else HistorySlope(**later),
            slope_by_era=tuple(HistorySlope(**era) for era in slope["by_era"]),
            nodes=NodeNoise(**content["nodes"]),
            of_records=tuple(RecordNoise(**entry) for entry in content["records"]["loss"]),
            slope_of_records=RecordSlope(**content["records"]["slope"]),
        )
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # YAML says it on several lines
        raise ValueError(f"{path}: no constants of noise ({reason}): {cure}") from None


def noise_text(noise: BenchmarkNoise) -> str:
    """The file of constants, as `benchmark_noise` reads it."""
    slope, later = noise.slope, noise.slope_later
    lines = [
        "# The public benchmark's noise by era, fitted from its own logs (`ablate noise`). df: "
        "degrees of freedom",
        "# within arms of one program, one number of steps and one environment. prior_sd and "
        "prior_df: what a",
        "# plan may declare as prior_noise, from how the sds of arms differ.",
        f"date: {_flow(noise.date)}",
        f"source: {_flow(noise.source)}",
        "loss:  # sd of one run's final validation loss, nats",
        *_entries(noise.eras),
        "slope:  # loss that a longer schedule gains, d loss / d log steps, near the target: arms "
        "of one recipe at two lengths",
        f"  nats_per_log_step: {slope.nats_per_log_step}",
        f"  se: {slope.se}  # widened for what the pairs differ by",
        f"  n_pairs: {slope.n_pairs}",
        f"  until: {_flow(noise.slope_until)}  # later pairs judge the slope and did not make it",
        f"  later: {'null' if later is None else _flow(_filled(later))}",
        "  by_era:",
        *[f"  {entry}" for entry in _entries(noise.slope_by_era)],
        "nodes:  # sd of log(training time) over nodes: one program, GPU and build of torch, in "
        "other folders or under other drivers",
        *[f"  {name}: {value}" for name, value in asdict(noise.nodes).items()],
        "records:  # what the early records' published deltas are held by: quoted, kept by every "
        "new fit",
        "  loss:",
        *[f"  {entry}" for entry in _entries(noise.of_records)],
        f"  slope: {_flow(asdict(noise.slope_of_records))}",
    ]
    return "\n".join(lines) + "\n"


def _entries(rows: Sequence[NoiseRow]) -> list[str]:
    return [f"  - {_flow(_filled(row))}" for row in rows]


def _filled(row: NoiseRow) -> Content:
    return {name: value for name, value in asdict(row).items() if value not in ("", None)}


def _flow(value: Any) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()
