"""What disturbed the time of a run: kept in its result, said wherever its time is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """still: the clock ran while nothing else did; load: others used the run's devices."""

    kind: Literal["still", "load"]
    words: str

    def to_mapping(self) -> dict[str, str]:
        return asdict(self)


def stood_still(seconds: float) -> Disturbance:
    return Disturbance(kind="still", words=f"it stood still for {seconds:.0f} s")


def marks_of(disturbances: Sequence[Disturbance]) -> dict[str, Any]:
    """What a result says of them; nothing where there is none."""
    if not disturbances:
        return {}
    return {"disturbed": [disturbance.to_mapping() for disturbance in disturbances]}


def disturbances_of(result: Mapping[str, Any]) -> list[Disturbance]:
    """What a result says of its time; what is no disturbance is left out."""
    found = []
    rows = result.get("disturbed")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and row.get("kind") in ("still", "load"):
            found.append(Disturbance(kind=row["kind"], words=str(row.get("words"))))
    return found


def disturbed_words(result: Mapping[str, Any]) -> str | None:
    """In a line what disturbed a run's time, None where nothing did."""
    words = [disturbance.words for disturbance in disturbances_of(result)]
    if not words:
        return None
    return f"its time is disturbed: {'; '.join(words)}"
