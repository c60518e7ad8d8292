"""The technique cards: `python -m tests.techniques` writes docs/techniques from docs/techniques/cards.

What a card says in words stands in cards/GROUP.yaml, its sources in cards/sources.yaml. What it needs comes from the toggles'
declarations, what it brought from the published history (results/published), which presets have it from experiments/records.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from harness.config.listing import choices
from harness.config.presets import load_preset, names
from harness.config.run import toggles
from harness.experiment.reference import conditions_text
from reports.inputs.history import HISTORY
from reports.inputs.noise import benchmark_noise
from tests.technique_cards import FOLDER, GROUPS, Card, all_cards, sources, text_of
from tests.technique_figures import figures, node_difference, optimizers, rung

RECORDS = range(2, 90)


def page(card: Card) -> str:
    """One card's page."""
    lines = [f"# {card.title}", "", card.does, "", "```", card.formula, "```", ""]
    lines += facts(card)
    lines += ["", "## What it brought", ""]
    lines += brought(card)
    lines += ["", "## What others found", ""]
    for found in card.elsewhere or ("Nothing is known to us.",):
        lines.append(f"* {cited(found)}")
    lines += ["", "## Try it on your own text", ""]
    lines += trying(card)
    group = f"[{GROUPS[card.group]}](README.md#{card.group})"
    lines += ["", f"{group} · [how to read the figures](README.md#figures)"]
    return "\n".join(lines) + "\n"


def facts(card: Card) -> Iterator[str]:
    """Where it comes from, its toggles, what they need."""
    yield f"* **Idea**: {cited(card.origin)}"
    firsts = [f"{n} ({figures()[n].row.link.date}{by(n)})" for n in card.records]
    yield f"* **{plural('Record', len(firsts))}**: {', '.join(firsts)}"
    if not card.toggles:
        yield f"* **Here**: {card.here}"
        return
    named = [toggle_link(toggle) for toggle in card.toggles]
    yield f"* **{plural('Toggle', len(named))}**: {', '.join(named)}"
    yield f"* **Needs**: {'; '.join(dict.fromkeys(needed(card))) or 'nothing else'}"
    presets = changes_of(card)
    if presets:
        yield f"* **In the presets**: {', '.join(f'`{name}`' for name in presets)}"
    if card.here:
        yield f"* **Here**: {card.here}"


def plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"


@cache
def contributors() -> dict[int, str]:
    """Record of the short track -> who it is by, as its table says."""
    with (HISTORY / "contributors.csv").open(newline="", encoding="utf-8") as file:
        return {int(row["record"]): row["contributors"] for row in csv.DictReader(file)}


def by(record: int) -> str:
    who = contributors()[record]
    return f", {who}" if who else ""


def toggle_link(toggle: str) -> str:
    field, _, value = toggle.partition("=")
    if "*" in field:
        return f"[{field}](../toggles.md#{matching(field)[0]})"
    return f"[{field}](../toggles.md#{field})" + (f" `{value}`" if value else "")


@cache
def matching(pattern: str) -> list[str]:
    """The fields that a pattern names."""
    return [name for name, _ in toggles() if fnmatch(name, pattern)]


def needed(card: Card) -> Iterator[str]:
    """What its toggles require and exclude, from their declarations."""
    for toggle in card.toggles:
        pattern, _, value = toggle.partition("=")
        for name, field in toggles():
            if "*" in pattern or name != pattern:
                continue
            conditions: dict[str, Any] = {}
            for kind in ("requires", "conflicts"):
                of_kind = field.metadata.get(kind, {})
                conditions[kind] = {
                    when: others
                    for when, others in of_kind.items()
                    if when == "*" or value in ("", text_of(when))
                }
            told = conditions_text(conditions).replace("](#", "](../toggles.md#").split("; ")
            of_all = [text for text in told if text and not text.startswith("`")]
            if of_all:
                yield f"`{name}` {', '.join(of_all)}"
            yield from (f"`{name}` = {text}" for text in told if text.startswith("`"))


# of records that were made beside the ones before them: their changes taken back, and later in again
TAKEN_BACK = {
    *("r71.value_tables_before", "r73.documents_before", "r74.value_tables", "r74.rate_floor"),
    *("r74.last_row", "r82.no_mudd", "r82.schedule", "r83.no_xsa", "r84.no_signs"),
    "r85.bigram_sign",
}


@cache
def preset_changes() -> dict[str, Mapping[str, Any]]:
    """rNN.change -> the fields it sets, of all presets."""
    found: dict[str, Mapping[str, Any]] = {}
    for preset in names("records"):
        for change in load_preset(preset).changes.values():
            found[f"{preset}.{change.name}"] = change.values
    return found


@cache
def changes_of(card: Card) -> list[str]:
    """The changes of presets that set what it is about."""
    found = []
    for name, values in preset_changes().items():
        if any(card.names_value(field, value) for field, value in values.items()):
            found.append(name)
    return found


def brought(card: Card) -> Iterator[str]:
    """A row for each of its records, and the rungs of record 9's own ladder."""
    yield "| record | with | steps | loss | steps at equal loss, % | ms a step, % | time at equal loss, % | runs |"
    yield "|---|---|---|---|---|---|---|---|"
    for record in card.records:
        yield figure_row(card, record)
    if any(figures()[record].by_era for record in card.records):
        yield ""
        yield "† too few runs in an arm: its intervals are those of the era's noise."
    for name in card.ladder:
        yield ""
        yield rung(name)
    if card.optimizers:
        yield ""
        yield optimizers()


