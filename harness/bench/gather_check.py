"""Muon's gather of updates, asynchronous against synchronous, on several processes.

Part of harness/bench/gpu_check.py.
"""

import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import harness.optim.exchange
from harness.bench.steps import ratio
from harness.config.run import RunConfig
from harness.optim.muon import Group, Muon
from harness.training.flops import hidden_shapes

PORT = "29517"


@dataclass(frozen=True, kw_only=True)
class GatherFigures:
    """An update's orthogonalisation on so many processes, its gather in both forms."""

    world: int
    async_ms: float  # median
    sync_ms: float
    sync_over_async: float  # median ratio of the times, with its interval
    low: float | None
    high: float | None


def synchronous(gather: Any) -> Any:
    """A gather that waits for itself before anything else is computed."""

    def run(out: torch.Tensor, share: torch.Tensor, async_op: bool) -> Any:
        work = gather(out, share, async_op=async_op)
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
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    muon = Muon(_groups(config, place), config.optim, dtype=dtype)
    forms = {
        "async": harness.optim.exchange.all_gather,
        "sync": synchronous(harness.optim.exchange.all_gather),
    }
    times: dict[str, list[float]] = {name: [] for name in forms}
    for i in range(rounds + 2):
        names = list(forms)
        if i % 2 == 0:
            names.reverse()
        for name in names:
            harness.optim.exchange.all_gather = forms[name]
            dist.barrier()
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            muon.step()
            if device == "cuda":
                torch.cuda.synchronize()
            times[name].append((time.perf_counter() - began) * 1000)
    if rank == 0:
        answers.put(list(zip(times["async"], times["sync"], strict=True))[2:])
    dist.barrier()
    dist.destroy_process_group()


def _groups(config: RunConfig, place: torch.device) -> list[Group]:
    """Hidden matrices with random values and gradients, in groups of one size."""
    by_size: dict[int, list[torch.nn.Parameter]] = {}
    for i, shape in enumerate(hidden_shapes(config)):
        parameter = torch.nn.Parameter(_random(shape, i, place))
        parameter.grad = _random(shape, 1000 + i, place)
        by_size.setdefault(parameter.numel(), []).append(parameter)
    groups: list[Group] = []
    for parameters in by_size.values():
        names = list(map(str, range(len(parameters))))
        groups.append({"params": parameters, "names": names})
    return groups


def _random(shape: tuple[int, ...], seed: int, place: torch.device) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(place)


def gather(config: RunConfig, *, world: int, device: str, rounds: int) -> GatherFigures:
    """Milliseconds of an update's orthogonalisation.

    async_ms, sync_ms, and the synchronous form's time over the other's.
    """
    answers = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(_process, (world, config, device, rounds, answers), nprocs=world, join=False)
    while not context.join(timeout=1):  # raises if a process fails
        pass
    pairs = answers.get()
    compared = ratio(pairs)
    return GatherFigures(
        world=world,
        async_ms=statistics.median(a for a, _ in pairs),
        sync_ms=statistics.median(s for _, s in pairs),
        sync_over_async=compared.ratio,
        low=compared.low,
        high=compared.high,
    )
