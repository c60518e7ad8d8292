"""The table of settings: every cell is read by its row, and by the rows that are like it, alone."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from harness.model.parameters import PARTS
from harness.model.parameters import ROLES as ROLES_OF_NETWORK
from harness.optim.build import ROLES, AdamSettings, build_optimizers, settings_of
from harness.optim.config import OptimConfig
from harness.optim.roles import ROW_OF_PART, ROWS, SETTINGS, row_of

CELLS = [(row, name) for row in ROWS for name in ROWS[row].settings]
PLACES = [(role, part) for role in ROLES for part in (None, *PARTS.get(role, ()))]
MUON = OptimConfig(matrix_optimizer="muon")


def one(part: str | None) -> Parameter:
    p = Parameter(torch.ones(4, 4))
    p.part = part  # type: ignore[attr-defined]
    return p


def of_rows(config: OptimConfig) -> dict[tuple[str, str | None], Any]:
    return {(role, part): settings_of(role, one(part), config, 1) for role, part in PLACES}


def like(row: str, other: str | None) -> bool:
    """Whether a row is another, or has its settings from it."""
    return row == other or (row in ROWS and like(ROWS[row].like or "", other))


def test_the_networks_roles_and_parts_are_those_of_the_table() -> None:
    assert set(ROLES_OF_NETWORK) == set(ROLES)
    assert {part for parts in PARTS.values() for part in parts} == ROW_OF_PART.keys()
    assert {row_of(role, part) for role, part in PLACES} == ROWS.keys()


def test_the_cells_are_fields_of_the_configuration() -> None:
    held = {field.name: field for field in fields(OptimConfig)}
    for row, name in CELLS:
        field = held[f"{row}_{name}"]
        assert field.default == SETTINGS[name].default
        assert ROWS[row].doc in field.metadata["doc"]


@pytest.mark.parametrize(("row", "name"), CELLS)
def test_a_cell_is_read_by_its_row_and_those_like_it(row: str, name: str) -> None:
    has_rule = "rule" in ROWS[row].settings and name != "rule"
    base = replace(MUON, **({f"{row}_rule": "adam"} if has_rule else {}))
    before = of_rows(base)
    after = of_rows(replace(base, **{f"{row}_{name}": SETTINGS[name].example}))
    changed = {row_of(*place) for place in PLACES if before[place] != after[place]}
    assert changed == {other for other in ROWS if like(other, row)}


@pytest.mark.parametrize(("row", "name"), CELLS)
def test_a_null_cell_is_what_its_plain_field_says(row: str, name: str) -> None:
    column = SETTINGS[name]
    if column.plain is None or name == "rule":
        return
    config = replace(OptimConfig(), **{column.plain: column.example})
    place = next(place for place in PLACES if row_of(*place) == row)
    (settings, plain) = (of_rows(c)[place] for c in (config, OptimConfig()))
    assert isinstance(settings, AdamSettings)
    assert settings != plain


def test_parts_with_settings_of_their_own_are_groups_of_their_own() -> None:
    params = {
        "scalar": [("mix", one("residual")), ("other", one(None)), ("skip", one("skip"))],
        "hidden": [("q", one("q")), ("gate", one("gate")), ("smear", one("smear_gate"))],
    }

    def groups(**cells: Any) -> list[tuple[str, str, list[str]]]:
        config = replace(MUON, **cells)
        made = build_optimizers(params, config, dtype=torch.float32, device_type="cpu")
        return [
            (type(optimizer).__name__, group["role"], group["names"])
            for optimizer in made
            for group in optimizer.param_groups
        ]

    scalars, matrices = ["mix", "other", "skip"], ["q", "gate", "smear"]
    assert groups() == [("Adam", "scalar", scalars), ("Muon", "hidden", matrices)]
    assert groups(scalar_beta1=0.9, residual_beta1=0.65, smear_gate_rule="adam") == [
        ("Adam", "scalar", ["mix"]),
        ("Adam", "scalar", ["other", "skip"]),
        ("Adam", "hidden", ["smear"]),
        ("Muon", "hidden", ["q", "gate"]),
    ]


def test_decay_of_one_role_is_decay_in_the_library_too() -> None:
    params = {"embed": [("embed", one(None))], "head": [("head", one(None))]}
    config = replace(MUON, adam_objects="single", head_weight_decay=0.5)
    (made,) = build_optimizers(params, config, dtype=torch.float32, device_type="cpu")
    for _, p in (*params["embed"], *params["head"]):
        p.grad = torch.zeros_like(p)
    made.step()
    assert torch.equal(params["embed"][0][1], torch.ones(4, 4))
    torch.testing.assert_close(params["head"][0][1], torch.full((4, 4), 1 - 1.8e-3 * 0.5))
