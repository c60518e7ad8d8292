"""What says where to round does nothing in fp32: there it is no arm, and it is said how it is one."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import load_experiment

TABLES = "  tables: r05.bf16_rotary_tables\n"
RECIPE = """
name: rounding
question: Which part of record 5 helps?
base: r04
scale: tiny
changes:
  relu2: r05.relu2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "rounding.yaml"
    file.write_text(RECIPE + TABLES)
    return file


def arms(file: Path, device: str, **overrides: object) -> list[str]:
    return [arm.name for arm in load_experiment(str(file), device=device, overrides=overrides).arms]


def test_where_nothing_is_rounded_it_is_left_out_and_the_plan_says_so(file: Path) -> None:
    e = load_experiment(str(file), device="cpu")
    assert [arm.name for arm in e.arms] == ["baseline", "relu2"]
    assert list(e.left_out) == [
        "tables: says where to round, and fp32 rounds nowhere: --set precision.mode=record does"
    ]


def test_it_is_an_arm_where_the_record_s_precision_is(file: Path) -> None:
    everything = ["baseline", "relu2", "tables"]
    assert arms(file, "cuda") == everything
    assert arms(file, "cpu", **{"precision.mode": "record"}) == everything
    assert arms(file, "cuda", **{"precision.mode": "fp32"}) == everything[:2]


def test_where_it_is_the_only_question_it_is_refused_with_the_way_to_ask_it(file: Path) -> None:
    file.write_text(RECIPE.partition("  relu2")[0] + TABLES)
    with pytest.raises(UserError, match=r"run it with precision\.mode=record: fp32 rounds nowhere"):
        arms(file, "cpu")
    assert arms(file, "cpu", **{"precision.mode": "record"}) == ["baseline", "tables"]


def test_with_something_else_it_is_the_same_arm_as_that_alone(file: Path) -> None:
    both = "  both: {model.activation: relu2, model.rope_table_dtype: bf16}\n"
    file.write_text(RECIPE + both)
    with pytest.raises(UserError, match="'relu2' and 'both' are one and the same on this machine"):
        arms(file, "cpu")
    assert arms(file, "cuda") == ["baseline", "relu2", "both"]
