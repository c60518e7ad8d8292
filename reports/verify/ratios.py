"""The second path for the note on step times: both its changes from the table that is printed."""

import math
import re
from collections.abc import Iterator, Mapping

from reports.verify.page import Embedded, Page, Printed

RATIO_NOTE = re.compile(
    r"Of (?P<arm>.+) the mean step time is (?P<means>\S+) % off (?P<base>.+)'s, its Δ step time"
    r" (?P<blocks>\S+) %:"
)
ARM_AND_BASE = ("arm", "base")
OF_PRINTED_PERCENT = 0.15  # percent: half of the last digit, and what carried values leave off


def check_ratios(page: Page, index: int, plan: Embedded) -> Iterator[str]:
    """Sentences on a note whose two changes are not those of the table.

    index: of the experiment among those of the page."""
    places = {arm["name"]: place for place, arm in enumerate(plan["arms"])}
    for where, note in page.sentences.items():
        said = RATIO_NOTE.match(note)
        if where[:2] != (index, "notes") or said is None:
            continue
        row, of_base = (
            page.verdicts.get((index, places.get(said[who], -1)), {}) for who in ARM_AND_BASE
        )
        mean, base = carried_value(row, "step_ms.mean"), carried_value(of_base, "step_ms.mean")
        effect = carried_value(row, "step_ms.effect")
        for name, change in (("means", mean / base - 1), ("blocks", effect)):
            told = float(said[name].replace("−", "-"))
            if not abs(told - 100 * change) <= OF_PRINTED_PERCENT:  # nan where the table has none
                yield f"a note says {told:+.1f} % of {said['arm']}, the table {100 * change:+.1f} %"


def carried_value(row: Mapping[str, Printed], key: str) -> float:
    """What a row carries; nan where it has none."""
    value = row[key].values[0] if key in row else None
    return math.nan if value is None else value
