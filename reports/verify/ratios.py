"""The second path for the notes on step times: from the printed table and from the rows."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from reports.verify.page import Embedded, Page, Printed, Row

RATIO_NOTE = re.compile(
    r"Off (?P<base>.+)'s step time by the means in ms and by Δ: (?P<arms>.+)\. Δ is the mean"
)
OF_ARM = re.compile(r"(?:^|; )(?P<arm>.+?) (?P<means>\S+) % and (?P<blocks>\S+) %")
TOO_NOISY = "Too noisy for any time claim"
SPAN = re.compile(r"runs of (?P<arm>.+) alone took from (?P<least>[\d.]+) to (?P<most>[\d.]+) ms")
OF_PRINTED_PERCENT = 0.15  # percent: half of the last digit, and what carried values leave off
OF_WHOLE_PERCENT = 0.6  # the same of a percent without decimals


def check_ratios(page: Page, index: int, plan: Embedded) -> Iterator[str]:
    """Sentences on a note whose two changes are not those of the table.

    index: of the experiment among those of the page."""
    places = {arm["name"]: place for place, arm in enumerate(plan["arms"])}
    for where, note in page.sentences.items():
        said = RATIO_NOTE.match(note)
        if where[:2] != (index, "notes") or said is None:
            continue
        of_base = page.verdicts.get((index, places.get(said["base"], -1)), {})
        base = carried_value(of_base, "step_ms.mean")
        arms = [*OF_ARM.finditer(said["arms"])]
        if not arms:
            yield f"a note on step times names no arm: {note}"
        for of_arm in arms:
            row = page.verdicts.get((index, places.get(of_arm["arm"], -1)), {})
            mean, effect = (carried_value(row, f"step_ms.{what}") for what in ("mean", "effect"))
            for name, change in (("means", mean / base - 1), ("blocks", effect)):
                told = float(of_arm[name].replace("−", "-"))
                within = OF_PRINTED_PERCENT if "." in of_arm[name] else OF_WHOLE_PERCENT
                if not abs(told - 100 * change) <= within:  # nan where there is none
                    yield (
                        f"a note says {told:+.1f} % of {of_arm['arm']}, the table"
                        f" {100 * change:+.1f} %"
                    )


def check_noisy(page: Page, index: int, plan: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on a note that times tell nothing: the runs that it names, and the table's words.

    rows: outcomes compared on times."""
    for where, note in page.sentences.items():
        if where[:2] != (index, "notes") or not note.startswith(TOO_NOISY):
            continue
        said = SPAN.search(note)
        times = [
            row["step_ms"]
            for row in rows
            if said and row["arm"] == said["arm"] and row["status"] == "finished" and row["step_ms"]
        ]
        if said is None or not times:
            yield f"a note names no runs whose times were compared: {note}"
            continue
        for told, time in ((said["least"], min(times)), (said["most"], max(times))):
            last = 10.0 ** -len(told.partition(".")[2])  # what one of the last printed digit is
            if abs(float(told) - time) > 0.51 * last:
                yield f"a note says {told} ms a step of {said['arm']}, its rows {time:.5g}"
        for place, arm in enumerate(plan["arms"]):
            ends = page.verdicts.get((index, place), {}).get("step_ms.interval")
            low, high = ends.values if ends is not None else (None, None)
            if low is not None and high is not None and (low > 0 or high < 0):
                yield f"a note says that no time is told apart, the table that {arm['name']}'s is"


def carried_value(row: Mapping[str, Printed], key: str) -> float:
    """What a row carries; nan where it has none."""
    value = row[key].values[0] if key in row else None
    return math.nan if value is None else value
