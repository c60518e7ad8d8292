"""The second path for a page of published evidence: table and headline from its rows.

It shares no code with the page: differences from plain means, errors from the noise that the plan
names, in a headline every difference that it prints and whether it is said to hold zero.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from reports.verify.page import Embedded, Page
from reports.verify.rows import Row

SLOPE = 0.1887  # nats per log step: 0.0037 per 100 steps at 5100
PRINTED_DIFFERENCE = re.compile(
    r"([^;:(]+(?:\([^)\[]*\))?) \(([+−]?[\d.]+)(?: %)? \[([^,]+), ([^\]]+)\]"
)
HALF_UNIT = 0.51  # of a printed unit


@dataclass(frozen=True, kw_only=True)
class Told:
    """A difference with its interval, in the unit of its print."""

    value: float
    low: float
    high: float


def check_evidence(page: Page, index: int, data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on what table and headline say otherwise than the rows.

    index: of the experiment among those of the page.
    """
    losses, times = row_differences(data["plan"], rows)
    for place, arm in enumerate(data["plan"]["arms"]):
        printed = page.verdicts.get((index, place), {})
        for key, told in (("loss", losses.get(arm["name"])), ("time", times.get(arm["name"]))):
            ends = printed.get(f"evidence.{key}_interval")
            if told is None or ends is None:
                continue
            for said, true in zip(ends.values, (told.low, told.high), strict=True):
                if said is None or abs(said - true) > 1e-6:
                    yield f"arm {arm['name']!r}: {key} interval {ends.text}, its rows {told}"
    yield from check_answer(page.sentences.get((index, "answer"), ""), losses, times)


def check_answer(
    answer: str, losses: Mapping[str, Told], times: Mapping[str, Told]
) -> Iterator[str]:
    """Every difference that the headline prints of an arm, and what it says of its interval."""
    for clause in re.split(r";|\.\s", answer):
        for difference in PRINTED_DIFFERENCE.finditer(clause):
            true, unit = named_difference(difference[1], clause[difference.end() :], losses, times)
            if true is None:
                continue
            said = [float(text.replace("−", "-").strip("+% ")) for text in difference.groups()[1:]]
            numbers = [n / unit for n in (true.value, true.low, true.high)]
            step = 0.1 if unit == 0.01 else 1e-4
            if any(abs(a - b) > HALF_UNIT * step for a, b in zip(said, numbers, strict=True)):
                yield f"the headline says {difference[0].strip()}, its rows {true}"
            holds = true.low <= 0 <= true.high
            if holds != ("zero" in clause) and "largest" not in clause:
                yield (
                    f"the headline says '{clause.strip()}', "
                    f"but by its rows {difference[1]} is {true}"
                )


def named_difference(
    name: str, behind: str, losses: Mapping[str, Told], times: Mapping[str, Told]
) -> tuple[Told | None, float]:
    """What the rows tell of the arm that a name ends with, and the unit in which it is printed."""
    of_time = behind.startswith(" %")
    table = times if of_time else losses
    arms = [arm for arm in table if name.strip().endswith(arm.removeprefix("+ "))]
    if not arms:
        return None, 1.0
    return table[max(arms, key=len)], 0.01 if of_time else 1.0


def row_differences(plan: Embedded, rows: Sequence[Row]) -> tuple[dict[str, Told], dict[str, Told]]:
    """Arm -> its difference in loss, and in time where steps were tuned to the target."""
    losses, times = {}, {}
    before: tuple[float, float, float] | None = None
    z = NormalDist().inv_cdf(1 - 0.05 / 2 / (len(plan["arms"]) - 1))  # all rows at once
    for arm in plan["arms"]:
        of_arm = [row for row in rows if row["arm"] == arm["name"]]
        loss = math.fsum(row["val_loss"] for row in of_arm) / len(of_arm)
        seconds = math.fsum(row["train_time_s"] for row in of_arm) / len(of_arm)
        variance = arm["noise_sd"] ** 2 / arm["n_logs"]
        if before is not None:
            half = z * math.sqrt(variance + before[2])
            delta, ratio = loss - before[0], seconds / before[1]
            losses[arm["name"]] = Told(value=delta, low=delta - half, high=delta + half)
            if plan["name"] == "published/ladder":
                low, high = (ratio * math.exp(sign * half / SLOPE) - 1 for sign in (-1, 1))
                times[arm["name"]] = Told(value=ratio - 1, low=low, high=high)
        if before is None or plan["evidence"] == "above":
            before = (loss, seconds, variance)
    return losses, times
