"""What disturbed the time of a run: kept in its result, said wherever its time is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """still: the clock ran while nothing else did; load: others used the run's devices."""

    kind: Literal["still", "load"]
    words: str


def stood_still(seconds: float) -> Disturbance:
    return Disturbance(kind="still", words=f"it stood still for {seconds:.0f} s")


def disturbances_of(rows: object) -> tuple[Disturbance, ...]:
    """`disturbed` of a result; what is no disturbance is left out."""
    disturbances = []
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, Mapping) or not isinstance(row.get("words"), str):
            continue
        if row.get("kind") in ("still", "load"):
            disturbances.append(Disturbance(kind=row["kind"], words=row["words"]))
    return tuple(disturbances)


def disturbed_words(disturbances: Sequence[Disturbance]) -> str | None:
    """In a line what disturbed a run's time, None where nothing did."""
    sentences = [disturbance.words for disturbance in disturbances]
    if not sentences:
        return None
    return f"its time is disturbed: {'; '.join(sentences)}"
