"""Where runs may go on a Ray cluster: what each needs, which class of nodes makes a block."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.run.spec import PlannedRun
from harness.runner.executor import ExecutorOptions

KIND = "ray.io/accelerator-type"  # a label that Ray gives nodes with GPUs
NODE = "ray.io/node-id"


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """A node that is alive."""

    name: str
    kind: str  # of its accelerators; "" without any
    gpus: int
    cpus: int


@dataclass(frozen=True, kw_only=True)
class Need:
    """What Ray is asked for, on each node of a run."""

    gpus: int
    cpus: int

    def fits(self, node: RayNode) -> bool:
        return self.room(node) > 0

    def room(self, node: RayNode) -> int:
        """How many such runs a node has room for."""
        by_cpu = node.cpus // self.cpus
        return min(by_cpu, node.gpus // self.gpus) if self.gpus else by_cpu


def need_of(planned: PlannedRun, options: ExecutorOptions, nodes: Iterable[RayNode]) -> Need:
    """A GPU and a CPU for each process; a CPU where they train there; a node where it is timed."""
    per_node = planned.spec.world_size // options.n_nodes
    gpus = per_node if planned.spec.device == "cuda" else 0
    need = Need(gpus=gpus, cpus=per_node)
    wide = [node for node in nodes if need.fits(node)]
    if options.is_alone(planned) and wide:  # on the largest, nothing else has room beside it
        return Need(gpus=max(node.gpus for node in wide), cpus=max(node.cpus for node in wide))
    return need


def kinds_of_blocks(
    runs: Sequence[PlannedRun], needs: Mapping[str, Need], nodes: Sequence[RayNode]
) -> dict[int, str]:
    """Block -> the class of nodes that makes all its runs, in proportion to what each has room for.

    needs: of the runs, by name. Nothing where all nodes that have room are of one class.
    """
    first = {planned.block: needs[planned.spec.run_id] for planned in reversed(runs)}
    kinds: dict[int, str] = {}
    n_given: Counter[str] = Counter()
    for block, need in sorted(first.items()):
        room: Counter[str] = Counter()
        for node in nodes:
            if need.fits(node):
                room[node.kind] += need.room(node)
        if len(room) > 1:
            kind = min(sorted(room), key=lambda kind: (n_given[kind] + 1) / room[kind])
            n_given[kind] += 1
            kinds[block] = kind
    return kinds


def selector(kind: str | None, kept_off: Iterable[str], nodes: Iterable[RayNode]) -> dict[str, str]:
    """What Ray takes as `label_selector`.

    kind: of the nodes; None: any. kept_off: names of nodes that get nothing.
    """
    kept = sorted(kept_off)
    if kind == "":  # a class that has no label: by name
        names = [node.name for node in nodes if not node.kind and node.name not in kept]
        return {NODE: f"in({','.join(names)})"} if names else {}
    chosen = {KIND: kind} if kind else {}
    if kept:
        chosen[NODE] = f"!in({','.join(kept)})"
    return chosen
