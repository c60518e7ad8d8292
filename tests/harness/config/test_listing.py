"""The catalogue: every toggle a row, and each row true of the presets."""

import json

import pytest

from harness.__main__ import main
from harness.config.listing import toggle_rows
from harness.config.presets import load_preset, names, preset_values
from harness.config.run import RunConfig, get, toggles
from harness.experiment.schema import experiment_schema
from harness.experiment.values import check_values

ROWS = {row["name"]: row for row in toggle_rows()}
RECORDS = names("records")
LATER = [f"r{number}" for number in range(19, 90)]  # toggles come from them, too


def test_every_toggle_is_a_row_with_its_default():
    assert list(ROWS) == [name for name, _ in toggles()]
    assert all(row["default"] == get(RunConfig(), name) for name, row in ROWS.items())


def test_a_row_says_what_the_toggle_means_and_where_it_comes_from():
    for name, row in ROWS.items():
        assert row["doc"], name
        assert "\n" not in row["doc"], name
        assert row["record"] in RECORDS + LATER, name
        assert all(choice["record"] in RECORDS + LATER for choice in row["choices"]), name


def test_every_choice_is_a_value_that_the_field_takes():
    for name, row in ROWS.items():
        for choice in row["choices"]:
            taken = check_values({name: choice["value"]}, lambda field: "catalogue")
            assert taken == {name: choice["value"]}


def test_requirements_name_other_toggles_and_values_they_take():
    for name, row in ROWS.items():
        for condition in [*row["requires"], *row["conflicts"]]:
            assert condition["field"] in ROWS, name
            assert condition["field"] != name
            if condition["values"] != "not null":
                for value in condition["values"]:
                    check_values({condition["field"]: value}, lambda field: "catalogue")


def test_a_choice_belongs_to_the_first_record_that_took_it():
    """Of what a record's own changes set, no catalogue entry says that it came later."""
    late = []
    for record in RECORDS:
        for change in load_preset(record).changes.values():
            for name, value in change.values.items():
                for choice in ROWS[name]["choices"]:
                    same = choice["value"] == value and type(choice["value"]) is type(value)
                    if same and (RECORDS + LATER).index(choice["record"]) > RECORDS.index(record):
                        late.append(
                            f"{name}={value}: {record} sets it, the catalogue says {choice['record']}"
                        )
    assert not late


def test_a_choice_is_what_its_record_has():
    """But for two that no record has: each came with the record of another choice."""
    others, n_choices = [], 0
    for name, toggle in toggles():
        for value, record in toggle.metadata.get("choices", {}).items():
            if record in RECORDS:
                n_choices += 1
                if preset_values(record)[0][name] != value:
                    others.append((name, value))
    assert n_choices > 200
    assert others == [("model.value_residual", "fixed"), ("optim.muon_backend", "svd")]


def test_every_value_of_every_preset_is_in_the_schema():
    fields = experiment_schema()["$defs"]["fields"]["properties"]
    for record in RECORDS:
        assert set(preset_values(record)[0]) == set(fields)


def test_the_listing_is_json_that_scripts_can_read(capsys):
    with pytest.raises(SystemExit):
        main(["toggles", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in listed] == list(ROWS)
    assert all(
        set(row) == {"name", "record", "doc", "default", "choices", "requires", "conflicts"}
        for row in listed
    )
