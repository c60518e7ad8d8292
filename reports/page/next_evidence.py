"""What to run next after published evidence: what asks its question here, and at what price."""

from dataclasses import dataclass

from harness.run.plural import plural
from reports.analysis.types import Comparisons
from reports.inputs.experiment import Experiment
from reports.inputs.published_experiments import evidence_named
from reports.page.published import LADDER, EvidenceRow, rows_as_compared, time_interval
from reports.stats.digits import settled

AT_FULL_SIZE = "--set scale=gpt2"
OF_A_RECORD = "experiments/deltas/{}.yaml"  # what asks of one what it changed
NO_TOGGLE = ("r07",)  # the same script on another torch: nothing asks of that here
NODE_GPUS = 8  # of every published run
PURPOSES = ("what the same question costs here, with seeds", "asks it, and writes its page")


@dataclass(frozen=True, kw_only=True)
class AskedHere:
    """What asks a page's question here."""

    experiment: str  # as it is typed
    about: str  # whose question, in words
    seconds: float  # of training that one run of each of its arms took in the logs
    runs: str  # which those were, in words

    @property
    def commands(self) -> list[str]:
        """What plans it, and what runs it."""
        return [f"ablate {verb} {self.experiment} {AT_FULL_SIZE}" for verb in ("plan", "run")]

    @property
    def lines(self) -> list[str]:
        """The same as lines to type."""
        return [f"{line}    # {why}" for line, why in zip(self.commands, PURPOSES, strict=True)]

    @property
    def sentence(self) -> str:
        """The next step with its price."""
        plan, run = self.commands
        hours = self.seconds * NODE_GPUS / 3600
        return (
            f"To run next: `{plan}` tells what {self.about} costs here with seeds, `{run}` asks"
            f" it. In these logs one run of {self.runs} took"
            f" {settled(self.seconds / 60):.0f} min of training on {NODE_GPUS} H100,"
            f" {settled(hours):.1f} GPU-hours."
        )


def asked_here(experiment: Experiment, outcome: Comparisons) -> AskedHere | None:
    """What asks the page's question here; of a ladder of records its widest open row."""
    evidence = evidence_named(experiment.name.removeprefix("published/"))
    rows = [*rows_as_compared(experiment, outcome)]
    if evidence.here:
        return AskedHere(
            experiment=evidence.here,
            about="the same question",
            seconds=sum(row.logs.time_s for row in rows),
            runs=f"each of the {plural(len(rows), 'row')}",
        )
    row = widest_open([row for row in rows if row.arm not in NO_TOGGLE])
    if experiment.name != LADDER or row is None or row.other is None:
        return None
    before = rows[rows.index(row) - 1].arm
    return AskedHere(
        experiment=OF_A_RECORD.format(row.arm),
        about=f"the question of {row.arm}, whose interval holds zero and is the widest that does,",
        seconds=row.logs.time_s + row.other.time_s,
        runs=f"{before} and one of {row.arm}",
    )


def widest_open(rows: list[EvidenceRow]) -> EvidenceRow | None:
    """The row whose interval in time holds zero and is the widest of those; None of none."""
    widths = {}
    for place, row in enumerate(rows):
        ends = time_interval(row)
        if ends is None or ends.low is None or ends.high is None or not ends.low < 0 < ends.high:
            continue
        widths[place] = ends.high - ends.low
    if not widths:
        return None
    return rows[max(widths, key=widths.__getitem__)]
