"""What a page says of those that asked its question again, against their plan and their rows, by hand."""

from typing import Any

import pytest

from reports.verify.confirmed import check_confirmed
from reports.verify.page import Page

LOSSES = {"base": (3.0, 3.5), "a": (2.75, 3.25), "b": (3.125, 3.625)}
WORDS = (
    "Asked again on 2 fresh seeds (again): a (−0.2500 [x]) is better than base; b (+0.1250 [x])."
)


def found(words: str = WORDS, *, status: str = "finished", **how: Any) -> list[str]:
    """How: of the plan that asked again; status: of its last run."""
    seeds = (1000, 1001)
    rows = [
        {"arm": arm, "run_id": f"{arm}{seed}", "block": block, "seed": seed, "role": "loss"}
        | {"status": "finished", "stale": False, "budget": 100, "val_loss": losses[block]}
        | {"train_time_s": None}
        for arm, losses in LOSSES.items()
        for block, seed in enumerate(seeds)
    ]
    rows[-1]["status"] = status
    plan: dict[str, Any] = {
        "name": "again",
        "baseline": "base",
        "design": "add-one",
        "confirm": True,
        "seeds": [*seeds],
        "arms": [{"name": arm, "changes": [arm] * (arm != "base")} for arm in LOSSES],
        "runs": [{"run_id": row["run_id"]} for row in rows],
    } | how
    table = {"columns": [*rows[0]], "same": {}, "rows": [[*row.values()] for row in rows]}
    other = {"plan": plan, "accept_stale": False, "runs": table}
    data = {"plan": {"seeds": [0, 1]}, "confirmations": [other]}
    page = Page(sentences={(0, "asked_again 0"): words})
    return [*check_confirmed(page, 0, data, None)]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (WORDS, []),
        (WORDS.replace("2 fresh", "1 fresh"), ["planned with 2 seeds, the page says '"]),
        (WORDS.replace("2 fresh", "3 fresh"), ["planned with 2 seeds, the page says '"]),
        (WORDS.replace("again on 2", "again"), ["planned with 2 seeds, the page says '"]),
        (WORDS.replace("−0.2500", "−0.2501"), ["a is said to be −0.2501, its rows give -0.25000"]),
        (WORDS.replace("+0.1250", "+0.1249"), ["b is said to be +0.1249, its rows give +0.12500"]),
        (WORDS.replace("; b", "; the b"), []),  # no arm of its plan
    ],
)
def test_seeds_and_effects_in_the_sentence_on_it_are_those_of_its_plan_and_rows(
    words: str, wrong: list[str]
) -> None:
    told = found(words)
    assert len(told) == len(wrong)
    assert all(end in sentence for sentence, end in zip(told, wrong, strict=True)), told


def test_of_an_unfinished_one_the_runs_to_come_are_said_and_no_effect_is_held_to_anything() -> None:
    to_come = "Being asked again on 2 fresh seeds (again): 1 run to come, a (−9.0000)."
    assert found(to_come, status="pending") == []
    wrong = ["again has 1 run to come, which the page does not say"]
    for other in ("11 runs", "2 runs", "1 runs"):
        assert found(to_come.replace("1 run", other), status="pending") == wrong
    assert found(status="running") == ["again has 1 run to come, which the page does not say"]
    assert found(to_come) == ["again: a is said to be −9.0000, its rows give -0.25000"]


def test_what_was_planned_to_confirm_has_fresh_seeds_and_a_row_for_each_run() -> None:
    stale = ["again is said to have asked again, and its seeds are not fresh"]
    assert found(confirm=False) == found(seeds=[1, 1000]) == stale
    older: list[Any] = [{"run_id": "now", "older": ["a1000"]}]
    assert found(runs=older) == []
    assert found(runs=[*older, {"run_id": "gone"}]) == ["again: a planned run has no row"]


@pytest.mark.parametrize(("primary", "n"), [("val_loss", 1), ("step_ms", 0), ("accuracy", 0)])
def test_effects_of_a_loss_alone_are_computed_again(primary: str, n: int) -> None:
    assert len(found(WORDS.replace("−0.2500", "−0.9000"), primary=primary)) == n
