"""Learning gain against systems gain: what fewer steps and what faster steps saved of the time."""

from collections.abc import Mapping
from dataclasses import dataclass

from reports.analysis.arm_values import has_resolved
from reports.analysis.types import TIME_OF_ONE, Comparisons, Decomposition
from reports.figures.base import WIDE, AxisScale, Drawing, Figure, extent, line, mark, text, x_axis
from reports.figures.palette import Palette
from reports.figures.rows import LINE, most_lines, name_above, name_beside
from reports.stats.digits import kept, pixel, settled


@dataclass(frozen=True, kw_only=True)
class Gains:
    """The drawing of learning gain and systems gain, two bars an arm."""

    of_arms: Mapping[str, Mapping[str, float]]  # arm -> what is resolved -> percent
    palette: Palette
    x_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        above = width != WIDE
        left, step, label = 232, 46, "time to target, % of the baseline; below zero is time saved"
        if above:
            n_more = most_lines(self.palette, self.of_arms, width - 10) - 1
            left, step, label = 8, 62 + LINE * n_more, "time to target, % of the baseline"
        low, high = self.x_range
        x = AxisScale(low=low, high=high, start=left, end=width - 60)
        bottom = 10 + step * len(self.of_arms)
        axis = x_axis(x, 4, bottom, label, n=width // 120)
        parts = [axis, line(x(0), 4, x(0), bottom, "zero")]
        for row, (arm, sides) in enumerate(self.of_arms.items()):
            top = 10 + step * row
            if above:
                top += step - 46
                name = name_above(self.palette, arm, top - 3, width - 10)
            else:
                name = name_beside(self.palette, arm, left - 12, top + 16)
            parts.append(self.palette.series(arm, [name, *gain_bars(arm, sides, top, x)]))
        return "".join(parts), bottom + 44


def gain_bars(arm: str, sides: Mapping[str, float], top: float, x: AxisScale) -> list[str]:
    """The bar of learning, and below it that of systems, each with its number, where resolved."""
    bars = []
    for label, css, y in (("learning", "bar", top), ("systems", "bar light", top + 17)):
        if label not in sides:
            bars.append(text(x(0) + 5, y + 15, f"{label} not resolved", css="tick"))
            continue
        percent = sides[label]
        start, end = sorted((x(0), x(percent)))
        percent = settled(percent)
        width = max(0.8, end - start)
        shape = f'rect x="{pixel(start)}" y="{pixel(y + 4)}" width="{pixel(width)}" height="14"'
        bars.append(mark(shape, css=css, tip=f"{arm}: {label} {percent:+.2f} %"))
        number = f"{label} {percent:+.1f}".replace("-", "−")
        bars.append(text(end + 5, y + 15, number, css="tick"))
    return bars


def resolved_sides(outcome: Comparisons, arm: str, gain: Decomposition) -> dict[str, float]:
    """What of an arm's gain leaves zero out, in percent."""
    percents = {"learning": gain.learning_percent, "systems": gain.systems_percent}
    sides = {}
    for side, percent in percents.items():
        if percent is not None and has_resolved(outcome, arm, side):
            sides[side] = percent
    return sides


def gains_caption(outcome: Comparisons) -> str:
    """What the two gains are, and what tells each from nothing."""
    n, of_one = outcome.length, TIME_OF_ONE[outcome.length]
    tells = "tokens to the target" if outcome.step_tokens else "loss"
    return (
        f"Time is {n} times {of_one}: fewer {n} to the target (learning), faster {n} "
        "(systems). The two add up to the total; one is resolved where the interval of the "
        f"{tells} (learning) or of the {of_one} (systems) leaves zero out."
    )


def gains(outcome: Comparisons, palette: Palette) -> Figure | None:
    """Learning gain (fewer steps) beside systems gain (faster steps), % of the time to target."""
    of_arms: dict[str, Mapping[str, float]] = {}
    numbers: list[float] = []
    rows, labels = [], []
    for arm, gain in outcome.decompositions.items():
        learning, systems, total = gain.learning_percent, gain.systems_percent, gain.total_percent
        if learning is None:
            continue
        sides = resolved_sides(outcome, arm, gain)
        if not sides:
            continue
        of_arms[arm] = sides
        numbers += sides.values()
        shown = (learning, systems, total, gain.learning_s, gain.systems_s, gain.total_s)
        rows.append((arm, *map(kept, shown)))
        told = [f"{side} {settled(percent):+.1f}" for side, percent in sides.items()]
        labels.append(f"{arm} {', '.join(told)}")
    if not of_arms:
        return None
    drawing = Gains(of_arms=of_arms, palette=palette, x_range=extent(numbers, around=[0.0]))
    return Figure(
        key="gains",
        title="Learning gain against systems gain",
        caption=gains_caption(outcome),
        alt="Bars per arm of learning and systems gain in percent: " + "; ".join(labels[:20]),
        columns=(
            "arm",
            "learning_percent",
            "systems_percent",
            "total_percent",
            "learning_s",
            "systems_s",
            "total_s",
        ),
        rows=tuple(rows),
        draw=drawing.draw,
    )
