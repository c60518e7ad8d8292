"""How far a script is from others: which of them it was made from."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.errors import UserError
from harness.split.diff import difference
from harness.split.source import decoded


@dataclass(frozen=True, kw_only=True)
class ParentDistance:
    """What a script differs from another one by."""

    candidate: str
    lines: int  # changed, of both, in normal form
    atoms: int


@dataclass(frozen=True, kw_only=True)
class Parents:
    """Candidates by their distance, the nearest first, and why others were skipped."""

    distances: tuple[ParentDistance, ...]
    skipped: Mapping[str, str]  # candidate -> why

    @property
    def nearest(self) -> ParentDistance | None:
        return self.distances[0] if self.distances else None


def parents_of(new: str, candidates: Mapping[str, bytes]) -> Parents:
    """The candidates by the lines, then the atoms, that the script differs by.

    new: in normal form. candidates: name -> content; one that cannot be taken apart, or is the
    script itself, is skipped."""
    parents: list[ParentDistance] = []
    skipped: dict[str, str] = {}
    for name, content in candidates.items():
        try:
            old = decoded(content, name)
            if old == new:
                skipped[name] = f"{name}: is the same program as NEW"
                continue
            atoms = difference(old, new).n_atoms
        except UserError as error:
            skipped[name] = str(error)
        except RecursionError:
            skipped[name] = f"{name}: is nested too deeply"
        else:
            lines = changed_lines(old.splitlines(), new.splitlines())
            parents.append(ParentDistance(candidate=name, lines=lines, atoms=atoms))
    ordered = sorted(parents, key=lambda one: (one.lines, one.atoms))
    return Parents(distances=tuple(ordered), skipped=skipped)


def changed_lines(old: list[str], new: list[str]) -> int:
    """How many lines a patch takes away and adds."""
    return _n_changed(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _n_changed(opcodes: Iterable[tuple[str, int, int, int, int]]) -> int:
    return sum(i2 - i1 + j2 - j1 for kind, i1, i2, j1, j2 in opcodes if kind != "equal")
