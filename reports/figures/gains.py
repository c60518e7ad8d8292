"""Learning gain against systems gain: what fewer steps and what faster steps saved of the time."""

from collections.abc import Mapping
from dataclasses import dataclass

from reports.analysis.types import Comparisons, Decomposition
from reports.figures.base import (
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    Palette,
    extent,
    line,
    mark,
    text,
    x_axis,
)
from reports.stats.digits import kept, pixel, settled


@dataclass(frozen=True, kw_only=True)
class Gains:
    """The drawing of learning gain and systems gain, two bars an arm."""

    of_arms: Mapping[str, Decomposition]
    palette: Palette
    x_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        above = width != WIDE
        left, step, label = 232, 46, "time to target, % of the baseline; below zero is time saved"
        if above:
            left, step, label = 8, 62, "time to target, % of the baseline"
        low, high = self.x_range
        x = AxisScale(low=low, high=high, start=left, end=width - 60)
        bottom = 10 + step * len(self.of_arms)
        axis = x_axis(x, 4, bottom, label, n=width // 120)
        parts = [axis, line(x(0), 4, x(0), bottom, "zero")]
        for row, (arm, gain) in enumerate(self.of_arms.items()):
            top = 10 + step * row
            if above:
                top += 16
                name = text(0, top - 3, self.palette.label(arm, width - 10), css="label")
            else:
                name = text(
                    left - 12, top + 20, self.palette.label(arm, 214), anchor="end", css="label"
                )
            parts.append(self.palette.series(arm, [name, *gain_bars(arm, gain, top, x)]))
        return "".join(parts), bottom + 44


def gain_bars(arm: str, gain: Decomposition, top: float, x: AxisScale) -> list[str]:
    """The bar of learning, and below it that of systems, each with its number."""
    assert gain.learning_percent is not None, "an arm without a learning gain is not drawn"
    bars = []
    sides = (
        ("learning", gain.learning_percent, "bar", top),
        ("systems", gain.systems_percent, "bar light", top + 17),
    )
    for label, percent, css, y in sides:
        start, end = sorted((x(0), x(percent)))
        percent = settled(percent)
        width = max(0.8, end - start)
        shape = f'rect x="{pixel(start)}" y="{pixel(y + 4)}" width="{pixel(width)}" height="14"'
        bars.append(mark(shape, css=css, tip=f"{arm}: {label} {percent:+.2f} %"))
        number = f"{label} {percent:+.1f}".replace("-", "−")
        bars.append(text(end + 5, y + 15, number, css="tick"))
    return bars


def gains(outcome: Comparisons, palette: Palette) -> Figure | None:
    """Learning gain (fewer steps) beside systems gain (faster steps), % of the time to target."""
    of_arms: dict[str, Decomposition] = {}
    numbers: list[float] = []
    rows, labels = [], []
    for arm, gain in outcome.decompositions.items():
        learning, systems, total = gain.learning_percent, gain.systems_percent, gain.total_percent
        if learning is None:
            continue
        of_arms[arm] = gain
        numbers += [learning, systems, total]
        shown = (learning, systems, total, gain.learning_s, gain.systems_s, gain.total_s)
        rows.append((arm, *map(kept, shown)))
        labels.append(f"{arm} learning {settled(learning):+.1f}, systems {settled(systems):+.1f}")
    if not of_arms:
        return None
    drawing = Gains(of_arms=of_arms, palette=palette, x_range=extent(numbers, around=[0.0]))
    return Figure(
        key="gains",
        title="Learning gain against systems gain",
        caption="Time is steps times step time: fewer steps to the target (learning), faster steps "
        "(systems). The two add up to the total.",
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
