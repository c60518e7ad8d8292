"""What became of every sabotage, and the table by module."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
NOTICED, ALIVE = ("killed", "timeout"), ("survived", "untested")


@dataclass(frozen=True, kw_only=True)
class Fate:
    """A sabotage by its text, and its end: killed, timeout, equivalent, survived, or untested (no test comes near)."""

    path: str
    line: int
    was: str
    becomes: str
    operator: str
    end: str
    seconds: float = 0.0
    by: str = ""  # the test that noticed, the reason of an equivalent, how many tests did not

    @property
    def text(self) -> tuple[str, str, str]:
        return self.path, self.was, self.becomes

    def __str__(self) -> str:
        change = f"{self.path}:{self.line}  {self.was}  ->  {self.becomes}"
        return f"{self.end}: {change}  [{self.operator}]" + (f"  ({self.by})" if self.by else "")


def equivalents() -> dict[tuple[str, str, str], str]:
    """(file, line before, line after) -> why no behaviour changes with it."""
    named = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []
    return {(e["path"], e["was"], e["becomes"]): e["why"] for e in named}


def table(fates: Sequence[Fate]) -> str:
    """By module; then what survived."""
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    for fate in fates:
        for module in (str(Path(fate.path).parent), "all"):
            by_module[module]["killed" if fate.end in NOTICED else fate.end] += 1
    heads = ("module", "drawn", "killed", "equivalent", "survived", "score")
    lines = ["{:<24}{:>7}{:>8}{:>12}{:>10}{:>7}".format(*heads)]
    for module, ends in sorted(by_module.items(), key=lambda item: (item[0] == "all", item[0])):
        killed, equivalent, drawn = ends["killed"], ends["equivalent"], ends.total()
        of = drawn - equivalent
        score = f"{killed / of:.0%}" if of else "-"
        lines.append(
            f"{module:<24}{drawn:>7}{killed:>8}{equivalent:>12}{of - killed:>10}{score:>7}"
        )
    seconds = [fate.seconds for fate in fates if fate.end != "equivalent"]
    if seconds:
        lines += ["", f"{sum(seconds) / len(seconds):.1f} s a sabotage"]
    survived = [str(fate) for fate in fates if fate.end in ALIVE]
    return "\n".join([*lines, "", *survived])
