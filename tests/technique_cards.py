"""What the technique cards say in words: docs/techniques/cards, a file for each group, and their sources."""

import json
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from harness.yamlfile import YamlFile

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "techniques"
CARDS = FOLDER / "cards"
GROUPS = {
    "attention": "Attention",
    "embeddings": "Embeddings",
    "residual": "Residual stream",
    "optimizer": "Optimizer",
    "schedule": "Schedule",
    "loss": "Loss and logits",
    "data": "Data",
    "systems": "Systems",
}
KEYS = {
    "title",
    "does",
    "formula",
    "records",
    "origin",
    "toggles",
    "here",
    "try",
    "tokens",
    "ladder",
    "optimizers",
    "elsewhere",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """One technique, as its file says it."""

    name: str
    group: str
    title: str
    does: str
    formula: str
    records: tuple[int, ...]  # that brought or changed it, the first one first
    origin: str
    toggles: tuple[str, ...]  # FIELD, FIELD=VALUE, or a pattern of fields such as optim.gate_*
    here: str  # what stands for it where there is no toggle
    experiments: tuple[str, ...]  # that try it
    tokens: str  # options of `ablate data prepare` that its corpus needs
    ladder: tuple[str, ...]  # rungs of record 9's own ladder
    optimizers: bool  # whether the comparison of optimizers on record 7 is about it
    elsewhere: tuple[str, ...]  # what others found

    def names_value(self, field: str, value: Any) -> bool:
        """Whether it is about this value of a field."""
        for toggle in self.toggles:
            pattern, _, wanted = toggle.partition("=")
            if fnmatch(field, pattern) and wanted in ("", text_of(value)):
                return True
        return False


def text_of(value: Any) -> str:
    """A value as YAML writes it in a line."""
    return json.dumps(value).replace('"', "")


@cache
def sources() -> dict[str, tuple[str, str]]:
    """Key -> (how a source is called, its address)."""
    content = YamlFile(CARDS / "sources.yaml").data
    return {str(key): (name, address) for key, (name, address) in content.items()}


@cache
def all_cards() -> tuple[Card, ...]:
    """The cards of all groups, in their order."""
    found = []
    for group in GROUPS:
        for name, said in YamlFile(CARDS / f"{group}.yaml").data.items():
            assert set(said) <= KEYS, f"{name}: {set(said) - KEYS}"
            found.append(
                Card(
                    name=name,
                    group=group,
                    title=said["title"],
                    does=said["does"],
                    formula=said["formula"].rstrip(),
                    records=tuple(said["records"]),
                    origin=said["origin"],
                    toggles=tuple(said.get("toggles", ())),
                    here=said.get("here", ""),
                    experiments=tuple(said.get("try", ())),
                    tokens=said.get("tokens", ""),
                    ladder=tuple(said.get("ladder", ())),
                    optimizers=said.get("optimizers", False),
                    elsewhere=tuple(said.get("elsewhere", ())),
                )
            )
    return tuple(found)
