"""How a page is cited: BibTeX with the version, the date, the code and the data of its runs."""

import re

from reports.analysis import recipe_facts
from reports.analysis.recipe import Recipe
from reports.latex import escaped
from reports.page.version import VERSION

UNTOLD = ("unknown", "not recorded")  # what a plan says of a corpus without a fingerprint


def citation(recipe: Recipe) -> str:
    """A BibTeX entry of the experiment; '' of published evidence, which is others' to cite."""
    plan, day = recipe.plan, recipe_facts.dates(recipe)
    if plan.evidence:
        return ""
    notes = [f"experiment {plan.name}"]
    for what, value in (
        ("code revision", recipe_facts.commits(recipe)),
        ("source digest", recipe_facts.code_digests(recipe)),
        ("data digest", plan.corpus.fingerprint),
    ):
        if value is not None and value not in UNTOLD:
            notes.append(f"{what} {told(value)}")
    if plan.locks:
        notes.append(f"plan.lock {plan.locks[-1].digest}")
    fields = {
        "title": plan.question or plan.name,
        "howpublished": "report of speedrun-ablations",
        "version": VERSION,
    }
    if day is not None:
        last = day.split()[-1]
        fields |= {"date": last, "year": last[:4]}
    fields["note"] = ", ".join(notes)
    key = re.sub(r"[^A-Za-z0-9]+", "-", plan.name).strip("-") or "ablation"
    lines = []  # a hyphen is one here: BibTeX reads the date
    for name, text in fields.items():
        lines.append(f"  {name} = {{{escaped(text).replace('{-}', '-')}}},")
    lines[-1] = lines[-1].replace(", ", ",\n    ")  # a long one
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def told(value: object) -> str:
    """One value, or all that the runs differ in."""
    if isinstance(value, list):
        return " and ".join(map(str, value))
    return str(value)
