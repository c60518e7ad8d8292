"""Machines that need not be this one: what a step takes there, and from where that is known.

One table: step times as published, and what `ablate bench --save-machine` adds to machines.json of
the results folder. A step of one scale or card says nothing of another's.
"""

import heapq
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.errors import UserError
from harness.run.files import write_text
from harness.run.guarded import IN_ROOT, is_file, read_bytes
from harness.run.parse import parse_json
from harness.run.plural import plural
from harness.run.typed import typed

if TYPE_CHECKING:
    from harness.experiment.cost import Cost
    from harness.experiment.experiment import Experiment
    from harness.run.spec import PlannedRun
    from reports.analysis.assumptions import Known

NAME = re.compile(r"([1-9]\d{0,3})x([A-Za-z0-9][A-Za-z0-9_-]{0,39})")
TABLE = "machines.json"  # of a results folder
PUBLISHED = ("8xH100", "gpt2", 50257)  # machine, scale and vocabulary of the published steps
ASIDE = (
    "schedule.",
    "data.val_",
    "data.corpus",
)  # settings that leave a step of a vocabulary alone


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A row of the table."""

    machine: str  # that one run has to itself: 8xH100
    preset: str
    scale: str
    vocabulary: int  # tokens of the corpus that it was timed on
    step_ms: float
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.step_ms < math.inf:
            raise ValueError(f"step_ms {self.step_ms} is no time")

    @property
    def of(self) -> tuple[str, str, str, int]:
        """What it is the step of."""
        return self.machine, self.preset, self.scale, self.vocabulary


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node with so many GPUs of a card, and what an hour of all of it costs."""

    gpus: int
    card: str
    price_per_hour: float | None = None  # in any currency

    @classmethod
    def of(cls, text: str, price_per_hour: float | None) -> Self:
        """The machine of 8xH100; raises UserError."""
        match = NAME.fullmatch(text)
        if match is None:
            raise UserError(f"--on {text}: is no machine: GPUs and their card, such as 8xH100")
        return cls(gpus=int(match[1]), card=match[2], price_per_hour=price_per_hour)

    def __str__(self) -> str:
        return f"{self.gpus}x{self.card}"

    def gpus_of_run(self, e: "Experiment") -> int:
        """All of them; raises UserError where the loader's ranks cannot be shared by them."""
        ranks = e.baseline.config.data.ranks
        if ranks % self.gpus:
            raise UserError(
                f"--on {self}: {e.name} has data.ranks={ranks}, which {self.gpus} GPUs cannot "
                f"share: --gpus-per-run {math.gcd(ranks, self.gpus)} plans runs side by side, "
                f"--set data.ranks={self.gpus} each on all of them"
            )
        return self.gpus

    def words_on(self, gpu_hours: float | None) -> list[str]:
        """What so many GPU-hours are of the whole machine."""
        if gpu_hours is None:
            return []
        sentence = f"on {self} that is {gpu_hours / self.gpus:.2f} h"
        if self.price_per_hour is not None:
            price = gpu_hours / self.gpus * self.price_per_hour
            sentence += f", {price:.2f} at {self.price_words}"
        return [sentence]

    @property
    def price_words(self) -> str:
        """The price as it was given; '' where none was."""
        if self.price_per_hour is None:
            return ""
        return f"{self.price_per_hour:g} per hour of {self}"

    @property
    def price_per_gpu(self) -> float | None:
        """Of an hour of one of its GPUs."""
        if self.price_per_hour is None:
            return None
        return self.price_per_hour / self.gpus


def saved_steps(results: Path) -> list[StepTime]:
    """What was measured and saved; raises UserError where the file is damaged."""
    path = results / TABLE
    if not is_file(path, below=IN_ROOT):
        return []
    try:
        return [typed(StepTime(**row)) for row in parse_json(read_bytes(path, below=IN_ROOT))]
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{path}: is no table of machines ({error}): delete it, measure again"
        ) from None


def save_step(results: Path, row: StepTime) -> Path:
    """Add a row to the table, in place of an older one of the same; returns the file."""
    others = []
    for old in saved_steps(results):
        if old.of != row.of:
            others.append(asdict(old))
    results.mkdir(parents=True, exist_ok=True)
    path = results / TABLE
    write_text(path, json.dumps([*others, asdict(row)], indent=1) + "\n")
    return path


