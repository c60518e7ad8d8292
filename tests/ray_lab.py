"""A real Ray cluster of several nodes on this machine."""

from typing import Any

import psutil


class RayCluster:
    """A head without devices, and nodes that can be added and killed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, *, gpus: int = 0, cpus: int = 2, kind: str = "") -> Any:
        labels = {"ray.io/accelerator-type": kind} if kind else {}
        return self.cluster.add_node(num_cpus=cpus, num_gpus=gpus, labels=labels)

    def kill(self, node: Any) -> None:
        self.cluster.remove_node(node, allow_graceful=False)


def on(cluster: RayCluster, *options: str) -> tuple[str, ...]:
    return ("--executor", "ray", "--address", cluster.address, *options)


def ray_worker_of(trainer: int) -> int:
    """Ray's process that has a trainer's."""
    for parent in psutil.Process(trainer).parents():
        if "ray::" in "".join(parent.cmdline()):
            return int(parent.pid)
    raise AssertionError("no process of Ray's")


def node_of(process: int, nodes: list[Any]) -> Any:
    """The node among these whose raylet has a process."""
    raylets = {p.pid for p in psutil.Process(process).parents() if p.name() == "raylet"}
    for node in nodes:
        if {p.process.pid for p in node.all_processes["raylet"]} & raylets:
            return node
    raise AssertionError("no node has it")
