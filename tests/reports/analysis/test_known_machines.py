"""What is known of the machines, nodes and sessions of runs, and the blocks that they cut: small tables by hand."""

from typing import Any

import pandas as pd
import pytest

from reports.analysis.machines import (
    cut_by_node,
    differs_in_a_block,
    environment_change,
    environment_of,
    is_cut,
    is_sticky,
    known_values,
    nodes_unknown,
    on_several_nodes,
    same_machine,
    within_sessions,
)

NAN = float("nan")


def table(column: str, base: list[Any], arm: list[Any], **more: Any) -> pd.DataFrame:
    """Finished runs of two arms in blocks 0, 1, 2 ..., with their values of a column."""
    rows: list[dict[str, Any]] = []
    for name, values in (("base", base), ("arm", arm)):
        for block, value in enumerate(values):
            rows.append({"arm": name, "block": block, "status": "finished", column: value} | more)
    return pd.DataFrame(rows)


def test_what_is_known_of_an_arm_is_each_value_once_in_the_order_of_its_runs() -> None:
    runs = table("node", ["b", None, "a", "", "b", NAN, "unknown", "None"], [None])
    assert known_values(runs, "base", "node") == ("b", "a")
    assert known_values(runs, "arm", "node") == known_values(runs, "base", "gpu") == ()
    assert not nodes_unknown(runs, "base") and nodes_unknown(runs, "base", "arm")
    versions = runs.assign(driver="550", torch=runs["node"])
    assert environment_of(versions, "base") == {"driver": "550", "cuda": "", "torch": "a/b"}


@pytest.mark.parametrize("column", ["device", "gpu", "n_gpus", "gpu_memory_gb"])
def test_machines_are_the_same_where_nothing_known_differs(column: str) -> None:
    runs = table(column, ["x", None], ["x", "y"])
    assert same_machine(runs, ["base"]) and not same_machine(runs, ["base", "arm"])
    assert same_machine(table(column, ["x", None], ["x"]), ["base", "arm"])
    assert not same_machine(table(column, ["x"], ["y"]), ["base", "arm"])
    assert same_machine(table(column, ["unknown"], [None]), ["base", "arm"])
    assert same_machine(table("other", ["x"], ["y"]), ["base", "arm"])


def test_a_column_differs_in_a_block_where_two_known_values_meet_there() -> None:
    both = ["base", "arm"]
    assert differs_in_a_block(table("driver", ["1", "2"], ["1", "3"]), both, "driver")
    assert not differs_in_a_block(table("driver", ["1", "2"], ["1", "2"]), both, "driver")
    assert not differs_in_a_block(table("driver", ["1", "2"], ["1", None]), both, "driver")
    assert not differs_in_a_block(table("driver", ["1", "2"], ["1", "3"]), ["arm"], "driver")
    assert not differs_in_a_block(table("driver", ["1"], ["2"], block=None), both, "driver")
    assert not differs_in_a_block(table("driver", ["1"], ["2"]), both, "trunk_s")


def test_an_environment_is_told_by_what_is_known_of_both() -> None:
    usual = {"driver": "550", "cuda": "12", "torch": "2.9"}
    assert environment_change(usual, usual) is None
    assert environment_change({}, usual) is environment_change(usual | {"cuda": ""}, usual) is None
    assert environment_change(usual | {"cuda": "13", "torch": "2.8"}, usual) == (
        "CUDA 13 instead of 12, torch 2.8 instead of 2.9"
    )


def test_a_block_that_several_known_nodes_made_is_one_for_each_of_them() -> None:
    nodes = table("node", ["a", "a", "a", "a", "a"], ["a", "b", "unknown", None, NAN])
    cut = cut_by_node(nodes)
    assert cut["block"].tolist() == [0, "1 on a", 2, 3, 4, 0, "1 on b", 2, 3, 4]
    assert is_cut(cut)
    for whole in (table("node", ["a", "b"], ["a", "b"]), table("node", ["a"], ["b"], block=None)):
        assert cut_by_node(whole) is whole and not is_cut(whole)


def test_times_of_several_sessions_are_those_with_a_partner_in_theirs() -> None:
    runs = table("session", ["s", "s", "t", "s"], ["s", "t", "t", "s"])
    for ended in ("failed", "timeout"):
        runs.loc[7, "status"] = ended
        told = within_sessions(runs)
        assert [*zip(told["arm"], told["block"], strict=True)] == [
            *(("base", 0), ("base", 2), ("arm", 0), ("arm", 2))
        ]
    of_three = within_sessions(runs.assign(session=[*"stuvstuv"]).drop(index=[1]))
    assert of_three["block"].tolist() == [0, 2, 0, 2]
    of_none = within_sessions(runs.assign(session=runs["session"].where(runs["block"] != 2, None)))
    assert of_none["block"].tolist() == [0, 0]
    twice = pd.concat([runs, runs[:2].assign(session="t"), runs[4:5].assign(session="t")])
    blocks = within_sessions(twice.reset_index(drop=True))["block"].tolist()
    assert blocks == ["0 in s", 2, "0 in s", 1, 2, "0 in t", 1, "0 in t"]
    for one in (runs.drop(columns="session"), runs.assign(session="s"), runs.assign(session=None)):
        assert within_sessions(one) is one


def test_an_arm_is_bound_to_a_node_where_its_runs_are_all_there_and_the_others_elsewhere() -> None:
    for base, arm, several, sticky in (
        (["a", "a"], ["a", "a"], False, False),
        (["a", "b"], ["a", "b"], True, False),
        (["a", "a"], ["a", "b"], True, True),
        (["a", "b"], ["b", "b"], True, True),
        (["a"], ["b"], True, False),
        (["a", None], ["b"], True, True),
        ([None, None], ["b", "b"], False, False),
    ):
        runs = table("node", base, arm)
        assert on_several_nodes(runs, "base", "arm") == several, (base, arm)
        assert is_sticky(runs, "base", "arm") == sticky, (base, arm)
