"""Figures of the verdicts: effects with their intervals, the waterfall of a ladder, learning gain against systems gain."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from reports.analysis.types import LOSSES, Comparison, Comparisons, effect
from reports.figures.base import (
    CHAR_PX,
    WIDE,
    Figure,
    Palette,
    Scale,
    dot,
    extent,
    line,
    mark,
    shorten,
    text,
    x_axis,
    y_axis,
)
from reports.format import interval, kept, kept_p, known, pixel, settled, show

LEAST = {True: 1e-4, False: 0.1}  # of a loss, nats, and of a time, percent: an axis narrower than twice this shows rounding
TITLES = {  # metric -> title of its forest plot, and its axis: losses as differences, times as percent of the baseline
    "val_loss": ("Effect on the loss", "difference in validation loss to {}; below zero is better"),
    "heldout_loss": ("Effect on the held-out loss", "difference in held-out loss to {}; below zero is better"),
    "step_ms": ("Effect on the step time", "step time against {}, %; below zero is better"),
    "train_time_s": ("Effect on the training time", "training time against {}, %; below zero is better"),
    "time_to_target": ("Effect on the time to target", "time to target against {}, %; below zero is better"),
}


def effect_text(c: Comparison) -> str:
    value, low, high = effect(c)
    kind = "loss_delta" if c.ratio is None else "percent"
    return f"{show(value, kind)} {interval(low, high, kind)}".strip()


def forest(metric: str, comparisons: Mapping[str, Comparison], palette: Palette, margin: float | None) -> Figure:
    """Estimate and simultaneous interval per arm; unbounded ends run to the edge; the grey zone is the margin of equivalence."""
    title, axis = TITLES[metric]
    factor = 1.0 if metric in LOSSES else 100.0
    values = {arm: tuple(None if v is None else v * factor for v in effect(c)) for arm, c in comparisons.items()}
    inside = [v for triple in values.values() for v in triple if v is not None and math.isfinite(v)]
    least = margin or LEAST[metric in LOSSES]
    x_range = extent(inside, around=[0.0, *([-least, least] if margin or max(map(abs, inside), default=0.0) < least else [])])
    names = list(comparisons)

    def draw(width: int) -> tuple[str, float]:
        above = width != WIDE
        left, right, step = (12, width - 12, 42) if above else (232, width - 168, 30 if len(names) <= 14 else 22)
        x = Scale(low=x_range[0], high=x_range[1], start=left, end=right)
        bottom = 14 + step * len(names)
        parts = [
            x_axis(
                x,
                6,
                bottom,
                axis.format(shorten(palette.baseline, 160))
                if not above
                else f"difference to the baseline{'' if metric in LOSSES else ', %'}",
                n=5,
            )
        ]
        if margin:
            wide = pixel(x(margin) - x(-margin))
            parts.insert(0, f'<rect class="margin" x="{pixel(x(-margin))}" y="6" width="{wide}" height="{bottom - 6}"/>')
        parts.append(line(x(0), 6, x(0), bottom, "zero"))
        for i, arm in enumerate(names):
            y = 14 + step * i + (step / 2 if not above else 28)
            value, low, high = values[arm]
            words = effect_text(comparisons[arm])
            group = [f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">']
            if above:
                group.append(text(0, y - 13, shorten(arm, 150), css="label"))
                group.append(text(width, y - 13, words, anchor="end", css="tick"))
            else:
                group.append(text(left - 14, y + 4, shorten(arm, 214), anchor="end", css="label"))
                group.append(text(width, y + 4, words, anchor="end", css="tick"))
            if low is not None and high is not None:
                ends = [max(x_range[0], low), min(x_range[1], high)]
                across = f"M{pixel(x(ends[0]))} {pixel(y)}H{pixel(x(ends[1]))}"
                group.append(mark(f'path d="{across}"', css="interval", tip=f"{arm}: {words}"))
                for end, shown, side in ((low, ends[0], -1), (high, ends[1], 1)):
                    at = pixel(x(shown))
                    cap = f"M{at} {pixel(y - 4)}v8" if end == shown else f"M{at} {pixel(y)}l{-6 * side} -4v8z"
                    group.append(f'<path class="interval" d="{cap}"/>')
            if value is not None:
                group.append(dot(x(value), y, r=5, css="center", tip=f"{arm}: {words}"))
            parts.append("".join(group) + "</g>")
        return "".join(parts), bottom + 44

    some = next(iter(comparisons.values()))
    return Figure(
        key=f"forest_{metric}",
        title=title,
        caption=f"Arm against {palette.baseline} with simultaneous {some.level:.0%} intervals ({some.method})."
        + (f" The grey zone is the margin of ±{margin:g} within which a difference is not worth knowing." if margin else ""),
        alt=f"{title}, arm against {palette.baseline}: "
        + "; ".join(f"{arm} {effect_text(c)}" for arm, c in list(comparisons.items())[:20]),
        columns=("arm", "estimate", "low", "high", "p_adjusted", "n_arm", "n_baseline", "method"),
        rows=tuple((arm, *map(kept, effect(c)), kept_p(c.p), c.n_arm, c.n_baseline, c.method) for arm, c in comparisons.items()),
        draw=draw,
    )


WATERFALLS = {  # metric -> unit, kinds of the level and of a step, words
    "time_to_target": ("s", "s", "s_delta", "time to target"),
    "train_time_s": ("s", "s", "s_delta", "training time"),
    "step_ms": ("ms", "ms", "ms_delta", "step time"),
    "val_loss": ("nats", "loss", "loss_delta", "validation loss"),
}


def levels_of(metric: str, arms: Sequence[str], outcome: Comparisons) -> dict[str, float]:
    """Arm -> its level of a metric: the estimated time to target where it is not extrapolated, else the mean of its runs."""
    if metric == "time_to_target":
        found = {a: outcome.times[a] for a in arms if a in outcome.times}
        return {a: t.seconds for a, t in found.items() if t.seconds is not None and not t.extrapolated}
    means = {a: outcome.cells[a].mean.get(metric) for a in arms if a in outcome.cells}
    return {a: v for a, v in means.items() if v is not None and known(v)}


def waterfall(metric: str, arms: Sequence[str], outcome: Comparisons, palette: Palette) -> Figure | None:
    """From the baseline to the full ladder: each bar is what one more change added to the mean; whiskers are the interval of
    the whole difference to the baseline up to there."""
    levels = levels_of(metric, arms, outcome)
    if len(levels) < 3 or palette.baseline not in levels:
        return None
    names = list(levels)
    base = levels[palette.baseline]
    unit, kind, delta_kind, axis = WATERFALLS[metric]
    ends: dict[str, tuple[float | None, float | None]] = {}
    for arm in names[1:]:
        c = outcome.of(arm, metric)
        bounded = c is not None and c.low is not None and c.high is not None and math.isfinite(c.high - c.low)
        ends[arm] = (base + c.low, base + c.high) if c and bounded and c.low is not None and c.high is not None else (None, None)
    y_range = extent([v for v in levels.values()] + [v for pair in ends.values() for v in pair if v is not None], pad=0.12)

    def draw(width: int) -> tuple[str, float]:
        if width != WIDE:
            return draw_rows(width)
        height = 340
        y = Scale(low=y_range[0], high=y_range[1], start=height - 66, end=34)
        slot = (width - 56) / len(names)
        parts = [y_axis(y, 52, width - 4, f"{axis}, {unit}")]
        longest = CHAR_PX * max(len(show(levels[a] - base, delta_kind)) for a in names)
        for i, arm in enumerate(names):
            left, wide = 56 + slot * i + slot * 0.14, slot * 0.72
            top, foot = (y(levels[arm]), height - 66) if i == 0 else sorted((y(levels[arm]), y(levels[names[i - 1]])))
            words = show(levels[arm], kind) if i == 0 else show(levels[arm] - levels[names[i - 1]], delta_kind)
            shape = f'rect x="{pixel(left)}" y="{pixel(top)}" width="{pixel(wide)}" height="{pixel(max(1.0, foot - top))}"'
            group = [f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">']
            group.append(
                mark(shape, css="bar" if i == 0 else "bar light", tip=f"{arm}: {words} {unit}, now {show(levels[arm], kind)}")
            )
            low, high = ends.get(arm, (None, None))
            if low is not None and high is not None:
                group.append(f'<path class="interval" d="M{pixel(left + wide / 2)} {pixel(y(low))}V{pixel(y(high))}"/>')
            if i + 1 < len(names):
                group.append(line(left + wide, y(levels[arm]), left + slot + slot * 0.02, y(levels[arm]), "zero"))
            peak = min(top, y(high) if high is not None else top)
            raised = 13 if i % 2 and 0.8 * longest > slot else 0  # crowded: every other number stands higher
            css = "value tight" if longest > slot else "value"
            group.append(text(left + wide / 2, peak - 7 - raised, words, anchor="middle", css=css))
            group += [
                text(left + wide / 2, height - 48 + 14 * k, part, anchor="middle", css="tick")
                for k, part in enumerate(wrapped(arm, slot))
            ]
            parts.append("".join(group) + "</g>")
        return "".join(parts), height

    def draw_rows(width: int) -> tuple[str, float]:
        x = Scale(low=y_range[0], high=y_range[1], start=4, end=width - 4)
        bottom = 8 + 44 * len(names)
        parts = [x_axis(x, 4, bottom, f"{axis}, {unit}", n=3)]
        for i, arm in enumerate(names):
            row = 8 + 44 * i
            words = show(levels[arm], kind) if i == 0 else show(levels[arm] - levels[names[i - 1]], delta_kind)
            begin, end = (4, x(levels[arm])) if i == 0 else sorted((x(levels[arm]), x(levels[names[i - 1]])))
            shape = f'rect x="{pixel(begin)}" y="{row + 18}" width="{pixel(max(1.0, end - begin))}" height="15"'
            name, value = (
                text(0, row + 13, shorten(arm, 230), css="label"),
                text(width, row + 13, words, anchor="end", css="value"),
            )
            bar = mark(shape, css="bar" if i == 0 else "bar light", tip=words)
            low, high = ends.get(arm, (None, None))
            if low is not None and high is not None:
                bar += f'<path class="interval" d="M{pixel(x(low))} {row + 25.5}H{pixel(x(high))}"/>'
            parts.append(f'<g class="series {palette.css(arm)}">{name}{value}{bar}</g>')
        return "".join(parts), bottom + 44

    words = "; ".join(f"{arm} {show(v, kind)}" for arm, v in levels.items())
    whiskers = any(low is not None for low, _ in ends.values())
    return Figure(
        key=f"waterfall_{metric}",
        title=f"From baseline to full: {axis}",
        caption="Each bar is what one more change added to the mean"
        + ("; the line through it is the interval of the whole difference to the baseline up to there" if whiskers else "")
        + ". The axis does not start at zero.",
        alt=f"Waterfall of the ladder's means in {unit}: {words}.",
        columns=("arm", "mean", "added", "low_of_total", "high_of_total"),
        rows=tuple(
            (a, *map(kept, (levels[a], levels[a] - levels[names[i - 1]] if i else None, *ends.get(a, (None, None)))))
            for i, a in enumerate(names)
        ),
        draw=draw,
    )


def wrapped(name: str, px: float) -> list[str]:
    """A bar's label on up to three lines; a ladder's long names keep only their last change, which is what the bar shows."""
    last = name.split(" + ")[-1]
    name = ("+ " if last != name else "") + last
    room = max(6, int(px / CHAR_PX))
    lines = textwrap.wrap(name.replace("_", "_\u200b"), room, break_on_hyphens=False, break_long_words=False) or [name]
    lines = [piece for line in lines for piece in broken(line, room)]
    return [shorten(part, px) for part in (*lines[:2], " ".join(lines[2:]))[: len(lines)]]


def broken(line: str, room: int) -> list[str]:
    """A line that is too long, cut after underscores where there are any."""
    out = [""]
    for piece in line.split("\u200b"):
        if out[-1] and len(out[-1]) + len(piece) > room:
            out.append("")
        out[-1] += piece
    return out


def gains(outcome: Comparisons, palette: Palette) -> Figure | None:
    """Learning gain (fewer steps) beside systems gain (faster steps), percent of the baseline's time to target."""
    rows = [(a, d) for a, d in outcome.decompositions.items() if d.learning_percent is not None]
    if not rows:
        return None
    numbers = [v for _, d in rows for v in (d.learning_percent, d.systems_percent, d.total_percent) if v is not None]
    x_range = extent(numbers, around=[0.0])

    def draw(width: int) -> tuple[str, float]:
        above = width != WIDE
        left, step = (8, 62) if above else (232, 46)
        x = Scale(low=x_range[0], high=x_range[1], start=left, end=width - 60)
        bottom = 10 + step * len(rows)
        parts = [
            x_axis(
                x,
                4,
                bottom,
                "time to target, % of the baseline" + ("" if above else "; below zero is time saved"),
                n=width // 120,
            ),
            line(x(0), 4, x(0), bottom, "zero"),
        ]
        for i, (arm, d) in enumerate(rows):
            top = 10 + step * i + (16 if above else 0)
            name = (
                text(0, top - 3, shorten(arm, width - 10), css="label")
                if above
                else text(left - 12, top + 20, shorten(arm, 214), anchor="end", css="label")
            )
            parts.append(f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">{name}')
            for k, (words, value) in enumerate((("learning", d.learning_percent), ("systems", d.systems_percent))):
                a, b = sorted((x(0), x(value or 0.0)))
                shape = f'rect x="{pixel(a)}" y="{pixel(top + 4 + 17 * k)}" width="{pixel(max(0.8, b - a))}" height="14"'
                percent = settled(value or 0.0)
                parts.append(mark(shape, css="bar" if k == 0 else "bar light", tip=f"{arm}: {words} {percent:+.2f} %"))
                parts.append(text(b + 5, top + 15 + 17 * k, f"{words} {percent:+.1f}".replace("-", "−"), css="tick"))
            parts.append("</g>")
        return "".join(parts), bottom + 44

    return Figure(
        key="gains",
        title="Learning gain against systems gain",
        caption="Time is steps times step time: fewer steps to the target (learning), faster steps (systems). "
        "The two add up to the total.",
        alt="Bars per arm of learning and systems gain in percent: "
        + "; ".join(
            f"{a} learning {settled(d.learning_percent or 0.0):+.1f}, systems {settled(d.systems_percent):+.1f}"
            for a, d in rows[:20]
        ),
        columns=("arm", "learning_percent", "systems_percent", "total_percent", "learning_s", "systems_s", "total_s"),
        rows=tuple(
            (a, *map(kept, (d.learning_percent, d.systems_percent, d.total_percent, d.learning_s, d.systems_s, d.total_s)))
            for a, d in rows
        ),
        draw=draw,
    )


def effect_figures(plan: Mapping[str, Any], outcome: Comparisons, palette: Palette) -> list[Figure]:
    """Waterfalls for a ladder, the two gains, and forest plots of every compared metric, the primary one first."""
    figures: list[Figure | None] = []
    if plan.get("design") == "ladder":
        resolved = len(levels_of("time_to_target", palette.arms, outcome)) >= 3
        time = "time_to_target" if resolved else "train_time_s"
        steps = ("step_ms",) if plan.get("evidence") else ()
        figures += [waterfall(m, palette.arms, outcome, palette) for m in (time, *steps, "val_loss")]
    if not plan.get("evidence"):  # published rows are compared one by one, in their table
        figures.append(gains(outcome, palette))
        metrics = sorted(("val_loss", "heldout_loss", "step_ms", "time_to_target"), key=lambda m: m != outcome.primary)
        for metric in metrics:
            found = {a: c for a in outcome.arms if (c := outcome.of(a, metric)) is not None}
            if found:
                figures.append(forest(metric, found, palette, plan.get("margin") if metric == "val_loss" else None))
    return [f for f in figures if f is not None]
