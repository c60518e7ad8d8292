"""The headline against the table and the settings, each by hand: what it says of sizes, of arms and of how many they are."""

from collections.abc import Mapping
from typing import Any

import pytest

from reports.verify.headline import check_headline, kind_of
from reports.verify.page import Page, Printed

ARMS = ("base", "a", "b", "c")
SIZES = {"n_layer": 2, "d_model": 64}
TABLE: Mapping[str, Mapping[str, Any]] = {
    "base": {"verdict": "baseline"},
    "a": {"verdict": "better", "val_loss.effect": -0.01, "heldout_loss.effect": -0.02},
    "b": {"verdict": "worse", "val_loss.effect": 0.03, "heldout_loss.effect": 0.04},
    "c": {"verdict": "undecided: −0.0100 to 0.0200", "val_loss.effect": 0.005},
}


def shown(value: Any) -> Printed:
    """A text, or a number with its sign as the table prints it and an interval behind it."""
    if isinstance(value, str):
        return Printed(text=value, values=())
    return Printed(text=f"{value:+.4f} [x]".replace("-", "−"), values=(value,))


def said(answer: str, *, budgets: tuple[int, ...] = (100,) * 4, **how: Any) -> list[str]:
    """What is said of an answer; how: what of the plan, the table or the sizes of b is otherwise."""
    table = TABLE | how.pop("table", {})
    sizes = {"base": SIZES, "b": how.pop("of_b", SIZES)}
    plan = {"baseline": "base", "design": "add-one", "arms": [{"name": a} for a in ARMS], **how}
    rows = [
        {"arm": arm, "run_id": arm, "status": "finished", "stale": False, "role": "loss"}
        | {"budget": n, "val_loss": 3.0, "train_time_s": None}
        for arm, n in zip(ARMS, budgets, strict=True)
    ]
    page = Page(
        sentences={(0, "answer"): answer},
        verdicts={
            (0, place): {key: shown(value) for key, value in table[arm].items()}
            for place, arm in enumerate(ARMS)
        },
    )
    configs = {
        "of": {arm: [arm] for arm in sizes},
        "pool": {arm: {"config": {"model": model}} for arm, model in sizes.items()},
    }
    data = {"plan": plan, "accept_stale": False, "configs": configs}
    return [*check_headline(page, 0, data, rows)]


SIZE = "At 2 layers of width 64, 100 steps: "


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (f"{SIZE}a (−0.0100 [x]) is better than base; b (+0.0300 [x]) is worse than it.", []),
        ("Exploratory: at 2 layers of width 64, 100 steps: nothing.", []),
        (
            "Exploratory: at 3 layers of width 64, 100 steps: nothing.",
            [
                "the headline does not say 2 layers, as its runs had, but 'at 3 layers of width 64, 100 steps'",
                "the headline says 3 layers, which no compared run had",
            ],
        ),
        (
            "At 2 layers of width 64, 99 steps: nothing.",
            [
                "the headline does not say 100 steps, as its runs had, but 'At 2 layers of width 64, 99 steps'",
                "the headline says 99 steps, which no compared run had",
            ],
        ),
        ("Of these: a (−0.0100 [x]) is better than base.", []),
        (
            "Of these: a (−0.0101 [x]) is better than base.",
            ["the headline says a −0.0101 but the table −0.0100 [x]"],
        ),
        (
            "Of these: a (−0.0100 [x]) is worse than base.",
            ["the headline calls a worse but the table better"],
        ),
        (
            "Of these: c (+0.0050 [x]) is better than base.",
            ["the headline calls c better but the table undecided: −0.0100 to 0.0200"],
        ),
        ("Of these: on held-out text a (−0.0200 [x]) is worse than base, 3 are worse.", []),
        (
            "Of these: on held-out text a (−0.0100 [x]) is better than base.",
            ["the headline says a −0.0100 but the table −0.0200 [x]"],
        ),
        ("Of these: b + a (−0.5000 [x]) is no row; 1 is worse, 1 is undecided.", []),
        ("Of 3 arms: 2 are worse, no more.", ["the headline says that 2 are worse, the table 1"]),
        ("In short: Of 3 arms 1 is shown to help.", []),
        ("In short: Of 3 arms one is shown to help.", []),
        (
            "In short: No arm is shown to help.",
            ["the headline counts 0 arms that are better, the table 1"],
        ),
        (
            "In short: 2 of 3 arms are worse than base.",
            ["the headline counts 2 arms that are worse, the table 1"],
        ),
        ("No colon, so no headline of ours; 2 are worse.", []),
    ],
)
def test_a_headline_says_what_the_table_and_the_settings_say(answer: str, wrong: list[str]) -> None:
    assert said(answer) == wrong


def test_of_several_sizes_or_lengths_none_is_named() -> None:
    wide = "At 2 layers of width 64: nothing."
    assert said(wide, budgets=(100, 100, 200, 50)) == []
    assert said(wide) == [
        "the headline does not say 100 steps, as its runs had, but 'At 2 layers of width 64'"
    ]
    assert said("At 2 layers of width 64, 1 step: nothing.", budgets=(1,) * 4) == []
    alone = {"n_layer": 1, "d_model": 64}
    other = said(SIZE + "nothing.", of_b=alone)
    assert other == []  # the baseline's
    assert said("At 2 layers of width 64, 100 steps: x.", evidence="first") == []
    assert said("At 9 layers: 7 are worse.", evidence="first") == []


def test_the_headline_is_of_the_metric_that_decides_or_of_the_loss_where_no_row_has_that() -> None:
    faster = {
        "a": {"verdict": "faster", "step_ms.effect": -0.2, "val_loss.effect": -0.01},
        "b": {"verdict": "slower", "step_ms.effect": 0.2, "val_loss.effect": 0.03},
    }
    answer = "Of these: a (−0.2000 [x]) is better than base; b (+0.2000 [x]) is worse than it."
    assert said(answer, primary="step_ms", table=faster) == []
    assert said(answer, primary="step_ms") == [
        "the headline says a −0.2000 but the table −0.0100 [x]",
        "the headline says b +0.2000 but the table +0.0300 [x]",
    ]


@pytest.mark.parametrize(
    ("verdict", "effect", "interval", "kind"),
    [
        ("baseline", None, None, "baseline"),
        ("faster", -0.1, None, "better"),
        ("slower", 0.1, None, "worse"),
        ("no difference larger than 0.01", 0.001, "[x]", "no different"),
        ("no difference larger than 0.01", 0.001, None, "no different"),
        ("too few runs", 0.0, None, "no different"),
        ("too few runs", 0.1, None, "undecided"),
        ("too few runs", None, None, "undecided"),
        ("undecided", 0.0, "[x]", "undecided"),
    ],
)
def test_a_verdict_is_of_a_kind_and_two_that_end_alike_in_every_bit_are_no_different(
    verdict: str, effect: float | None, interval: str | None, kind: str
) -> None:
    row: dict[str, Any] = {"verdict": verdict, "k.effect": effect, "k.interval": interval}
    printed = {key: shown(value) for key, value in row.items() if value is not None}
    assert kind_of(printed, "k") == kind
