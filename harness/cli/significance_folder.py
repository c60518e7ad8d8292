"""`ablate significance DIR`: the rule on a folder of logs, beside what its page claims."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.foreign.log_arms import ArmBy, name_arms
from harness.foreign.log_files import files_under, read_all
from harness.foreign.printed import pages_of, printed_losses

if TYPE_CHECKING:
    from reports.stats.rules import RuleResult

CLAIM = re.compile(
    r"\bp(?:[ -]?val(?:ue)?)?[`* ]{0,3}(?P<sign>[=:<])[`* ]{0,3}(?P<value>\d\.\d+(?:e-?\d+)?)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A p value that a page prints."""

    where: str  # file and line
    text: str
    value: float
    n_decimals: int
    is_bound: bool  # p < value

    def holds(self, p: float) -> bool:
        """Whether a p value is the claimed one, at the digits that are printed."""
        if self.is_bound:
            return p < self.value
        if "e" in self.text.lower():
            return abs(p - self.value) <= 0.05 * self.value
        return abs(p - self.value) <= 0.51 * 10**-self.n_decimals


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """The losses of an arm, or of a list that a page prints, under a rule of the benchmark."""

    arm: str
    n: int
    mean: float
    sd: float | None = None
    p: float | None = None
    claims: str  # that it bears out; or why the rule says nothing of it


def claims_of(folder: Path) -> Iterator[Claim]:
    """The p values in the pages of a folder, each once."""
    seen = set()
    for path, page in pages_of(folder):
        for number, line in enumerate(page.splitlines(), start=1):
            for match in CLAIM.finditer(line):
                text = match["value"]
                key = (path, match["sign"], text)
                if key in seen:
                    continue
                seen.add(key)
                yield Claim(
                    where=f"{path}:{number}",
                    text=text,
                    value=float(text),
                    n_decimals=len(text.lower().partition("e")[0].partition(".")[2]),
                    is_bound=match["sign"] == "<",
                )


def losses_of_folder(folder: Path) -> dict[str, list[float]]:
    """Arm -> the final losses of its logs, each run once; raises UserError without a log."""
    last_losses, seen = [], set()
    files = [file for file in files_under([folder]) if not file.is_trace]
    for file, runs in zip(files, read_all([file.path for file in files]), strict=True):
        for log in runs:
            digest = None if log.refused is not None else log.reading.digest()
            if digest is None or digest in seen or log.reading.exploded is not None:
                continue
            seen.add(digest)
            last_losses.append((file.place, log.ran(), log.reading.losses["val"][-1]))
    if not last_losses:
        raise UserError(f"{folder}: holds no whole log: name a folder of logs")
    arms: dict[str, list[float]] = defaultdict(list)
    names = name_arms([(place, program) for place, program, _ in last_losses], ArmBy.CODE)
    for name, (_, _, loss) in zip(names, last_losses, strict=True):
        arms[name].append(loss)
    return dict(arms)


def check_folder(
    folder: Path, rule: "Callable[[Sequence[float], float], RuleResult]", target: float
) -> tuple[list[SampleRow], list[str]]:
    """(a row per arm with the claims that it bears out, the claims that no arm does)."""
    claims = list(claims_of(folder))
    samples = {**losses_of_folder(folder), **dict(printed_losses(folder, target))}
    borne_out: set[str] = set()
    rows = []
    for arm, losses in samples.items():
        row = SampleRow(arm=arm, n=len(losses), mean=sum(losses) / len(losses), claims="")
        try:
            outcome = rule(losses, target)
        except ValueError as error:
            rows.append(replace(row, claims=str(error)))
            continue
        held = _held(claims, outcome.p)
        borne_out.update(claim.where + claim.text for claim in held)
        shown = ", ".join(f"p={claim.text}" for claim in held)
        rows.append(replace(row, sd=outcome.sd, p=outcome.p, claims=shown))
    missing = []
    for claim in claims:
        if claim.where + claim.text not in borne_out:
            sign = "<" if claim.is_bound else "="
            missing.append(f"{claim.where}: p{sign}{claim.text}: no log or printed list gives it")
    return rows, missing


def _held(claims: Sequence[Claim], p: float | None) -> list[Claim]:
    return [] if p is None else [claim for claim in claims if claim.holds(p)]
