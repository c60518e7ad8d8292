"""DDP splits the graph that it compiles, whether training or a validation with gradients comes first."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.config.run import with_fields
from tests.fake_matrix import DEADLINE_S
from tests.forkserver import forkserver
from tests.graphs import Graphs
from tests.small_presets import batch, core, small

WORLD = 2
pytestmark = pytest.mark.slow
ORDERS = {"train_first": ("train", "validate"), "validate_first": ("validate", "train")}
WIDE = {"d_model": 128}  # 4.7 MB of matrices: DDP's first bucket is 1 MB


def train(order: tuple[str, ...], made: list[Graphs]) -> dict[str, Any]:
    """How many graphs the network has after each part, and the losses of each."""
    torch._dynamo.reset()
    made.clear()
    config = with_fields(small("r08", **WIDE), {"system.compile": "on"})
    assert config.precision.val_grad
    trained = core(config)
    rank, told = dist.get_rank(), {}
    x, y = batch(rank)
    for part in order:
        if part == "train":
            losses = trained.gradients([(x, y)], trained.set_step(0))
        else:
            losses = trained.evaluate(0, [(x[0], y[0]), (x[0], y[0])])
        told[part] = {"graphs": made[0].n, "losses": losses}
    told["gradients"] = [p.grad for p in trained.parameters]
    return told


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    made: list[Graphs] = []
    compile_it: Any = torch.compile

    def counted(function: Any, **settings: Any) -> Any:
        made.append(Graphs())
        return compile_it(function, backend=made[-1], **settings)

    torch.compile = counted  # type: ignore[assignment]
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    torch.save({name: train(order, made) for name, order in ORDERS.items()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a regular exit


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("graphs")
    context = forkserver()
    processes = [context.Process(target=worker, args=(r, str(folder))) for r in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0] * WORLD
    return [torch.load(folder / f"{r}.pt", weights_only=False) for r in range(WORLD)]


@pytest.mark.parametrize("order", ORDERS)
def test_the_graph_is_split_and_compiled_once(told: Any, order: str) -> None:
    for rank in told:
        first, second = ORDERS[order]
        assert rank[order][first]["graphs"] == 2
        assert rank[order][second]["graphs"] == 2


def test_the_order_changes_no_number(told: Any) -> None:
    for rank in told:
        one, other = (rank[order] for order in ORDERS)
        for part in ("train", "validate"):
            assert torch.equal(one[part]["losses"], other[part]["losses"])
        assert all(map(torch.equal, one["gradients"], other["gradients"]))