def step_time(machine: str, e: "Experiment", results: Path) -> StepTime | None:
    """A step of the experiment's baseline on a machine; None where nobody has measured it."""
    from harness.experiment.cost import vocabulary_of
    from reports.analysis.assumptions import published_step_ms

    if any(not name.startswith(ASIDE) for name in e.departures):
        return None  # its step is not the preset's
    vocabulary = vocabulary_of(e.baseline.config.data.corpus)
    for row in saved_steps(results):
        if row.of == (machine, e.base, e.scale, vocabulary):
            return row
    step_ms = None
    if (machine, e.scale, vocabulary) == PUBLISHED:
        step_ms = published_step_ms(e.base)
    if step_ms is None:
        return None
    return StepTime(
        machine=machine,
        preset=e.base,
        scale=e.scale,
        vocabulary=vocabulary,
        step_ms=step_ms,
        source=f"published for {e.base} on 8 H100",
    )


def cost_on(
    machine: Machine, e: "Experiment", planned: "Sequence[PlannedRun]", results: Path
) -> "Cost":
    """What all runs of the plan take on a machine, nothing of them done.

    Training alone, at the baseline's step time. Raises UserError for runs that do not fit there.
    """
    from harness.experiment.cost import Cost, training_tokens
    from harness.run.spec import is_exclusive, trunks_of

    tokens, sources = 0, {}
    trunks = trunks_of(planned)
    side_by_side: dict[tuple[bool, int], list[float]] = {}  # of trunks?, how many -> seconds
    for n, run in enumerate([*trunks, *planned]):
        size = run.spec.world_size
        if size > machine.gpus:
            raise UserError(
                f"--on {machine}: a run takes {size} GPUs: --gpus-per-run {machine.gpus}"
            )
        one = f"{size}x{machine.card}"
        if one not in sources:
            sources[one] = step_time(one, e, results)
        step = sources[one]
        tokens += training_tokens(run.spec)
        if step is not None:
            at_once = 1 if is_exclusive(run.spec) else machine.gpus // size
            there = side_by_side.setdefault((n < len(trunks), at_once), [])
            there.append(run.spec.own_steps * step.step_ms / 1000)
    sentence = f"on {machine}: {plural(len(planned), 'run')}, {tokens / 1e6:.1f}M training tokens"
    unknown = [one for one, step in sources.items() if step is None]
    if unknown:
        return Cost(
            runs=len(planned),
            tokens=tokens,
            slot_hours=None,
            gpu_hours=None,
            source=None,
            words=f"{sentence}; {_unknown_words(unknown[0], e)}",
        )
    told = ", ".join(
        f"{step.step_ms:.4g} ms a step ({step.source})" for step in sources.values() if step
    )
    wall_s = sum(makespan(taken, at_once=n) for (_, n), taken in side_by_side.items())
    wall_hours, hours = wall_s / 3600, wall_s / 3600 * machine.gpus
    sentence += (
        f", about {wall_hours:.2f} h of it, {hours:.2f} GPU-hours: every arm at {told}, "
        "without compilation and validation"
    )
    return Cost(
        runs=len(planned),
        tokens=tokens,
        slot_hours=None,
        gpu_hours=hours,
        wall_hours=wall_hours,
        source=told,
        words=sentence,
    )


def makespan(taken: Sequence[float], *, at_once: int) -> float:
    """How long runs take of which so many go on at once, the longest first."""
    free = [0.0] * at_once  # when each place is
    for seconds in sorted(taken, reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def known_on(
    machine: Machine,
    e: "Experiment",
    planned: "Sequence[PlannedRun]",
    basis: "Known",
    results: Path,
) -> "Known":
    """What is known, with the step of a run that is timed on that machine instead of this one's.

    results: the results folder with the table."""
    step = step_time(f"{planned[-1].spec.world_size}x{machine.card}", e, results)
    if step is None:
        return replace(basis, step_ms=None, step_source=f"of {machine} not known")
    return replace(basis, step_ms=step.step_ms, step_source=step.source)


def _unknown_words(machine: str, e: "Experiment") -> str:
    """Why there are no hours, and how there would be some."""
    other = [name for name in e.departures if not name.startswith(ASIDE)]
    if other:
        return f"hours are not known: it sets {other[0]}, which no measured step of {e.base} has"
    how = f"`ablate bench {e.base} --scale {e.scale} --save-machine` there measures one GPU's"
    return (
        f"hours are not known: no step of {e.base} at scale {e.scale} was timed on {machine}: {how}"
    )
