"""A side of `ablate ab` as it is typed: what a shell would read, or a patch of OLD.

train.py        main        REF:SCRIPT      a script, a git ref, a script at a ref
'train.py --lr=0.03'   'LR=0.03 train.py'   with arguments, with environment variables
idea.diff       'idea.diff --lr=0.03'       OLD with a patch, as `diff -u old.py new.py` makes it
"""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import UserError

ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
PATCHES = (".diff", ".patch")


@dataclass(frozen=True, kw_only=True)
class Side:
    """What is compared: where its code is, and what it is given beside what both are."""

    text: str  # as it was typed
    place: str  # a script, a git ref or a patch
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Side":
        """Raises UserError where the text is none."""
        if Path(text).is_file():
            return cls(text=text, place=text)
        try:
            arguments = shlex.split(text)
        except ValueError:
            raise UserError(f"{text}: has a quote that is not closed") from None
        env: dict[str, str] = {}
        while arguments and (assigned := ASSIGNED.fullmatch(arguments[0])) is not None:
            env[assigned[1]] = assigned[2]
            arguments.pop(0)
        if not arguments:
            raise UserError(
                f"'{text}': names no script: such as train.py, or 'LR=0.03 train.py --wd=0'"
            )
        return cls(text=text, place=arguments[0], args=tuple(arguments[1:]), env=env)

    @property
    def patch(self) -> Path | None:
        """The patch of OLD that this is, None for a script or a ref."""
        path = Path(self.place)
        return path.absolute() if path.suffix in PATCHES and path.is_file() else None

    @property
    def short(self) -> str:
        """A script's stem, with what it is given; a ref as it is."""
        path = Path(self.place)
        name = path.stem if path.is_file() else self.place
        return " ".join([*(f"{k}={v}" for k, v in self.env.items()), name, *self.args])


def names_of(sides: Sequence[Side]) -> list[str]:
    """Short names that tell the sides apart: the scripts' stems, else the texts as given."""
    n_short = Counter(side.short for side in sides)
    names: list[str] = []
    for side in sides:
        name = side.short if n_short[side.short] == 1 else side.text
        while name in names:
            name += " again"
        names.append(name)
    return names
