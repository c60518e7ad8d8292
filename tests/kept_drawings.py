"""python -m tests.kept_drawings: write tests/data/drawings again, drawings of numbers made by hand.

One element a line, to be reviewed as a diff: what stands at the edge of a rule, names of several
lines, as many arms as a rule allows and one more, ends that are not known. Whether a mark stands at
its number tests/reports/figures/test_marks.py asks.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from reports.analysis.interactions import Interplay
from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.analysis.types import Comparison
from reports.figures.base import NARROW, WIDE, Drawing, Figure, extent
from reports.figures.budgets import BudgetCurves, Mean
from reports.figures.curves import curve_figures
from reports.figures.differences import ArmDifference, Panels
from reports.figures.drawn import DrawnPoints
from reports.figures.forest import forest
from reports.figures.gains import Gains
from reports.figures.heat import HeatCell, HeatMap
from reports.figures.interactions import interaction_figure
from reports.figures.palette import Palette
from reports.figures.runs import MEMORY, STEP_TIME, drift, strip
from reports.figures.scatter import scatter
from reports.figures.seeds import seeds
from reports.figures.steps import step_distribution
from reports.figures.wall import STAGES, Wall
from reports.figures.waterfall import AXES, Bar, Waterfall
from reports.inputs.step_times import LEVELS, StepTimes, of_steps
from reports.stats.contrasts import Method

FOLDER = Path(__file__).parent / "data" / "drawings"
LONG = "untied_head + post_embed_norm + zero_head + optimizer_split"
WIDEST = "untied_head + post_embed_norm + softcap_15_30"  # too wide for a line beside a margin
FEW = Palette(arms=("base", "zero_head", LONG, WIDEST), baseline="base")
ONE = Palette(arms=(WIDEST,), baseline=WIDEST)
STRETCHED = (5.36, 5.8, 6.5, 7.3)  # ends of axes at which one tick more has another distance
NONE: Any = None  # what a drawing does not ask for
MOST_ROWS = 8  # of the table behind a figure
TONES = ("good", "bad", "even", "open")


class Draws(Protocol):
    @property
    def draw(self) -> Callable[[int], Drawing]: ...


def many(n: int) -> Palette:
    """So many arms, the baseline among them, coloured by their verdicts where hues do not do."""
    arms = ("base", *(f"change_{i:02d}" for i in range(1, n)))
    return Palette(arms=arms, baseline="base", tones=dict(zip(arms[1:], itertools.cycle(TONES))))


def runs_of(palette: Palette, n_seeds: int, **more: Any) -> pd.DataFrame:
    rows = []
    for place, arm in enumerate(palette.arms):
        for seed in range(n_seeds):
            step = 100.0 + 7 * place + 3 * seed
            rows.append(
                {
                    **{"arm": arm, "seed": seed, "block": seed, "run_id": f"{arm}-{seed}"},
                    **{"status": "finished", "budget": 100, "role": "loss", "node": f"n{seed % 2}"},
                    "val_loss": 3.3 - 0.013 * place + 0.004 * seed - 0.003 * (place * seed % 3),
                    **{"step_ms": step, "step_ms_median": step - 2, "step_ms_p95": step + 9},
                    **{"train_time_s": step / 10, "peak_allocated_mib": 1000.0 + 50 * place},
                }
            )
    return pd.DataFrame(rows).assign(**more)


def curves_of(runs: pd.DataFrame, n_points: int) -> pd.DataFrame:
    """Of every run so many validations after the first."""
    rows = []
    for run in runs.to_dict("records"):
        for step in range(0, 10 * n_points + 1, 10):
            loss = run["val_loss"] + 0.01 * run["seed"] + 2.0 / (1 + step)
            rows.append((run["run_id"], run["arm"], float(step), step * run["step_ms"], loss))
    return pd.DataFrame(rows, columns=["run_id", "arm", "step", "train_time_s", "val_loss"])


def strips() -> Iterable[Draws | None]:
    for palette in (FEW, many(12), many(13)):
        runs = runs_of(palette, 2)
        yield strip(
            STEP_TIME, runs.assign(step_ms_p95=runs["step_ms_p95"].mask(runs.index == 1)), palette
        )
    yield strip(MEMORY, runs_of(FEW, 1), FEW)
    yield strip(STEP_TIME, runs_of(FEW, 2, step_ms_median=math.nan), FEW)
    yield strip(MEMORY, runs_of(FEW, 1, peak_allocated_mib=1000.0), FEW)
    for stretched in STRETCHED:
        runs = runs_of(ONE, 2)
        yield strip(
            replace(STEP_TIME, low=None, high=None),
            runs.assign(step_ms=stretched * runs["seed"]),
            ONE,
        )


def drifts() -> Iterable[Draws | None]:
    runs = runs_of(FEW, 3)
    started = {
        run_id: f"2026-01-05T{23 - place:02d}" for place, run_id in enumerate(runs["run_id"])
    }
    yield drift(runs, FEW, started)
    yield drift(runs.assign(node="n" * 120, step_ms=100.0), FEW, started)


def scatters() -> Iterable[Draws | None]:
    yield scatter(runs_of(FEW, 2), FEW, unit="nats", target=3.31)
    runs = runs_of(many(10), 2)
    yield scatter(runs[runs["arm"] != "change_03"], many(10), unit="nats", target=None)
    for stretched in STRETCHED:
        runs = runs_of(ONE, 2)
        yield scatter(
            runs.assign(train_time_s=stretched * runs["seed"]), ONE, unit="nats", target=None
        )


def every_seed() -> Iterable[Draws | None]:
    yield seeds(runs_of(FEW, 3).drop(index=4), FEW, unit="nats", budget=100)
    yield seeds(runs_of(FEW, 12), FEW, unit="nats")
    yield seeds(runs_of(FEW, 13), FEW, unit="nats")
    for n_arms in (12, 13):
        yield seeds(runs_of(many(n_arms), 2), many(n_arms), unit="nats")
    for stretched in STRETCHED:
        runs = runs_of(ONE, 2)
        yield seeds(runs.assign(val_loss=stretched * runs["seed"]), ONE, unit="nats")


def step_times() -> Iterable[Draws | None]:
    for palette in (FEW, many(14), many(15)):
        runs = runs_of(palette, 1)
        times = {}
        for place, run_id in enumerate(runs["run_id"]):
            times[run_id] = of_steps([100 + place + n % 7 for n in range(20)])
        known = {run_id: each for run_id, each in times.items() if each is not None}
        yield step_distribution(curves_of(runs, 0), runs, known, palette)
    for stretched in STRETCHED:
        known = {
            "base-0": StepTimes(
                n=9, quantiles=tuple(np.linspace(4.5, 4.5 + stretched, len(LEVELS)))
            )
        }
        yield step_distribution(curves_of(runs_of(ONE, 1), 0), runs_of(ONE, 1), known, ONE)
    alike = {run_id: of_steps([100.0] * 3) for run_id in runs_of(FEW, 1)["run_id"]}
    known = {run_id: each for run_id, each in alike.items() if each is not None}
    yield step_distribution(curves_of(runs_of(FEW, 1), 0), runs_of(FEW, 1), known, FEW)


def walls() -> Iterable[Draws | None]:
    for palette, stages in ((FEW, STAGES), (FEW, STAGES[:7]), (many(13), STAGES[:2])):
        of_arms = {}
        for place, arm in enumerate(palette.arms):
            of_arms[arm] = {stage: 3.0 + n * place for n, stage in enumerate(stages)}
        of_arms["base"][stages[0]] = 0.001
        yield Wall(of_arms=of_arms, stages=stages, palette=palette)
    for stretched in STRETCHED:
        yield Wall(of_arms={WIDEST: {"rest": stretched}}, stages=["rest"], palette=ONE)


def ladder(levels: Mapping[str, float], half: float | None) -> list[Bar]:
    bars: list[Bar] = []
    for arm, level in levels.items():
        before = bars[-1].level if bars else None
        ends = (None, None) if half is None or before is None else (level - half, level + half)
        bars.append(Bar(arm=arm, level=level, before=before, low=ends[0], high=ends[1]))
    return bars


def waterfalls() -> Iterable[Draws | None]:
    few = {"base": 3.3, "zero_head": 3.28, LONG: 3.2801}
    ladders: list[tuple[str, Mapping[str, float], float | None, Palette]] = [
        ("val_loss", few, 0.004, FEW)
    ]
    for n in (15, 18):
        crowd = {arm: 3.3 - 0.01 * place for place, arm in enumerate(many(n).arms)}
        ladders.append(("val_loss", crowd, 0.003, many(n)))
    some = {arm: 100.0 - place for place, arm in enumerate(many(9).arms)}
    ladders.append(("train_time_s", some, None, many(9)))
    for metric, levels, half, palette in ladders:
        reached = [*levels.values(), 3.31 if metric == "val_loss" else 101.0]
        bars = ladder(levels, half)
        yield Waterfall(
            bars=[*bars[:-2], replace(bars[-2], low=None), replace(bars[-1], high=None)],
            axis=AXES[metric],
            base=levels["base"],
            value_range=extent(reached, pad=0.12),
            palette=palette,
        )


def compared(
    arm: str, delta: float, low: float | None, high: float | None, **more: Any
) -> Comparison:
    facts: dict[str, Any] = {
        **{"baseline": "base", "metric": "val_loss", "unit": "nats", "method": Method.TWO_WAY},
        **{"n_arm": 3, "n_baseline": 4, "n_blocks": 3, "mean_arm": 3.2, "mean_baseline": 3.3},
        **dict.fromkeys(("sd_arm", "sd_baseline", "ratio", "ratio_low", "ratio_high"), None),
        **dict.fromkeys(("p_attainable", "df", "correlation", "more_seeds"), None),
        **{"level": 0.95, "n_comparisons": 3, "p": 0.0123, "looks": 1, "exploratory": True},
        **{"estimand": "at-rate", "verdict": "better", "kind": "helps", "fresh_seeds": None},
        **{"next_action": "", "next_runs": None, "warnings": (), "is_bit_equal": False},
        **{"of_arm": NONE, "of_baseline": NONE},
    }
    return Comparison(**{**facts, "arm": arm, "delta": delta, "low": low, "high": high, **more})


def forests() -> Iterable[Draws | None]:
    effects = [
        compared("zero_head", -0.02, -0.03, 0.001),
        compared(LONG, 0.01, -math.inf, math.inf),
        compared("base + a", 0.0, None, None, is_bit_equal=True),
        compared("half", -0.01, None, 0.01),
        compared("other half", -0.01, -0.02, None),
    ]
    palette = replace(FEW, arms=(*FEW.arms, *(c.arm for c in effects[2:])))
    for margin in (None, 0.004):
        yield forest("val_loss", {c.arm: c for c in effects}, palette, margin)
    yield forest("val_loss", {c.arm: c for c in effects}, palette, None, all_parts=True)
    ratios = {"metric": "step_ms", "unit": "ms", "ratio": 0.9, "ratio_low": 0.8, "ratio_high": 1.02}
    yield forest("step_ms", {"zero_head": compared("zero_head", -9, -20, 2, **ratios)}, FEW, None)
    own = {"metric": "accuracy", "unit": "", "better": "higher"}
    yield forest("accuracy", {"zero_head": compared("zero_head", 0.4, 0.1, 0.7, **own)}, FEW, None)
    for n_arms in (15, 16):
        arms = many(n_arms).arms[1:]
        every = {arm: compared(arm, -0.01, -0.02, 0.001 * n) for n, arm in enumerate(arms)}
        yield forest("val_loss", every, many(n_arms), None)
    for n, half in ((19, 9e-5), (20, 1e-4), (21, 2e-4)):
        few = {f"a{i}": compared(f"a{i}", 0.0, -half, half) for i in range(n)}
        yield replace(
            forest("val_loss", few, Palette(arms=("base", *few), baseline="base"), None),
            draw=lambda width: ("", 0),
        )


def both_gains() -> Iterable[Draws | None]:
    of_arms = {
        "zero_head": {"learning": -12.3, "systems": 4.56},
        LONG: {"systems": 0.001},
        "base": {"learning": 3.0},
    }
    yield Gains(of_arms=of_arms, palette=FEW, x_range=(-14.0, 6.0))
    yield Gains(of_arms={"zero_head": of_arms["zero_head"]}, palette=FEW, x_range=(-14.0, 6.0))
    for stretched in STRETCHED:
        yield Gains(of_arms={WIDEST: {"learning": 1.0}}, palette=ONE, x_range=(0.0, stretched))


def heats() -> Iterable[Draws | None]:
    axes = (
        "optim.muon_lr",
        "optim.adam_lr and a second name of it that needs another line of a panel",
    )
    for n_columns in (1, 3, 8):
        rows, columns = ("x0.5", "a word that is long"), [f"x{n}" for n in range(n_columns)]
        arms: dict[str, dict[tuple[str, str], HeatCell]] = {}
        for n, arm in enumerate(("base", LONG, "c")):
            cells = {}
            for (i, down), (j, across) in itertools.product(enumerate(rows), enumerate(columns)):
                loss = None if (i, j) == (1, n) else 3.3 - 0.01 * i + 0.02 * j * n
                cells[down, across] = HeatCell(loss=loss, n_finished=3 * i, n_diverged=n * j)
            arms[arm] = cells
        del arms["c"]["x0.5", "x0"]
        yield HeatMap(axes=axes, rows=rows, columns=columns, arms=arms, unit="nats")


def planes() -> Iterable[Draws | None]:
    axes = (
        GridAxis(name="optim.muon_lr", words=("x0.25", "x1", "x4")),
        GridAxis(name="dropout", words=("0", "0.1", "0.4")),
    )
    arms = {}
    for n, arm in enumerate(("base", LONG)):
        cells = {}
        for i, point in enumerate((("x0.25", "0"), ("x1", "0.1"), ("x3", "0.4"), ("x4", "0.2"))):
            loss = None if i == 3 else 3.3 + 0.01 * (i - 2 * n) ** 2
            cells[point] = HeatCell(loss=loss, n_finished=2, n_diverged=i)
        arms[arm] = cells
    edge = np.array([(0.3 * math.cos(t), 0.1 + 0.05 * math.sin(t)) for t in np.arange(0, 6, 0.5)])
    lowest = {}
    for arm, places, region in (("base", (1.2, 0.15), edge), (LONG, (2.0, None), None)):
        told = []
        for axis, value in zip(axes, places, strict=True):
            where = Lowest.INSIDE if value else Lowest.UNTOLD
            facts = {"value": value, "low": None, "high": None, "is_resolved": bool(value)}
            told.append(
                Optimum(
                    arm=arm, axis=axis, where=where, n_blocks=2, left_out=(), region=region, **facts
                )
            )
        lowest[arm] = told
    yield DrawnPoints(axes=axes, arms=arms, lowest=lowest)
    for stretched in STRETCHED:
        ends = GridAxis(name="dropout", words=("0", str(stretched)))
        yield DrawnPoints(
            axes=(ends, axes[0]), arms={"c": {("0", "x1"): arms["base"]["x1", "0.1"]}}, lowest={}
        )
    yield DrawnPoints(
        axes=(axes[1], axes[0]), arms={"c": {("0.1", "x1"): arms["base"]["x1", "0.1"]}}, lowest={}
    )


def pairs() -> Iterable[Draws | None]:
    def pair(*changes: str, estimate: float, half: float | None = 0.02) -> Interplay:
        ends = (None, None) if half is None else (estimate - half, estimate + half)
        return Interplay(
            changes=changes, estimate=estimate, low=ends[0], high=ends[1], n_blocks=3, n_contexts=2
        )

    short = [pair("a", estimate=0.5), pair("a", "b", estimate=-0.03), pair("a", "c", estimate=0.01)]
    yield interaction_figure(short, "nats")
    half = [replace(short[1], low=None), replace(short[2], high=None)]
    yield interaction_figure([pair("a", LONG, estimate=0.01, half=None), *half], "nats")
    for n in (12, 13):
        yield interaction_figure([pair("a", f"b{i}", estimate=0.01 * i) for i in range(n)], "nats")


def budgets() -> Iterable[Draws | None]:
    of_arms: dict[str, list[Mean]] = {}
    for place, arm in enumerate(FEW.arms):
        of_arms[arm] = []
        for budget in (100, 200, 400):
            loss = 3.3 - 0.02 * place + 10 / budget
            tokens = 1000.0 * budget if place == 2 else None
            of_arms[arm].append(Mean(budget=budget, tokens=tokens, loss=loss, n_runs=place + 1))
    steps = {arm: means for arm, means in of_arms.items() if arm != LONG}
    facts: dict[str, Any] = {"palette": FEW, "unit": "nats", "y_range": (3.25, 3.45)}
    across = math.log(90), math.log(450)
    marks = {100.0: "100", 400.0: "400"}
    needed = {"zero_head": 250.0}
    for target in (None, 3.33):
        yield BudgetCurves(
            of_arms=steps,
            marked=marks,
            length="steps",
            needed=needed,
            target=target,
            x_range=across,
            **facts,
        )
    across = math.log(9e4), math.log(4.5e5)
    yield BudgetCurves(
        of_arms={LONG: of_arms[LONG]},
        marked={1e5: "0.1 M"},
        length="tokens",
        needed={LONG: 2.5e5},
        target=3.3,
        x_range=across,
        **facts,
    )


def courses() -> Iterable[Draws | None]:
    for palette, n_seeds, n_points, target in (
        *((FEW, 2, 6, 3.31), (FEW, 1, 5, None)),
        *((many(8), 1, 2, None), (many(14), 1, 2, 3.2)),
    ):
        runs = runs_of(palette, n_seeds)
        yield from curve_figures(
            curves_of(runs, n_points), runs, palette, unit="nats", target=target
        )
    runs = runs_of(FEW, 2, seed=[0.0, math.nan, 0.0, 1.0, *[math.nan] * 4])
    tokens = curves_of(runs, 3).assign(tokens=lambda table: 1000 * table["step"])
    of_step = dict.fromkeys(FEW.arms, 1000.0)
    yield from curve_figures(tokens, runs, FEW, unit="nats", target=None, step_tokens=of_step)


def panels() -> Iterable[Draws | None]:
    steps = np.array([0.0, 10.0, 20.0, 30.0])
    for n in (1, 2, 4, 5, 9, 10):
        deltas = {}
        for place in range(n):
            rows = [[0.1 * (place + 1), 0.02, -0.01, -0.02 * row] for row in range(1 + place % 2)]
            deltas[f"change_{place + 1:02d}"] = ArmDifference(
                steps=steps, rows=np.array(rows), in_blocks=place % 3 != 2
            )
        yield Panels(
            deltas=deltas, palette=many(n + 1), unit="nats", y_range=(-0.03, 0.04), last=30.0
        )
    for palette, last in ((many(13), 30.0), (many(14), 6.5)):
        alike = dict.fromkeys(palette.arms[1:], deltas["change_01"])
        yield Panels(deltas=alike, palette=palette, unit="nats", y_range=(-0.03, 0.04), last=last)
    long = {LONG: deltas["change_02"], "zero_head": deltas["change_01"]}
    yield Panels(deltas=long, palette=FEW, unit="nats", y_range=(-0.03, 0.04), last=30.0)


DRAWINGS: Mapping[str, Callable[[], Iterable[Draws | None]]] = {
    made.__name__: made
    for made in (
        *(strips, drifts, scatters, every_seed, step_times, walls, waterfalls, forests),
        *(both_gains, heats, planes, pairs, budgets, courses, panels),
    )
}


def told_beside(figure: Figure) -> Sequence[str]:
    rows = [", ".join(map(str, row)) for row in (figure.columns, *figure.rows[:MOST_ROWS])]
    named = [", ".join(key) for key in figure.legend]
    return [figure.title, figure.caption, figure.alt, *rows, *named]


def drawn_of(name: str) -> str:
    """The drawings of a theme at both widths, with what is said of them."""
    lines = []
    for made in DRAWINGS[name]():
        if made is None:
            lines.append("no figure")
            continue
        lines += told_beside(made) if isinstance(made, Figure) else []
        for width in (WIDE, NARROW):
            inner, height = made.draw(width)
            lines += [f"{width} x {height:g}", inner.replace("><", ">\n<")]
    return "\n".join(lines) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name in DRAWINGS:
        (FOLDER / f"{name}.txt").write_text(drawn_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
