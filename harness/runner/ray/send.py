"""A run's tasks as they are given to Ray: one, or one for each node of the run."""

from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from harness.runner.ray.places import Need
from harness.runner.ray.task import Meeting, RayOrder, run_order

LOST_AGAIN = 3  # so many times a run is started again whose node or process was lost


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A run's tasks, as Ray's references; what only several nodes need is given back after them."""

    first: Any  # the first node's, which tells how the run ended
    further: tuple[Any, ...] = ()
    group: Any = None  # of the nodes that Ray holds for it
    meeting: Any = None

    def release(self) -> None:
        if self.group is not None:
            remove_placement_group(self.group)
        if self.meeting is not None:
            ray.kill(self.meeting)


def send(order: RayOrder, need: Need, labels: dict[str, str], name: str) -> Sent:
    """Give a run to Ray.

    need: on each of its nodes. labels: that these must have. name: that Ray shows.
    """
    asked = {"num_cpus": need.cpus, "num_gpus": need.gpus, "name": name}
    run = ray.remote(run_order)
    if order.n_nodes == 1:
        again = run.options(**asked, max_retries=LOST_AGAIN, label_selector=labels or None)
        return Sent(first=again.remote(order))
    meeting = ray.remote(Meeting).options(num_cpus=0).remote()
    group = _held_nodes(need, order.n_nodes, labels)
    tasks = []
    for node in range(order.n_nodes):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        task = run.options(**asked, max_retries=0, scheduling_strategy=place)
        tasks.append(task.remote(replace(order, node=node), meeting))
    return Sent(first=tasks[0], further=tuple(tasks[1:]), group=group, meeting=meeting)


def _held_nodes(need: Need, n_nodes: int, labels: dict[str, str]) -> Any:
    """Room for every node of a run, held at once, near one another where that can be."""
    bundle = {"CPU": float(need.cpus)}
    if need.gpus:
        bundle["GPU"] = float(need.gpus)
    selectors = [labels] * n_nodes if labels else None
    return placement_group([bundle] * n_nodes, "PACK", bundle_label_selector=selectors)
