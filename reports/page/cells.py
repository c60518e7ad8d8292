"""The cells of the verdict table, from a Comparisons: nothing is computed, only put into words.

Every printed number is a Part with a key; the page carries its value with more digits beside
the text, so that `ablate verify` can recompute it.  Keys are `arm / metric.what`, unique within one
experiment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reports.analysis.types import Comparison, Comparisons, effect
from reports.format import effect_kind, interval, plural, show
from reports.stats.digits import kept, kept_p, known

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
    """One printed piece of a cell: its text and the values it was made from, () for words."""

    text: str
    key: str
    values: tuple[float | None, ...] = ()

    @property
    def v(self) -> str | None:
        """The values as the page carries them: comma-separated, empty where unknown."""
        if not self.values:
            return None
        return ",".join(self.written(value) for value in self.values)

    def written(self, value: float | None) -> str:
        if value is None:
            return ""
        rounded = kept(value)
        if self.key.endswith(".p"):
            rounded = kept_p(value)
        return repr(float(rounded or 0.0))


@dataclass(frozen=True, kw_only=True)
class VerdictCell:
    """One cell: the first part large, the others small below it; `tone` colours a verdict."""

    parts: tuple[Part, ...] = ()
    css: str = ""
    tone: str = ""


EMPTY = VerdictCell(css="num")


def number(key: str, kind: str, *values: float | None, unit: str = "") -> Part:
    """One value, or with two the interval between them."""
    printed = show(values[0], kind)
    if len(values) == 2:
        printed = interval(values[0], values[1], kind)
    if known(values[0]):
        printed += unit
    return Part(text=printed, key=key, values=values)


def words(key: str, text: str) -> Part:
    return Part(text=text, key=key)


def said(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that have something to say."""
    return tuple(part for part in parts if part.text)


def verdict_cell(c: Comparison | None, n_waiting: int, *, final: bool) -> VerdictCell:
    """The verdict, whether it is exploratory, what is still to come and what to do next.

    final: no more runs are asked for.
    """
    to_come = ""
    if n_waiting:
        to_come = f"unfinished: {plural(n_waiting, 'run')} to come"
    waiting = words("unfinished", to_come)
    if c is None:
        nothing = words("verdict", "no result yet")
        return VerdictCell(parts=said([nothing, waiting]), css="words", tone="open")
    parts = [words("verdict", c.verdict)]
    if c.exploratory and c.kind in ("helps", "hurts"):
        parts.append(words("exploratory", "exploratory"))
    parts.append(waiting)
    if not final:
        parts.append(words("next_action", c.next_action))
    return VerdictCell(parts=said(parts), css="words", tone=TONES[c.kind])


def effect_cell(outcome: Comparisons, arm: str, metric: str) -> VerdictCell:
    """The difference to the baseline, its interval, its p."""
    c = outcome.of(arm, metric)
    if c is None:
        return EMPTY
    value, low, high = effect(c)
    kind = effect_kind(c.ratio)
    parts = [number(f"{metric}.effect", kind, value)]
    if low is not None or high is not None:
        ends = number(f"{metric}.interval", kind, low, high)
        if not ends.text:
            ends = words(f"{metric}.interval", "interval still unbounded")
        parts.append(ends)
    if c.p is not None:
        parts.append(Part(text="p " + show(c.p, "p"), key=f"{metric}.p", values=(c.p,)))
    return VerdictCell(parts=tuple(parts), css="num")


def measured_cell(outcome: Comparisons, arm: str, metric: str, kind: str) -> VerdictCell:
    """The mean over the arm's runs, and their deviation."""
    cell = outcome.cells[arm]
    if not known(cell.mean.get(metric)):
        return EMPTY
    parts = [number(f"{metric}.mean", kind, cell.mean[metric])]
    if known(cell.sd.get(metric)):
        sd = cell.sd[metric]
        parts.append(Part(text="sd " + show(sd, "sd"), key=f"{metric}.sd", values=(sd,)))
    return VerdictCell(parts=tuple(parts), css="num")


def loss_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Validation loss, in bits per byte too where the corpus knows its bytes."""
    cell = measured_cell(outcome, arm, "val_loss", "loss")
    bits = outcome.cells[arm].mean.get("bits_per_byte")
    if not known(bits):
        return cell
    in_bits = number("bits_per_byte.mean", "loss", bits, unit=" bits/byte")
    return VerdictCell(parts=(*cell.parts, in_bits), css="num")


def step_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Step time with the steps per run below it."""
    cell = measured_cell(outcome, arm, "step_ms", "ms")
    steps = outcome.cells[arm].mean.get("steps")
    if not known(steps):
        return cell
    n_steps = Part(text=f"{show(steps, 'count')} steps", key="steps.mean", values=(steps,))
    return VerdictCell(parts=(*cell.parts, n_steps), css="num")


def target_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    time = outcome.times.get(arm)
    if time is None:
        return EMPTY
    if time.seconds is None:
        return VerdictCell(parts=(words("target.reason", "not resolved"),), css="num")
    parts = [
        number("target.seconds", "s", time.seconds, unit=" s"),
        number("target.interval", "s", time.seconds_low, time.seconds_high),
    ]
    if time.extrapolated:
        parts.append(words("target.extrapolated", "extrapolated"))
    return VerdictCell(parts=said(parts), css="num")


def percent_part(side: str, percent: float) -> Part:
    text = f"{side} {show(percent / 100.0, 'percent')}"
    return Part(text=text, key=f"{side}.percent", values=(percent,))


def gain_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """Learning gain over systems gain, each in percent of the baseline's time and in seconds."""
    gain = outcome.decompositions.get(arm)
    if gain is None:
        return EMPTY
    if gain.learning_percent is None or gain.learning_s is None:
        return VerdictCell(parts=(words("gain.none", "not resolved"),), css="gain")
    seconds = f"{show(gain.learning_s, 's_gain')} s, {show(gain.systems_s, 's_gain')} s"
    parts = (
        percent_part("learning", gain.learning_percent),
        percent_part("systems", gain.systems_percent),
        Part(text=seconds, key="gain.seconds", values=(gain.learning_s, gain.systems_s)),
    )
    return VerdictCell(parts=parts, css="gain")


def runs_cell(outcome: Comparisons, arm: str) -> VerdictCell:
    """How many runs finished, and what became of the others."""
    cell = outcome.cells[arm]
    n = cell.n_finished
    parts = [Part(text=f"{n} finished", key="n.finished", values=(n,))]
    if cell.n_diverged:
        rate, low, high = cell.diverged_rate, cell.diverged_low, cell.diverged_high
        of_runs = f"rate {show(rate, 'rate')} {interval(low, high, 'rate')}"
        text = f"{cell.n_diverged} diverged, {of_runs}"
        parts.append(Part(text=text, key="n.diverged", values=(cell.n_diverged, rate, low, high)))
    others = (
        ("failed", "n.failed", cell.n_failed),
        ("to come", "n.to_come", cell.n_pending),
        ("stale", "n.stale", cell.n_stale),
    )
    for word, key, count in others:
        if count:
            parts.append(Part(text=f"{count} {word}", key=key, values=(count,)))
    return VerdictCell(parts=tuple(parts), css="count")
