"""Muon's gather of updates, asynchronous against synchronous, on several processes.

Part of harness/bench/gpu_check.py.
"""

import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import harness.optim.exchange
from harness.bench.steps import ratio
from harness.config.run import RunConfig
from harness.optim.muon import Muon
from harness.training.flops import hidden_shapes

PORT = "29517"


def synchronous(gather: Any) -> Any:
    """A gather that waits for itself before anything else is computed."""

    def run(out: torch.Tensor, own: torch.Tensor, async_op: bool) -> Any:
        work = gather(out, own, async_op=async_op)
        work.wait()
        return work

    return run


def _process(
    rank: int, world: int, config: RunConfig, device: str, rounds: int, answers: Any
) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT, RANK=str(rank), WORLD_SIZE=str(world)
    )
    place = torch.device(device, rank) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=world)
    by_size: dict[int, list[torch.nn.Parameter]] = {}
    for i, shape in enumerate(hidden_shapes(config)):
        p = torch.nn.Parameter(
            torch.randn(shape, generator=torch.Generator().manual_seed(i)).to(place)
        )
        p.grad = torch.randn(shape, generator=torch.Generator().manual_seed(1000 + i)).to(place)
        by_size.setdefault(p.numel(), []).append(p)
    groups: list[dict[str, Any]] = [
        {"params": ps, "names": [str(i) for i in range(len(ps))]} for ps in by_size.values()
    ]
    muon = Muon(groups, config.optim, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    forms = {
        "async": harness.optim.exchange._all_gather,
        "sync": synchronous(harness.optim.exchange._all_gather),
    }
    times: dict[str, list[float]] = {name: [] for name in forms}
    for i in range(rounds + 2):
        for name in list(forms) if i % 2 else list(forms)[::-1]:
            harness.optim.exchange._all_gather = forms[name]
            dist.barrier()
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            muon.step()
            if device == "cuda":
                torch.cuda.synchronize()
            times[name].append((time.perf_counter() - began) * 1000)
    if rank == 0:
        answers.put([(a, s) for a, s in zip(times["async"], times["sync"], strict=True)][2:])
    dist.barrier()
    dist.destroy_process_group()


def gather(config: RunConfig, *, world: int, device: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of an update's orthogonalisation.

    async_ms, sync_ms, and the synchronous form's time over the other's.
    """
    answers = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(_process, (world, config, device, rounds, answers), nprocs=world, join=False)
    while not context.join(timeout=1):  # raises if a process fails
        pass
    pairs = answers.get()
    found = ratio(pairs)
    return {
        "world": world,
        "async_ms": statistics.median(a for a, _ in pairs),
        "sync_ms": statistics.median(s for _, s in pairs),
        "sync_over_async": found["ratio"],
        "low": found["low"],
        "high": found["high"],
    }
