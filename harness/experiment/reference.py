"""The generated documentation, from the toggles' declarations: toggles.md, experiment.schema.json.

`python -m harness.experiment.reference` rewrites both in docs/; a test holds them up to date. What
the texts about the records claimed is data, docs/text_claims.yaml.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

from harness.config.listing import choices
from harness.config.run import SECTIONS, hint_of, toggles
from harness.config.values import allowed_text
from harness.experiment.schema import experiment_schema
from harness.model.config import ON
from harness.optim.roles import ROWS, SETTINGS
from harness.run.document import Document
from harness.yamlfile import YamlFile

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOT_TOGGLES = {"value": "a value, not a toggle", "documentation": "documentation"}
VERDICTS = (
    "accurate",
    "already there",
    "misleading",
    "wrong",
    "unsupported",
    "opinion",
    "not mentioned",
)
RANGE_WORDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
CONDITIONS = {"requires": "needs", "conflicts": "excludes"}
SECTION_TITLES = {
    "model": "the network",
    "optim": "the update rules",
    "schedule": "what moves with the step",
    "loss": "what is trained on",
    "data": "the tokens",
    "precision": "dtypes",
    "system": "the machine",
    "timing": "the clock",
}

TABLE_HEAD = """\
| toggle | record | default | values | meaning | needs, excludes |
|---|---|---|---|---|---|
"""
CLAIMS_TABLE_HEAD = "| it says | toggles | verdict | |\n|---|---|---|---|\n"
HEAD = """\
# Toggles

Generated from the declarations by `python -m harness.experiment.reference`; do not edit. `ablate \
toggles` prints the same list,
`ablate toggles --json` gives it to scripts.

A toggle is one field of the configuration. Its record is the first that had it; a choice's \
record is the first that took
that value. Defaults are the plain values, those of record 2. "Needs" and "excludes" are checked \
before anything is allocated.
"""

ROLES_HEAD = """
### optim: settings of each role

A cell is a toggle by the name role_setting, `optim.head_beta1`, with the values that records \
give it; *free* where none does.
Null, which every cell is at first but factors on rates, is what the role has that it is as, in \
the end the field at the head
of the column. Adam's settings of gates need their `rule` to be `adam`, factors on rates need \
[optim.matrix_optimizer](#optim.matrix_optimizer) = `muon`.
Parameters of one role with equal settings are one group. Ranges are those of the fields at the \
head.
"""
CELLS = {f"optim.{row}_{name}" for row in ROWS for name in ROWS[row].settings}

CLAIMS_HEAD = """\
## What the texts said

This list began with five texts that described records 4, 8, 17 and 18. The presets reproduce the \
records' scripts, not the
texts; where the two differ this is the place that says so. *Already there* is true of the script \
but not new in that record;
*not mentioned* is what the text left out.
"""


def shown(value: Any) -> str:
    """A value as YAML would write it."""
    return f"`{json.dumps(value)}`".replace('"', "")


def escaped(text: str) -> str:
    """Text that Markdown leaves as it is in a table's cell."""
    for character in "\\|*<":
        text = text.replace(character, "\\" + character)
    return text


def values_text(name: str, f: Field) -> str:
    """What a toggle may be: its type and range, its choices with their records.

    Type and range are said where it is a number or a list.
    """
    free = []
    for part in allowed_text(hint_of(name)).split(" | "):
        if part.startswith(("a ", "an ")):
            free.append(part)
    limits = []
    for key, phrase in RANGE_WORDS.items():
        if key in f.metadata:
            limits.append(f"{phrase} {f.metadata[key]}")
    listed = []
    for choice in choices(name, f):
        if choice["value"] != f.default:
            listed.append(f"{shown(choice['value'])} {choice['record']}")
    kind = joined(", ", " or ".join(free), " and ".join(limits))
    return joined("; ", kind, ", ".join(listed))


def joined(separator: str, *texts: str) -> str:
    """The texts that say something."""
    return separator.join(filter(None, texts))


def conditions_text(facts: Document) -> str:
    """Requirements and conflicts in words."""
    return "; ".join(_conditions(facts))


def _conditions(facts: Document) -> Iterator[str]:
    for kind, phrase in CONDITIONS.items():
        for when, others in facts.get(kind, {}).items():
            subject = "" if when == "*" else f"{shown(when)} "
            for other, accepted in others.items():
                state = ""
                if accepted != ON:
                    state = " = " + " or ".join(map(shown, accepted))
                yield f"{subject}{phrase} {link(other)}{state}"


def link(name: str) -> str:
    return NOT_TOGGLES.get(name) or f"[{name}](#{name})"


def toggles_page() -> str:
    """docs/toggles.md."""
    parts = [HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section}: {SECTION_TITLES[section]}\n\n{TABLE_HEAD}")
        for name, f in toggles():
            if name.startswith(f"{section}.") and name not in CELLS:
                parts.append(toggle_row(name, f))
        if section == "optim":
            parts.append(roles_table(dict(toggles())))
    parts += ["\n", CLAIMS_HEAD]
    for letter, text in load_claims().items():
        parts.append(text_section(letter, text))
    return "".join(parts)


def toggle_row(name: str, f: Field) -> str:
    """A toggle's line of its section's table."""
    unit = ""
    if "unit" in f.metadata:
        unit = f" ({f.metadata['unit']})"
    cells = [
        f'<a id="{name}"></a>{name}',
        f.metadata["record"],
        shown(f.default),
        values_text(name, f),
        escaped(f.metadata["doc"]) + unit,
        conditions_text(f.metadata),
    ]
    return f"| {' | '.join(cells)} |\n"


def roles_table(declared: Mapping[str, Field]) -> str:
    """A row for every role of parameters, a column for every setting."""
    columns = [f"{name} (`{column.plain or column.default}`)" for name, column in SETTINGS.items()]
    lines = [ROLES_HEAD, f"| role | {' | '.join(columns)} | parameters | needs |"]
    lines.append("|---" * (len(columns) + 3) + "|")
    for row, of_row in ROWS.items():
        cells = []
        for name in SETTINGS:
            field = f"optim.{row}_{name}"
            cells.append(role_cell(field, declared[field]) if field in CELLS else "")
        like = f"; as {of_row.like}" if of_row.like else ""
        needs = conditions_text({"requires": {"*": of_row.requires}})
        lines.append(f"| {row} | {' | '.join(cells)} | {of_row.doc}{like} | {needs} |")
    return "\n".join(lines) + "\n"


def role_cell(name: str, f: Field) -> str:
    """A cell of the table of roles: the records' values, or that there are none."""
    values = [f"{shown(value)} {record}" for value, record in f.metadata["choices"].items()]
    return f'<a id="{name}"></a>{", ".join(values) or "free"}'


def load_claims() -> Document:
    return YamlFile(DOCS / "text_claims.yaml").data


def text_section(letter: str, text: Document) -> str:
    """The claims of one text, in its order."""
    section = f"\n### Source text {letter}: {text['change']} ({text['about']})\n\n"
    section += CLAIMS_TABLE_HEAD
    for claim, names, verdict, why in text["claims"]:
        assert verdict in VERDICTS, verdict
        links = ", ".join(map(link, names))
        section += f"| {escaped(str(claim))} | {links} | {verdict} | {escaped(str(why or ''))} |\n"
    return section


def pages() -> dict[Path, str]:
    """Generated file -> its content."""
    schema = json.dumps(experiment_schema(), indent=1, ensure_ascii=False) + "\n"
    return {DOCS / "toggles.md": toggles_page(), DOCS / "experiment.schema.json": schema}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
        print(path)
