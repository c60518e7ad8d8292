"""The verdict table, from a Comparisons: nothing is computed here, only put into words.

Every printed number is a Part with a key; the page carries its value with more digits beside the text, so that
`ablate verify` can recompute it.  Keys are `arm / metric.what`, unique within one experiment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.analysis.types import Comparison, Comparisons, effect
from reports.format import interval, kept, kept_p, known, show

# ruff: noqa: E501  # a table of sentences
METRIC_WORDS = {
    "val_loss": "validation loss",
    "heldout_loss": "held-out loss",
    "step_ms": "step time",
    "train_time_s": "training time",
    "time_to_target": "time to target",
}
TONES = {"helps": "good", "hurts": "bad", "equal": "even", "undecided": "open", "none": "open"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One printed piece of a cell: the text and the values it was made from ((), where it is words)."""

    text: str
    key: str
    values: tuple[float | None, ...] = ()

    @property
    def v(self) -> str | None:
        """The values as the page carries them: comma-separated, empty where unknown."""
        digits = kept_p if self.key.endswith(".p") else kept
        return ",".join("" if x is None else repr(float(digits(x) or 0.0)) for x in self.values) if self.values else None


@dataclass(frozen=True, kw_only=True)
class VerdictCell:
    """One cell: the first part large, the others small below it; `tone` colours a verdict."""

    parts: tuple[Part, ...] = ()
    css: str = ""
    tone: str = ""


@dataclass(frozen=True, kw_only=True)
class Head:
    """A column's heading, and what it means in plain words."""

    text: str
    meaning: str
    css: str = ""


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    arm: str
    place: int  # in the plan's arms
    css: str
    baseline: bool
    cells: list[VerdictCell] = field(default_factory=list)


def number(key: str, kind: str, *values: float | None, unit: str = "") -> Part:
    """One value, or with two the interval between them."""
    printed = show(values[0], kind) if len(values) == 1 else interval(values[0], values[1], kind)
    return Part(text=printed + (unit if known(values[0]) else ""), key=key, values=values)


def words(key: str, text: str) -> Part:
    return Part(text=text, key=key)


def verdict_cell(c: Comparison | None, n_waiting: int, *, final: bool) -> VerdictCell:
    """The verdict, whether it is exploratory, what is still to come and what to do next (nothing, where runs are `final`)."""
    waiting = words("unfinished", f"unfinished: {n_waiting} {'run' if n_waiting == 1 else 'runs'} to come" if n_waiting else "")
    if c is None:
        return VerdictCell(
            parts=tuple(p for p in (words("verdict", "no result yet"), waiting) if p.text), css="words", tone="open"
        )
    parts = [words("verdict", c.verdict)]
    if c.exploratory and c.kind in ("helps", "hurts"):
        parts.append(words("exploratory", "exploratory"))
    parts += [waiting, words("next_action", "" if final else c.next_action)]
    return VerdictCell(parts=tuple(p for p in parts if p.text), css="words", tone=TONES[c.kind])


def effect_cell(c: Comparison | None, metric: str) -> VerdictCell:
    if c is None:
        return VerdictCell(css="num")
    value, low, high = effect(c)
    kind = "loss_delta" if c.ratio is None else "percent"
    parts = [number(f"{metric}.effect", kind, value)]
    if low is not None or high is not None:
        both = number(f"{metric}.interval", kind, low, high)
        parts.append(both if both.text else words(f"{metric}.interval", "interval still unbounded"))
    if c.p is not None:
        parts.append(Part(text="p " + show(c.p, "p"), key=f"{metric}.p", values=(c.p,)))
    return VerdictCell(parts=tuple(parts), css="num")


def measured_cell(outcome: Comparisons, arm: str, metric: str, kind: str) -> VerdictCell:
    cell = outcome.cells[arm]
    if not known(cell.mean.get(metric)):
        return VerdictCell(css="num")
    parts = [number(f"{metric}.mean", kind, cell.mean[metric])]
    if known(cell.sd.get(metric)):
        parts.append(Part(text="sd " + show(cell.sd[metric], "sd"), key=f"{metric}.sd", values=(cell.sd[metric],)))
    return VerdictCell(parts=tuple(parts), css="num")


def loss_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Validation loss, in bits per byte too where the corpus knows its bytes."""
    bits = outcome.cells[arm].mean.get("bits_per_byte")
    more = (number("bits_per_byte.mean", "loss", bits, unit=" bits/byte"),) if known(bits) else ()
    return VerdictCell(parts=measured_cell(outcome, arm, "val_loss", "loss").parts + more, css="num")


def step_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Step time with the steps per run below it."""
    steps = outcome.cells[arm].mean.get("steps")
    more = (Part(text=f"{show(steps, 'count')} steps", key="steps.mean", values=(steps,)),) if known(steps) else ()
    return VerdictCell(parts=measured_cell(outcome, arm, "step_ms", "ms").parts + more, css="num")


def target_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    time = outcome.times.get(arm)
    if time is None:
        return VerdictCell(css="num")
    if time.seconds is None:
        return VerdictCell(parts=(words("target.reason", "not resolved"),), css="num")
    parts = [
        number("target.seconds", "s", time.seconds, unit=" s"),
        number("target.interval", "s", time.seconds_low, time.seconds_high),
    ]
    if time.extrapolated:
        parts.append(words("target.extrapolated", "extrapolated"))
    return VerdictCell(parts=tuple(p for p in parts if p.text), css="num")


