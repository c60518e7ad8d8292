"""The forest plot: every arm's effect with its interval, a row each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.analysis.types import (
    COMPARED_TIMES,
    LOSSES,
    Comparison,
    OwnWords,
    effect,
    effect_kind,
)
from reports.figures.base import (
    CHAR_PX,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    dot,
    extent,
    line,
    mark,
    shorten,
    text,
    x_axis,
)
from reports.figures.palette import Palette
from reports.figures.rows import (
    VALUE_LINE,
    name_above,
    name_beside,
    narrow_row,
    narrow_step,
    wide_step,
)
from reports.format import show, with_interval
from reports.stats.digits import kept, kept_p, pixel

# An axis narrower than twice this shows rounding.
LEAST_LOSS, LEAST_TIME = 1e-4, 0.1  # nats, percent
FOREST_TITLES = {  # metric -> title of its forest plot, and its axis
    "val_loss": (
        "Effect on the loss",
        "difference in validation loss to {}; below zero is better",
    ),
    "heldout_loss": (
        "Effect on the held-out loss",
        "difference in held-out loss to {}; below zero is better",
    ),
    "step_ms": ("Effect on the step time", "step time against {}, %; below zero is better"),
    "train_time_s": (
        "Effect on the training time",
        "training time against {}, %; below zero is better",
    ),
    "time_to_target": (
        "Effect on the time to target",
        "time to target against {}, %; below zero is better",
    ),
}
EffectEnds = tuple[float | None, float | None, float | None]  # estimate, low, high


def side_of(c: Comparison) -> str:
    """On which side of zero its metric is better."""
    return "above" if c.better == "higher" else "below"


def titles_of(c: Comparison) -> tuple[str, str]:
    """Title of the forest plot of a comparison's metric, and of its axis."""
    of_own = (
        f"Effect on {c.metric}",
        f"difference in {c.metric} to {{}}; {side_of(c)} zero is better",
    )
    return FOREST_TITLES.get(c.metric, of_own)


def effect_text(c: Comparison) -> str:
    value, low, high = effect(c)
    kind = effect_kind(c.metric)
    if c.is_bit_equal:
        return f"{show(value, kind)}, bit for bit equal"
    return with_interval(value, low, high, kind)


def drawn_effect(c: Comparison) -> EffectEnds:
    """Estimate, low and high as the axis has them: a difference, a time's percent."""
    if c.metric not in COMPARED_TIMES:
        return effect(c)
    ends: list[float | None] = []
    for value in effect(c):
        ends.append(None if value is None else value * 100.0)
    return ends[0], ends[1], ends[2]


def forest_range(
    metric: str, effects: Mapping[str, EffectEnds], margin: float | None
) -> tuple[float, float]:
    """The ends of the axis: around all finite ends, zero, and the margin or what is rounding."""
    finite = []
    for ends in effects.values():
        finite += [v for v in ends if v is not None and math.isfinite(v)]
    least = margin or LEAST_TIME
    if not margin and metric not in COMPARED_TIMES:
        least = LEAST_LOSS if metric in LOSSES else 0.0
    around = [0.0]
    if margin or max(map(abs, finite), default=0.0) < least:
        around += [-least, least]
    return extent(finite, around=around)


@dataclass(frozen=True, kw_only=True)
class ForestLayout:
    """Where a forest plot has its axis, left to right, and a row every `step` pixels from 14 on."""

    width: int
    above: bool  # names stand above their rows, in a narrow column
    room: float  # px of a name there
    left: float
    right: float
    step: float
    n_rows: int

    @classmethod
    def of(cls, width: int, palette: Palette, arms: Sequence[str], longest: int) -> "ForestLayout":
        """longest: characters of the longest effect, which stands on the right.

        In a narrow column it has a line of its own where a name needs the whole width."""
        n_rows = len(arms)
        if width != WIDE:
            room = width - CHAR_PX * (longest + 1)
            step = narrow_row(n_rows)
            if any(len(arm) * CHAR_PX > room for arm in arms):
                room = width
                step = narrow_step(palette, arms, room) + VALUE_LINE
            return cls(
                width=width,
                above=True,
                room=room,
                left=12,
                right=width - 12,
                step=step,
                n_rows=n_rows,
            )
        step = wide_step(palette, arms, 22 if n_rows > 14 else 30)
        right = width - 14 - CHAR_PX * longest
        return cls(
            width=width, above=False, room=0, left=232, right=right, step=step, n_rows=n_rows
        )

    @property
    def bottom(self) -> float:
        return 14 + self.step * self.n_rows

    def y(self, row: int) -> float:
        """The middle of a row's interval."""
        if self.above:
            return 14 + self.step * (row + 1) - 16
        return 14 + self.step * row + self.step / 2