def figure_row(card: Card, record: int) -> str:
    figure = figures()[record]
    others = [f"[{c.title}]({c.name}.md)" for c in all_cards() if record in c.records and c != card]
    row, shown = figure.row, figure.shown
    steps = ""
    if row.arm is not None and row.parent is not None:
        steps = f"{row.parent.steps} to {row.arm.steps}"
    values = [shown[key] for key in ("loss", "learning", "systems", "total")]
    if row.loss is None or row.total is None:
        values[-1] = row.why
    runs = shown["n"].replace("against", "and") + (" †" if figure.by_era else "")
    return f"| {record} | {', '.join(others) or 'nothing known'} | {steps} | {' | '.join(values)} | {runs} |"


def cited(text: str) -> str:
    """Text whose [keys] are links to their sources."""

    def of_key(found: re.Match[str]) -> str:
        name, address = sources()[found[1]]
        return f"[{name}]({address})"

    return re.sub(r"\[([a-z0-9_]+)\](?!\()", of_key, text)


def commands(card: Card) -> list[list[str]]:
    """The commands that try it, as arguments."""
    of_own_text = ["--set", "scale=tiny", "--set", "data.corpus=mine"]
    return [["ablate", "run", name, *of_own_text] for name in card.experiments]


def trying(card: Card) -> Iterator[str]:
    if not card.experiments:
        yield "There is nothing to run: it has no toggle."
        return
    yield "```sh"
    yield from (" ".join(command) for command in commands(card))
    yield "```"
    yield ""
    yield (
        f"`mine` is a corpus that you made: `ablate data prepare text notes/ --name mine{card.tokens}` "
        "([data](../data.md)). A run takes minutes of a CPU. Without `scale=tiny` it has the "
        "record's size, which wants eight GPUs and 10.5M tokens of held-out text."
    )


HEAD = """\
# Techniques

A card for every change of the speedrun's records 2 to 89: what it does, who brought it, what the records' own logs say of it, what it needs, what others
found, and how to try it on your own text. Written by `python -m tests.techniques` from [cards/](cards), the toggles' declarations and the
[published figures](../../results/published/README.md); do not edit.

<a id="figures"></a>
**How to read the figures.** A record is held against the one before, or a baseline that its authors ran beside it
([the whole history](../findings/README.md)). Below zero is better, but for *loss*, which counts at the steps that each ran. Brackets are 95 % intervals of one row.

* *with*: what else the same record changed, as far as it is known. The figure is then of the bundle, and no part of it is this technique's alone.
* *steps at equal loss*: the difference of losses turned into steps by the slope {slope:.3f} nats per log step (standard error {se:.3f}).
* *ms a step* and *time at equal loss* carry the noise of two unknown nodes, {nodes:.1f} %: the logs do not say where they ran.
* Where a record changed the batch, steps and milliseconds trade against each other: only the time counts.
* *runs*: of the record and of what it is held against. †: too few in one of them for an interval of its own; it is that of the era's sd of one run.

A record retunes its number of steps, and often its rates, with every change; that is in the figure, too. On your own text all arms have the steps and
rates of the file, unless you sweep them ([experiments](../experiments.md)).
"""


def index() -> str:
    """docs/techniques/README.md."""
    noise = benchmark_noise()
    head = HEAD.format(
        slope=noise.slope.nats_per_log_step,
        se=noise.slope.se,
        nodes=100 * node_difference(noise),
    )
    lines = [head]
    for group, title in GROUPS.items():
        lines += [
            f'<a id="{group}"></a>',
            f"## {title}",
            "",
            "| technique | records | what it does | to try |",
            "|---|---|---|---|",
        ]
        for card in all_cards():
            if card.group == group:
                of = ", ".join(map(str, card.records))
                tried = ", ".join(f"`{name}`" for name in card.experiments) or "no toggle"
                lines.append(f"| [{card.title}]({card.name}.md) | {of} | {card.does} | {tried} |")
        lines.append("")
    lines += ["## By record", "", "| record | techniques |", "|---|---|"]
    for record in RECORDS:
        of_record = [f"[{c.title}]({c.name}.md)" for c in all_cards() if record in c.records]
        lines.append(f"| {record} | {', '.join(of_record)} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Generated file -> its content."""
    written = {FOLDER / "README.md": index()}
    for card in all_cards():
        written[FOLDER / f"{card.name}.md"] = page(card)
    return written


def unlisted() -> Iterator[str]:
    """Changes of presets whose record stands on no card that is about them.

    Without the length of a run, which every record tunes, and what TAKEN_BACK names.
    """
    tuned = {"schedule.steps", "schedule.cooldown_steps"}
    for name, values in preset_changes().items():
        record = int(name[1:3])
        about = [card for card in all_cards() if name in changes_of(card)]
        listed = any(record in card.records for card in about)
        if about and set(values) - tuned and not listed and name not in TAKEN_BACK:
            yield f"{name}: {', '.join(card.name for card in about)}"


def uncovered() -> Iterator[str]:
    """Values of toggles from record 19 on, and changes of presets, that no card is about."""
    for name, field in toggles():
        for choice in choices(name, field):
            number = re.fullmatch(r"r(\d+)", str(choice["record"]))
            if number is None or int(number[1]) < 19 or choice["value"] == field.default:
                continue
            if not any(card.names_value(name, choice["value"]) for card in all_cards()):
                yield f"{name}={text_of(choice['value'])} (r{number[1]})"
        number = re.fullmatch(r"r(\d+)", field.metadata["record"])
        if number and int(number[1]) >= 19:
            fields = [toggle.partition("=")[0] for card in all_cards() for toggle in card.toggles]
            if not any(fnmatch(name, pattern) for pattern in fields):
                yield name
    for name, values in preset_changes().items():
        if values and not any(name in changes_of(card) for card in all_cards()):
            yield name


if __name__ == "__main__":
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
        print(path)
