"""The Ray cluster that a call joins, and its nodes."""

import os
import socket

import ray

from harness.errors import UserError
from harness.runner.ray.places import KIND, RayNode

ANSWER_S = 10.0  # that a cluster may take to accept a connection


def connect(address: str | None) -> None:
    """Join a Ray cluster, once.

    address: as ray.init takes it; None: RAY_ADDRESS, the cluster of this machine, else one that is
    started for this call. Raises UserError.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _ask(address or os.environ.get("RAY_ADDRESS", ""))
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()[0]
        raise UserError(
            f"--address {address or 'auto'}: no Ray cluster answers ({said}): start one with "
            "`ray start --head`, or leave --address out to use this machine alone"
        ) from None


def _ask(address: str) -> None:
    """Raises OSError where nobody answers at HOST:PORT, which Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()


def nodes_alive() -> list[RayNode]:
    """The cluster's nodes, in the order of their names."""
    nodes = []
    for node in ray.nodes():
        if node["Alive"]:
            has, labels = node["Resources"], node.get("Labels", {})
            nodes.append(
                RayNode(
                    name=node["NodeID"],
                    kind=labels.get(KIND, ""),
                    gpus=int(has.get("GPU", 0)),
                    cpus=int(has.get("CPU", 0)),
                )
            )
    return sorted(nodes, key=lambda node: node.name)


def device_of_nodes(address: str | None) -> str:
    """cuda where a node of the cluster has a GPU, else cpu."""
    connect(address)
    return "cuda" if any(node.gpus for node in nodes_alive()) else "cpu"
