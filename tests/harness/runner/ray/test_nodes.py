"""Which Ray cluster a call joins, and what it says where none answers; the cluster is a stand-in."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError

pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

from harness.runner.ray import nodes
from harness.runner.ray.places import RayNode


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The addresses that Ray was asked to join; it finds nothing at any."""
    asked: list[str | None] = []

    def init(address: str | None, **how: Any) -> None:
        asked.append(address)
        assert how == {"logging_level": "ERROR", "log_to_driver": False}, "its own words are few"
        raise ConnectionError("Could not find any running Ray instance.\nPlease start one.\n")

    fake = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr(nodes, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "to be put back")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    return asked


def test_ray_which_would_try_for_minutes_is_not_asked_to_join_where_nobody_answers(
    joined: list[str | None],
) -> None:
    with pytest.raises(UserError, match=r"^--address 127.0.0.1:1: no Ray cluster answers \("):
        nodes.connect("127.0.0.1:1")
    assert joined == []


def test_what_ray_says_of_a_cluster_that_it_does_not_find_is_told_in_one_line(
    joined: list[str | None],
) -> None:
    with pytest.raises(UserError) as refused:
        nodes.connect(None)
    said = "auto: no Ray cluster answers (Could not find any running Ray instance.): start one with"
    cure = "or leave --address out to use this machine alone"
    assert str(refused.value) == f"--address {said} `ray start --head`, {cure}"
    assert joined == [None]
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize(
    ("address", "at"),
    [
        ("10.0.0.1:6379", ("10.0.0.1", 6379)),
        ("[::1]:6379", ("::1", 6379)),
        *[(other, None) for other in ("ray://10.0.0.1:10001", "auto", ":6379", "10.0.0.1:x")],
    ],
)
@pytest.mark.parametrize("in_environment", [False, True])
def test_whoever_is_at_an_address_with_a_port_is_asked_before_ray_joins(
    joined: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    at: tuple[str, int] | None,
    in_environment: bool,
) -> None:
    asked: list[Any] = []

    def connection(at: tuple[str, int], timeout: float) -> Any:
        asked.append((at, timeout))
        return SimpleNamespace(close=lambda: asked.append("closed"))

    monkeypatch.setattr(nodes.socket, "create_connection", connection)
    if in_environment:
        monkeypatch.setenv("RAY_ADDRESS", address)
    given = None if in_environment else address
    with pytest.raises(UserError):
        nodes.connect(given)
    assert asked == ([] if at is None else [(at, nodes.ANSWER_S), "closed"])
    assert joined == [given]


def test_who_lets_ray_count_its_use_is_not_contradicted(
    joined: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with pytest.raises(UserError):
        nodes.connect(None)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"


def test_the_nodes_that_live_are_in_the_order_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = [
        {"Alive": True, "NodeID": "d", "Resources": {}},
        {"Alive": True, "NodeID": "b", "Resources": {"CPU": 8.0}},
        {"Alive": False, "NodeID": "c", "Resources": {"GPU": 8.0, "CPU": 8.0}},
        {
            **{"Alive": True, "NodeID": "a", "Resources": {"GPU": 2.0, "CPU": 16.0}},
            "Labels": {nodes.KIND: "H100"},
        },
    ]
    asked: list[Any] = []
    fake = SimpleNamespace(nodes=lambda: told, is_initialized=lambda: True, init=asked.append)
    monkeypatch.setattr(nodes, "ray", fake)
    assert nodes.nodes_alive() == [
        RayNode(name="a", kind="H100", gpus=2, cpus=16),
        RayNode(name="b", kind="", gpus=0, cpus=8),
        RayNode(name="d", kind="", gpus=0, cpus=0),
    ]
    assert nodes.device_of_nodes(None) == "cuda"
    told.pop()
    assert nodes.device_of_nodes(None) == "cpu", "a node that is gone has none"
    nodes.connect("10.0.0.1:1")
    assert asked == [], "a cluster is joined once"
