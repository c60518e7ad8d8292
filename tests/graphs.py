"""A compiler backend of the tests: what torch.compile makes of a function, counted and run as it is."""

from typing import Any

import torch


class Graphs:
    """Runs a graph as it is, counts the graphs and names what they call."""

    def __init__(self) -> None:
        self.n = 0
        self.calls: set[str] = set()

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.n += 1
        for node in graph.graph.nodes:
            if node.op.startswith("call"):
                self.calls.add(getattr(node.target, "__name__", str(node.target)))
        return graph.forward
