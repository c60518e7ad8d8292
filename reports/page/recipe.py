"""The box at the top of a page: what was trained, on what, when, by which code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.run.document import Document
from reports.analysis.recipe import Recipe
from reports.analysis.recipe_columns import RECIPE_COLUMNS
from reports.format import show
from reports.page.naming import NAMED, listing

GROWTH = "schedule.batch_growth"  # in multiples of both what a sequence and a batch begin with
LONG = 90  # characters of a fact that has a line to itself


@dataclass(frozen=True, kw_only=True)
class RecipeFact:
    """One line of the box."""

    key: str  # of what the page prints
    name: str
    text: str
    meaning: str
    is_listed: bool  # has several things to say, and a line to itself


@dataclass(frozen=True, kw_only=True)
class RecipeBox:
    """What is known, and the names of what is not."""

    facts: Sequence[RecipeFact]
    unknown: str
    plugins: Mapping[str, str]  # file and digest -> its source


def recipe_box(recipe: Recipe) -> RecipeBox:
    """The declared facts of a recipe in words."""
    facts, unknown = [], []
    for column in RECIPE_COLUMNS:
        value = column.of(recipe)
        if value is None:
            unknown.append(column.head)
            continue
        if value == [] and column.key == "plugins":
            continue
        text = fact_text(value) + rest_of_words(column.key, value, recipe)
        if isinstance(value, Mapping):
            text = by_arm_text(value, recipe.plan.baseline)
        facts.append(
            RecipeFact(
                key=f"recipe.{column.key}",
                name=column.head,
                text=text,
                is_listed=len(text) > LONG,
                meaning=column.meaning,
            )
        )
    return RecipeBox(facts=facts, unknown=", ".join(unknown), plugins=recipe.plugins)


def fact_text(value: Any) -> str:
    """A fact as a person reads it: of several all, of an empty list that there is nothing."""
    if isinstance(value, list):
        return "; ".join(fact_text(each) for each in value) or "nothing"
    return str(value)


def by_arm_text(of_arms: Document, baseline: str) -> str:
    """The baseline's number, then the arms that have another one, the furthest from it first."""
    usual = of_arms.get(baseline)
    if not isinstance(usual, int):
        return "; ".join(f"{arm} {either(value)}" for arm, value in of_arms.items())
    shares = {arm: value / usual - 1 for arm, value in of_arms.items() if isinstance(value, int)}
    told = []
    for arm in sorted(shares, key=lambda arm: -abs(shares[arm])):
        if shares[arm]:
            told.append(f"{arm} {of_arms[arm]} ({show(shares[arm], 'percent')})")
    told += [f"{arm} {either(of_arms[arm])}" for arm in of_arms if arm not in shares]
    return f"{usual}; {listing(told, most=NAMED, comma='; ')}"


def either(value: Any) -> str:
    """What an arm's runs had, beside what other arms' had."""
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)


def rest_of_words(key: str, value: Any, recipe: Recipe) -> str:
    """What a person has to read behind a fact, which JSON has by its name."""
    if key in ("seq_len", "batch_tokens"):
        growth = [times for listed in recipe.of_baseline(GROWTH) for times in listed]
        return " tokens" + (f", later up to {max(growth)} times as many" if growth else "")
    if key == "heldout" and value == "none":
        return " beside the validation tokens"
    return ""
