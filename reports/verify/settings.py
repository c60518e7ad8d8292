"""The second path for what was trained and what differed: from each run's own configuration.

It shares no code with the page. Of the box at the top it recomputes what a configuration says; what
machines and results say is left to the rerun in rendered.py.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from reports.verify.page import Embedded, Page, Row
from reports.verify.rows import compared_rows, outcomes_of

NUMBERS = {
    "recipe.layers": ("model.n_layer", ""),  # and what is printed behind the number
    "recipe.width": ("model.d_model", ""),
    "recipe.seq_len": ("data.seq_len", " tokens"),
    "recipe.batch_tokens": ("data.batch_tokens", " tokens"),
}
GROWING = "schedule.batch_growth"
SWITCHES = {"true": "on", "false": "off", "null": "off"}
LISTED = 3
MANY_DIGITS = 10  # digits beyond which a fraction is printed with four
LONG_FRACTION = re.compile(r"-?\d+\.\d+(e-?\d+)?")
Settings = Mapping[str, list[str]]  # dotted field -> its values in an arm's runs, as JSON


def check_settings(page: Page, index: int, data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Every printed setting against those of the runs whose losses are compared.

    index: of the experiment among those of the page.
    """
    arms = [arm["name"] for arm in data["plan"]["arms"]]
    compared = compared_rows(outcomes_of(data, rows), arms, "loss")
    of_arms = {arm: recorded_settings(data, compared, arm) for arm in arms}
    base = of_arms[data["plan"]["baseline"]]
    printed: dict[str, str] = {}
    for where, sentence in page.sentences.items():
        if where[0] == index:
            printed[str(where[1])] = sentence
    budgets = {row["budget"] for row in compared}
    steps = printed.get("recipe.steps")
    if len(budgets) == 1 and steps is not None and steps != str(budgets.pop()):
        yield f"what was trained: recipe.steps is printed as {steps}, which no compared run made"
    growth = [times for listed in base.get(GROWING, ()) for times in json.loads(listed)]
    for key, (field, unit) in NUMBERS.items():
        values = base.get(field, [])
        text = printed.get(key, "nothing")
        if unit and growth:
            unit += f", later up to {sorted(growth)[-1]} times as many"
        if len(values) == 1 and text != values[0] + unit:
            yield f"what was trained: {key} is printed as {text} but the runs had {values[0]}"
    yield from check_citation(printed, rows)
    yield from check_changes(printed, data["plan"], of_arms)
    yield from check_differences(printed, arms, of_arms, data["plan"]["baseline"])


def check_citation(printed: Mapping[str, str], rows: Sequence[Row]) -> Iterator[str]:
    """The data that the page's citation names, where its runs have one fingerprint."""
    cited = printed.get("citation")
    fingerprints = {row["fingerprint"] for row in rows if row.get("fingerprint")}
    if cited is None or "data digest" not in cited or len(fingerprints) != 1:
        return
    (fingerprint,) = fingerprints
    if f"data digest {fingerprint}" not in cited:
        yield f"the citation does not name the data of the runs, {fingerprint}"


def check_differences(
    printed: Mapping[str, str], arms: Sequence[str], of_arms: Mapping[str, Settings], baseline: str
) -> Iterator[str]:
    """The table of what differed; arms without a compared run are left to the rerun."""
    base = of_arms[baseline]
    for place, arm in enumerate(arms):
        mine = of_arms[arm]
        if not mine or not base:
            continue
        for field in sorted({*mine, *base}):
            key = f"differs {field} {place}"
            if mine.get(field) != base.get(field) and key not in printed:
                yield f"arm {arm!r}: its runs differ in {field}, which is not printed"
            written = written_setting(field, mine)
            if key in printed and printed[key] != written:
                yield (
                    f"arm {arm!r}: {field} is printed as {printed[key]} but its runs had {written}"
                )


def check_changes(
    printed: Mapping[str, str], plan: Embedded, of_arms: Mapping[str, Settings]
) -> Iterator[str]:
    """What each change is said to set, by the smallest arm that ran with it and without it."""
    arms: dict[frozenset[str], str] = {}
    changes: dict[str, None] = {}
    for arm in plan["arms"]:
        changes |= dict.fromkeys(arm["changes"])
        if (arm.get("of") or arm["name"]) == arm["name"]:
            arms[frozenset(arm["changes"])] = arm["name"]
    is_told = any(key.startswith("sets ") for key in printed)
    for place, change in enumerate(changes if is_told else ()):
        having = [s for s in arms if change in s and s - {change} in arms]
        if not having:
            continue
        smallest = min(having, key=lambda s: (len(s), sorted(s)))
        there, before = of_arms[arms[smallest]], of_arms[arms[smallest - {change}]]
        if not there or not before:
            continue
        for field in {*there, *before}:
            key, written = f"sets {place} {field}", written_setting(field, there)
            if there.get(field) == before.get(field):
                if key in printed:
                    yield f"change {change!r}: {field} is printed, which it does not set"
            elif printed.get(key) != written:
                yield (
                    f"change {change!r}: {field} is printed as {printed.get(key, 'nothing')} but"
                    f" its runs had {written}"
                )


def recorded_settings(data: Embedded, rows: Sequence[Row], arm: str) -> Settings:
    """The settings that an arm's rows recorded, every value once, in the order of the rows."""
    settings: dict[str, list[str]] = {}
    configs = data["configs"]
    for name in dict.fromkeys(
        configs["of"][row["run_id"]][0]
        for row in rows
        if row["arm"] == arm and row["run_id"] in configs["of"]
    ):
        for field, value in leaves(configs["pool"][name].get("config") or {}, ()):
            values = settings.setdefault(field, [])
            if value not in values:
                values.append(value)
    return settings


def leaves(value: Embedded, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(dotted field, its value as JSON) of a configuration."""
    for key, below in value.items():
        if isinstance(below, Mapping) and (below or (*above, key) == ("plugin",)):
            yield from leaves(below, (*above, key))
        else:
            yield ".".join((*above, key)), json.dumps(below, sort_keys=True, separators=(",", ":"))


def written_setting(field: str, settings: Settings) -> str:
    """An arm's values as the page writes them."""
    values = settings.get(field, [])
    if not values:
        section, *rest = field.split(".")
        if section != "plugin" or not rest:
            return "unknown"
        is_on = any(other.startswith(f"plugin.{rest[0]}.") for other in settings)
        return "as the plug-in has it" if is_on else "off"
    if len(values) > LISTED:
        return f"{len(values)} values"
    texts = []
    for value in values:
        text = SWITCHES.get(value, value)
        if len(value) > MANY_DIGITS and LONG_FRACTION.fullmatch(value):
            text = f"{float(value):.4g}"
        texts.append(" ".join(json.loads(value).split()) if value.startswith('"') else text)
    return " or ".join(texts)
