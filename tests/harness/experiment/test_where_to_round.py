"""What says where to round does nothing in fp32: an arm that is another one there is left out, and it is said how it is one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment

RECIPE = """
name: rounding
question: Which part of record 5 helps?
base: r04
scale: tiny
changes:
"""
RELU2, TABLES = "  relu2: r05.relu2\n", "  tables: r05.bf16_rotary_tables\n"
ROUNDED = {"precision.mode": "record"}
AGAIN = "'{}' again, for fp32 rounds nowhere: --set precision.mode=record tells them apart"


def load(folder: Path, changes: str, device: str = "cpu", **overrides: object) -> Experiment:
    file = folder / "rounding.yaml"
    file.write_text(RECIPE + changes)
    return load_experiment(str(file), device=device, overrides=overrides)


def names(e: Experiment) -> list[str]:
    return [arm.name for arm in e.arms]


def test_where_nothing_is_rounded_it_is_left_out_and_the_plan_says_so(tmp_path: Path) -> None:
    e = load(tmp_path, RELU2 + TABLES)
    assert names(e) == ["baseline", "relu2"]
    assert e.left_out == (f"tables: {AGAIN.format('baseline')}",)


def test_it_is_an_arm_where_the_record_s_precision_is(tmp_path: Path) -> None:
    everything = ["baseline", "relu2", "tables"]
    assert names(load(tmp_path, RELU2 + TABLES, "cuda")) == everything
    assert names(load(tmp_path, RELU2 + TABLES, **ROUNDED)) == everything
    fp32 = {"precision.mode": "fp32"}
    assert names(load(tmp_path, RELU2 + TABLES, "cuda", **fp32)) == everything[:2]


def test_where_it_is_the_only_question_it_is_refused_with_the_way_to_ask_it(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(
        UserError, match=r"run it with precision\.mode=record: fp32 rounds nowhere"
    ) as refused:
        load(tmp_path, TABLES)
    kept_line(str(refused.value))
    assert names(load(tmp_path, TABLES, **ROUNDED)) == ["baseline", "tables"]


def test_what_does_more_than_round_stays_an_arm_as_it_is(tmp_path: Path) -> None:
    both = "  both: {model.rope_table_dtype: bf16, optim.muon_lr: x2}\n"
    other = "  other: {model.rope_table_dtype: bf16, environment: {python: /bin/python}}\n"
    e = load(tmp_path, both + other)
    assert names(e) == ["baseline", "both", "other"]
    assert e.arms[1].config.model.rope_table_dtype == "bf16"


@pytest.mark.parametrize("turned", [False, True])
def test_of_listed_arms_that_are_alike_the_first_stays_and_the_other_is_named(
    turned: bool, tmp_path: Path
) -> None:
    arms = ["[relu2]", "[relu2, tables]"]
    listed = f"design: explicit\narms: [{', '.join(reversed(arms) if turned else arms)}]\n"
    e = load(tmp_path, RELU2 + TABLES + listed)
    kept, left = ["relu2", "relu2 + tables"][:: -1 if turned else 1]
    assert names(e) == ["baseline", kept]
    assert e.left_out == (f"{left}: {AGAIN.format(kept)}",)


def test_a_change_of_the_precision_makes_it_an_arm_in_its_company(tmp_path: Path) -> None:
    rounded = "  rounded: {precision.mode: record}\n"
    e = load(tmp_path, rounded + TABLES + "design: factorial\n")
    assert names(e) == ["baseline", "rounded", "rounded + tables"]
    assert e.left_out == (f"tables: {AGAIN.format('baseline')}",)


def test_a_chain_goes_on_from_the_arm_that_is_there(tmp_path: Path) -> None:
    later = "  qk_norm: r05.qk_norm\n"
    e = load(tmp_path, RELU2 + TABLES + later + "design: chain\n")
    assert names(e) == ["baseline", "+relu2", "+qk_norm"]
    assert e.parents == {"+relu2": "baseline", "+qk_norm": "+relu2"}
    assert e.arms[2].config.model.rope_table_dtype == "bf16"


def test_beside_what_needs_a_gpu_each_has_its_reason(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    kernel = "  cudnn: r08.cudnn_attention\ngpu_only: [cudnn]\n"
    with pytest.raises(UserError, match="arm 'tables' is the baseline on this machine") as refused:
        load(tmp_path, TABLES + kernel)
    kept_line(str(refused.value))
    e = load(tmp_path, RELU2 + TABLES + kernel)
    assert e.left_out == (
        "cudnn: needs CUDA, which this machine lacks",
        f"tables: {AGAIN.format('baseline')}",
    )
