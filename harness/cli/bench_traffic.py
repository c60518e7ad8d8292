"""`ablate bench PRESET --traffic`: what a change will cost on an H100, before one is rented."""

from dataclasses import asdict

from harness.bench.traffic import BANDWIDTH, MATRIX_RATE, Network, Traffic, traffic
from harness.cli.bench_sides import Asked, side
from harness.cli.table import print_json, print_table
from harness.errors import UserError
from harness.run.document import Content

FIGURES = ("kernel_gb", "kernel_ms", "product_gb", "product_ms", "kernels", "launches", "angles")


def sides(asked: Asked) -> list[tuple[str, Network]]:
    """The networks to lower: a name and what it means; two of a comparison."""
    names = asked.compare or (str(asked.preset),)
    networks = []
    for name in names:
        preset, fields = side(name, asked.preset)
        settings = {**asked.settings, **fields}
        networks.append((name, Network(preset, settings, scale=asked.scale or "gpt2")))
    return networks


def tell(asked: Asked, *, json: bool) -> None:
    """Print the figures of a preset, or of two sides and their difference."""
    bandwidth = BANDWIDTH if asked.bandwidth is None else asked.bandwidth
    if not bandwidth > 0:
        raise UserError(f"--bandwidth {bandwidth:g}: must be above 0, in GB/s")
    lowered = sides(asked)
    measured = traffic([network for _, network in lowered], bandwidth=bandwidth)
    rows: list[Content] = []
    for (name, _), graphs in zip(lowered, measured, strict=True):
        for graph in graphs:
            rows.append({"of": name, **asdict(graph)})
        rows.append({"of": name, "graph": "both", **total(graphs)})
    if asked.compare is not None:
        rows.append({"of": "B - A", "graph": "both", **difference(*map(total, measured))})
    if json:
        print_json({"bandwidth": bandwidth, "matrix_rate": MATRIX_RATE, "graphs": rows})
        return
    print_table(rows, columns=("of", "graph", *FIGURES), digits=2)
    print(
        f"\nOne pass of the network as torch.compile generates it for an H100, at {bandwidth:g}"
        f" GB/s and {MATRIX_RATE / 1e12:g} TFLOP/s: the least time, not a measured one. The"
        " optimizer and the exchange between GPUs are not in it."
    )


def total(graphs: tuple[Traffic, ...]) -> Content:
    """The sums over forward and backward."""
    return {name: sum(getattr(graph, name) for graph in graphs) for name in FIGURES}


def difference(a: Content, b: Content) -> Content:
    return {name: b[name] - a[name] for name in FIGURES}
