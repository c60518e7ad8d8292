"""Which arms move by rates that a plug-in of their own has, and by which fields it has them."""

import ast
from collections.abc import Mapping

from reports.analysis.recipe import PLUGIN, Recipe
from reports.analysis.recipe_facts import RATE

OWN_RATES = {"optimizers", "lr_factor"}  # functions of a plug-in that decide how fast weights move


def plugin_rates(recipe: Recipe) -> Mapping[str, list[str]]:
    """Arm -> the numeric fields of the plug-ins that move it, where the baseline has them not so.

    A plug-in moves an arm where its kept source has one of OWN_RATES, or a field is named a rate.
    """
    moving = own_optimizers(recipe.plugins)
    arms: dict[str, list[str]] = {}
    for field in recipe.differing:
        name = field.removeprefix(PLUGIN).partition(".")[0]
        is_rate = f"_{field.rpartition('.')[2]}".endswith(RATE)
        if not field.startswith(PLUGIN) or not (is_rate or name in moving):
            continue
        for arm in recipe.by_arm:
            values = recipe.values(arm, field)
            if values and values != recipe.of_baseline(field):
                fields = arms.setdefault(arm, [])
                if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                    fields.append(field)
    return arms


def own_optimizers(plugins: Mapping[str, str]) -> set[str]:
    """The plug-ins of kept sources that define one of OWN_RATES."""
    names = set()
    for file, source in plugins.items():
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a page: anybody's text
            continue
        if any(isinstance(part, ast.FunctionDef) and part.name in OWN_RATES for part in body):
            names.add(file.removeprefix("plugin/").partition(".py ")[0])
    return names