def gain_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Learning gain over systems gain, each in percent of the baseline's time and in seconds."""
    gain = outcome.decompositions.get(arm)
    if gain is None:
        return VerdictCell(css="num")
    if gain.learning_percent is None or gain.learning_s is None:
        return VerdictCell(parts=(words("gain.none", "not resolved"),), css="gain")
    sides = (("learning", gain.learning_percent), ("systems", gain.systems_percent))
    parts = [Part(text=f"{side} {show(v / 100.0, 'percent')}", key=f"{side}.percent", values=(v,)) for side, v in sides]
    seconds = (gain.learning_s, gain.systems_s)
    return VerdictCell(
        parts=(*parts, Part(text=", ".join(f"{show(s, 's_gain')} s" for s in seconds), key="gain.seconds", values=seconds)),
        css="gain",
    )


def runs_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    cell = outcome.cells[arm]
    counted = Part(text=f"{cell.n_finished} finished", key="n.finished", values=(cell.n_finished,))
    more: list[Part] = []
    if cell.n_diverged:
        ends = (cell.diverged_low, cell.diverged_high)
        rate = f", rate {show(cell.diverged_rate, 'rate')} {interval(*ends, 'rate')}"
        more.append(
            Part(text=f"{cell.n_diverged} diverged{rate}", key="n.diverged", values=(cell.n_diverged, cell.diverged_rate, *ends))
        )
    others = (("failed", cell.n_failed), ("to come", cell.n_pending), ("stale", cell.n_stale))
    more += [Part(text=f"{n} {word}", key=f"n.{word.replace(' ', '_')}", values=(n,)) for word, n in others if n]
    return VerdictCell(parts=(counted, *more), css="count")


def heads(outcome: Comparisons, plan: Mapping[str, Any]) -> list[Head]:
    """The columns of the verdict table; those that this experiment cannot fill are left out."""
    unit = plan["corpus"]["unit"]
    base = outcome.baseline
    columns = [
        Head(text="verdict", meaning=f"The judgement on {METRIC_WORDS[outcome.primary]}, the metric declared before the first run, and what to do next."),
        Head(text="loss", css="num", meaning=f"Mean validation loss of the arm's finished runs in {unit}, and the standard deviation over its runs."),
        Head(text="Δ loss", css="num", meaning=f"Arm minus {base}, so below zero is better; the interval holds for all arms at once, p is adjusted for their number."),
        Head(text="held-out loss", css="num", meaning=f"The same on the held-out text, {unit}: is the gain real on text of another kind?"),
        Head(text="Δ held-out loss", css="num", meaning=f"Held-out loss, arm minus {base}; interval and p as for the loss, over its own comparisons."),
        Head(text="step, ms", css="num", meaning="Mean time of one training step in milliseconds, its standard deviation over runs, and the steps per run."),
        Head(text="Δ step time", css="num", meaning=f"Step time against {base} in percent; below zero is faster. Interval and p as for the loss."),
        Head(text="time to target", css="num", meaning="Seconds to the target loss: the steps a schedule would need to end at the target, times the step time; not the first crossing of one curve."),
        Head(text="Δ time to target", css="num", meaning=f"Time to target against {base} in percent."),
        Head(text="gain", meaning="Time is steps times step time. The learning part of the change in time comes from needing fewer steps, the systems part from faster steps; below zero is time saved, in percent of the baseline and in seconds."),
        Head(text="runs", meaning="Finished runs that the comparison of losses counts, and what became of the others."),
    ]  # fmt: skip
    absent = set()
    if not any("heldout_loss" in cell.mean for cell in outcome.cells.values()):
        absent |= {"held-out loss", "Δ held-out loss"}
    if not any(t.seconds is not None for t in outcome.times.values()):
        absent |= {"time to target"}
    if not any(outcome.of(a, "time_to_target") for a in outcome.arms):
        absent |= {"Δ time to target"}
    if not any(d.learning_percent is not None for d in outcome.decompositions.values()):
        absent |= {"gain"}
    return [h for h in columns if h.text not in absent]


def verdict_rows(
    outcome: Comparisons, columns: Sequence[Head], css: Mapping[str, str], *, final: bool = False
) -> list[VerdictRow]:
    """The baseline's row, then one per arm in the plan's order; `css` maps every arm of the plan, in its order, to its colour.

    final: the runs are all there will ever be (imported logs), so that no more of them are asked for."""
    rows = []
    places = list(css)
    for arm in (outcome.baseline, *outcome.arms):
        base = arm == outcome.baseline
        by_head = {
            "verdict": VerdictCell(parts=(words("verdict", "baseline"),), css="words", tone="base")
            if base
            else verdict_cell(outcome.of(arm, outcome.primary), outcome.cells[arm].n_pending, final=final),
            "loss": loss_cell(outcome, arm),
            "Δ loss": effect_cell(outcome.of(arm, "val_loss"), "val_loss"),
            "held-out loss": measured_cell(outcome, arm, "heldout_loss", "loss"),
            "Δ held-out loss": effect_cell(outcome.of(arm, "heldout_loss"), "heldout_loss"),
            "step, ms": step_cell(outcome, arm),
            "Δ step time": effect_cell(outcome.of(arm, "step_ms"), "step_ms"),
            "time to target": target_cell(outcome, arm),
            "Δ time to target": effect_cell(outcome.of(arm, "time_to_target"), "time_to_target"),
            "gain": gain_cell(outcome, arm),
            "runs": runs_cell(outcome, arm),
        }
        rows.append(
            VerdictRow(arm=arm, place=places.index(arm), css=css[arm], baseline=base, cells=[by_head[h.text] for h in columns])
        )
    return rows
