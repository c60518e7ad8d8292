"""Successive halving: how many points of a sweep go on from each budget to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from harness.run.document import Content, Document
from harness.run.typed import typed

GRID = ".grid"  # ends the name of a sweep that chooses the rates of another experiment


@dataclass(frozen=True, kw_only=True)
class Halving:
    """A halving, and which rung of it an experiment is."""

    one_in: int  # of so many points one goes on
    budgets: Sequence[int]  # training steps of the rungs, the shortest first
    n_points: int  # at the first rung, the baseline not counted
    rung: int = 0

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(**{name: content[name] for name in cls.__dataclass_fields__}))

    def to_mapping(self) -> Content:
        return {**vars(self), "budgets": list(self.budgets)}

    @property
    def is_last(self) -> bool:
        """Whether no rung comes after this one."""
        return self.rung == len(self.budgets) - 1

    @property
    def n_chosen(self) -> int:
        """How many points this rung chooses: those that go on, of the last one the selected one."""
        return 1 if self.is_last else self.n_at(self.rung + 1)

    def n_at(self, rung: int) -> int:
        """How many points a rung has, where as many as that came through."""
        return max(1, self.n_points // int(self.one_in**rung))

    def name_at(self, whole: str, rung: int) -> str:
        """The experiment of a rung: the last one has the name of the whole."""
        last = len(self.budgets) - 1
        return whole if rung == last else f"{whole}.rung{rung + 1}"

    @property
    def words(self) -> str:
        """Which rung it is."""
        return f"rung {self.rung + 1} of {len(self.budgets)}"


def is_part(name: str, halving: Halving | None) -> bool:
    """Whether an experiment is what its command runs first, a grid or a rung, and not all of it."""
    return name.endswith(GRID) or bool(halving and not halving.is_last)
