"""The colour, the dash and the name of each arm, the same in every figure of a page."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reports.figures.base import CHAR_PX, ArmKey, shorten

N_HUES = 8  # colours; arms beyond share them
MOST_NUMBERED = 16  # arms beyond which numbers hide the marks
MOST_LINES = 4  # of an arm's name
BETWEEN = re.compile(r"(?<=, )|(?= \+ )")  # what a line of a name may end at
OF_VERDICT = "v-"  # how the class of a colour begins that tells a verdict
COLOURS = {"good": "green better", "bad": "orange worse", "even": "blue no different"}
DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 2")  # the ninth arm is the first hue again, dashed


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colour class of each arm on a page: c0 for the baseline, then eight hues in turn.

    Where there are more arms than hues, that of its verdict.
    """

    arms: tuple[str, ...]
    baseline: str
    tones: Mapping[str, str] = field(default_factory=dict)  # arm -> that of its verdict

    @property
    def is_by_verdict(self) -> bool:
        """Whether there are more arms than hues, so that colour tells the verdict alone."""
        return len(self.arms) - 1 > N_HUES and bool(self.tones)

    def label(self, arm: str, px: float) -> str:
        """The arm's name to fit px pixels; where another arm's would read the same, its number.

        Of a point of the baseline its place on the axes alone, where that does not fit its values;
        of several changes that do not fit how each begins.
        """
        of_baseline = f"{self.baseline.partition(' @ ')[0]} @ "
        names = {other: other.removeprefix(of_baseline) for other in self.arms}
        if shorten(names[arm], px) != names[arm]:
            names = {
                other: beginnings(values_alone(other, name), px) for other, name in names.items()
            }
        short = shorten(names[arm], px)
        if sum(shorten(name, px) == short for name in names.values()) == 1:
            return short
        number = f" #{self.arms.index(arm)}"
        return shorten(names[arm], px - len(number) * CHAR_PX) + number

    def lines(self, arm: str, px: float) -> list[str]:
        """The arm's whole name on up to MOST_LINES lines of px pixels; else its label on one.

        Lines end between changes and between the values of axes.
        """
        of_baseline = f"{self.baseline.partition(' @ ')[0]} @ "
        name = arm.removeprefix(of_baseline) if len(arm) * CHAR_PX > px else arm
        lines = [""]
        for piece in BETWEEN.split(name):
            if lines[-1] and len(lines[-1] + piece.rstrip()) * CHAR_PX > px:
                lines.append("")
            lines[-1] += piece
        lines = [line.strip() for line in lines]
        fits = max(map(len, lines)) * CHAR_PX <= px
        names = [other.removeprefix(of_baseline) for other in self.arms]
        if len(lines) > MOST_LINES or not fits or names.count(name) > 1:
            return [self.label(arm, px)]
        return lines

    def css(self, arm: str) -> str:
        if arm == self.baseline:
            return "c0"
        if self.is_by_verdict:
            return f"{OF_VERDICT}{self.tones.get(arm, 'open')}"
        return f"c{1 + self._place(arm) % N_HUES}"

    def dash(self, arm: str) -> str:
        if arm == self.baseline or self.is_by_verdict:
            return ""
        return DASHES[self._place(arm) // N_HUES % len(DASHES)]

    def dash_attribute(self, arm: str) -> str:
        """The attribute that dashes a path of this arm, a space in front; '' for a whole line."""
        dash = self.dash(arm)
        if not dash:
            return ""
        return f' stroke-dasharray="{dash}"'

    def series(self, arm: str, parts: Iterable[str]) -> str:
        """The marks of an arm as one group, which the page dims and shows together."""
        inner = "".join(parts)
        group = self.arms.index(arm)
        return f'<g class="series {self.css(arm)}" data-arm-group="{group}">{inner}</g>'

    def legend(self, arms: Iterable[str]) -> tuple[ArmKey, ...]:
        keys = []
        for arm in arms:
            number = f"{self.number(arm)} " if self.has_numbers else ""
            keys.append(ArmKey(arm, self.css(arm), f"{number}{arm}"))
        return tuple(keys)

    @property
    def has_numbers(self) -> bool:
        """Whether drawings number the arms: their colours are alike, and they are not too many."""
        return self.is_by_verdict and len(self.arms) <= MOST_NUMBERED

    def number(self, arm: str) -> str:
        """The arm's place in the plan; of the baseline, which is the first, 0."""
        return str(self.arms.index(arm))

    @property
    def in_words(self) -> str:
        """What the colours say, a space in front; '' where an arm has one of its own."""
        if not self.is_by_verdict:
            return ""
        told = [colour for tone, colour in COLOURS.items() if tone in self.tones.values()]
        said = f" The colour is the verdict: {', '.join([*told, 'grey undecided'])}."
        if self.has_numbers:
            said += " Numbers are those of the arms."
        return said

    def _place(self, arm: str) -> int:
        changed = [a for a in self.arms if a != self.baseline]
        return changed.index(arm)


def values_alone(arm: str, name: str) -> str:
    """The name of an arm without the names of its axes: 'x0.5, x2' of 'lr x0.5, momentum x2'."""
    if " @ " not in arm:
        return name
    place = arm.rpartition(" @ ")[2]
    values = ", ".join(point.rpartition(" ")[2] for point in place.split(", "))
    return name.replace(place, values)


def beginnings(name: str, px: float) -> str:
    """Several changes that do not fit px pixels by how each begins: 'unti+zero' of two.

    The name as it is where fewer than three letters of each would stand.
    """
    changes = name.split(" + ")
    room = int(px / CHAR_PX)
    if len(name) <= room or len(changes) == 1:
        return name
    n_letters = (room - len(changes) + 1) // len(changes)
    if n_letters < 3:
        return name
    return "+".join(change[:n_letters].rstrip("_") for change in changes)