@dataclass(frozen=True, kw_only=True)
class Forest:
    """The drawing of a forest plot."""

    metric: str
    against: str  # what arms are compared with
    comparisons: Mapping[str, Comparison]
    effects: Mapping[str, EffectEnds]
    palette: Palette
    margin: float | None
    x_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        longest = max(len(effect_text(c)) for c in self.comparisons.values())
        at = ForestLayout.of(width, self.palette, [*self.comparisons], longest)
        low, high = self.x_range
        x = AxisScale(low=low, high=high, start=at.left, end=at.right)
        parts = []
        if self.margin:
            parts.append(margin_zone(self.margin, x, at.bottom))
        parts.append(x_axis(x, 6, at.bottom, self.axis_label(at), n=5))
        parts.append(line(x(0), 6, x(0), at.bottom, "zero"))
        for row, arm in enumerate(self.comparisons):
            y = at.y(row)
            label = effect_text(self.comparisons[arm])
            tip = f"{arm}: {label}"
            marks = [
                *row_words(self.palette, arm, label, y, at),
                *self.interval_marks(arm, y, x, tip),
            ]
            value = self.effects[arm][0]
            if value is not None:
                marks.append(dot(x(value), y, r=5, css="center", tip=tip))
            parts.append(self.palette.series(arm, marks))
        return "".join(parts), at.bottom + 44

    def axis_label(self, at: ForestLayout) -> str:
        if at.above:
            unit = ", %"
            if self.metric not in COMPARED_TIMES:
                unit = ""
            return f"difference{unit}"
        some = next(iter(self.comparisons.values()))
        return titles_of(some)[1].format(shorten(self.against, 160))

    def interval_marks(self, arm: str, y: float, x: AxisScale, tip: str) -> list[str]:
        """The interval and its two ends; an end that leaves the axis is an arrow."""
        _, low, high = self.effects[arm]
        if low is None or high is None:
            return []
        left = max(self.x_range[0], low)
        right = min(self.x_range[1], high)
        bar = mark(
            f'path d="M{pixel(x(left))} {pixel(y)}H{pixel(x(right))}"', css="interval", tip=tip
        )
        left_end = interval_end(x(left), y, side=-1, inside=low == left)
        right_end = interval_end(x(right), y, side=1, inside=high == right)
        return [bar, left_end, right_end]


def margin_zone(margin: float, x: AxisScale, bottom: float) -> str:
    """The grey zone within which a difference is not worth knowing."""
    start, width = x(-margin), x(margin) - x(-margin)
    place = f'x="{pixel(start)}" y="6" width="{pixel(width)}" height="{bottom - 6}"'
    return f'<rect class="margin" {place}/>'


def row_words(palette: Palette, arm: str, label: str, y: float, at: ForestLayout) -> list[str]:
    """An arm's name and its effect in words, beside the row or above it.

    palette: of all arms; label: the effect; y: of the row; at: where things are.
    """
    if at.above:
        name_y = y - 13 - VALUE_LINE * (at.room == at.width)
        name = name_above(palette, arm, name_y, at.room)
        return [name, text(at.width, y - 13, label, anchor="end", css="tick")]
    name = name_beside(palette, arm, at.left - 14, y)
    return [name, text(at.width, y + 4, label, anchor="end", css="tick")]


def interval_end(x: float, y: float, *, side: int, inside: bool) -> str:
    """The cap of an interval, or outside the axis an arrow; side: -1 the left one, 1 the right."""
    path = f"M{pixel(x)} {pixel(y)}l{-6 * side} -4v8z"
    if inside:
        path = f"M{pixel(x)} {pixel(y - 4)}v8"
    return f'<path class="interval" d="{path}"/>'


def forest(
    metric: str,
    comparisons: Mapping[str, Comparison],
    palette: Palette,
    margin: float | None,
    *,
    naming: OwnWords | None = None,
    all_parts: bool = False,
) -> Figure:
    """Estimate and simultaneous interval per arm; unbounded ends run to the edge.

    comparisons: of the metric; palette: of all arms; margin: of the plan, for this metric;
    naming: where each arm is compared with the one that it is held against, the words for that;
    all_parts: an effect is that of all parts up to the arm, in whose order they are.
    """
    some = next(iter(comparisons.values()))
    title, against, key = titles_of(some)[0], palette.baseline, f"forest_{metric}"
    if naming:
        title, against = f"What each {naming.arm} adds", naming.before
        key = f"increments_{metric}"
    effects = {arm: drawn_effect(c) for arm, c in comparisons.items()}
    drawing = Forest(
        metric=metric,
        against=against,
        comparisons=comparisons,
        effects=effects,
        palette=palette,
        margin=margin,
        x_range=forest_range(metric, effects, margin),
    )
    methods = "; ".join(dict.fromkeys(str(c.method) for c in comparisons.values()))
    caption = f"Arm against {against} with simultaneous {some.level:.0%} intervals ({methods})."
    if all_parts:
        title += ", all parts up to an arm together"
        caption += " Not the arm's own part: what all parts up to there do together."
    caption += f" {side_of(some).capitalize()} zero is better."
    if margin:
        caption += (
            f" The grey zone is the margin of ±{margin:g} within which a difference is not worth "
            "knowing."
        )
    rows, labels = [], []
    for arm, c in comparisons.items():
        ends = [kept(end) for end in effect(c)]
        rows.append((arm, *ends, kept_p(c.p), c.n_arm, c.n_baseline, c.method))
        labels.append(f"{arm} {effect_text(c)}")
    return Figure(
        key=key,
        title=title,
        caption=caption,
        alt=f"{title}, arm against {against}: " + "; ".join(labels[:20]),
        columns=("arm", "estimate", "low", "high", "p_adjusted", "n_arm", "n_baseline", "method"),
        rows=tuple(rows),
        draw=drawing.draw,
    )
