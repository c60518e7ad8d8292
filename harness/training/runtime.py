"""What holds for a whole process: its group, and the settings of PyTorch that a run asks for."""

import os

import torch
import torch.distributed as dist

from harness.config.run import RunConfig
from harness.errors import UserError
from harness.training.core import compiles

# The choice of SDPA's kernel lies in a compiled graph by its name; traced graphs with it are kept
# as others are.
CACHEABLE = ("torch.nn.attention._sdpa_kernel", "torch.nn.attention._backend_from_string")


def join_group(world_size: int, device: str) -> int:
    """This process's rank in a group of world_size.

    The group is joined if it was not yet, by torchrun's environment variables.
    """
    if world_size == 1:
        return 0
    if not dist.is_initialized():
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if dist.get_world_size() != world_size:
        raise UserError(
            f"the run wants {world_size} processes, but its group has {dist.get_world_size()}:"
            " start it with torchrun"
        )
    return dist.get_rank()


def set_allocator(settings: str) -> None:
    """Of memory on the device, as PYTORCH_ALLOC_CONF has them, but for the segments to come."""
    newer = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if newer is None:
        torch.cuda.memory._set_allocator_settings(settings)
    else:
        newer(settings)


def set_runtime(config: RunConfig, device: str, *, seed: int) -> None:
    """Write every process-wide setting for this run.

    Nothing leaks from the run before.
    """
    if compiles(config, device):
        torch._dynamo.reset()
        # torch imports it at this access: slow, and seldom needed
        inductor = torch._inductor.config
        inductor.coordinate_descent_tuning = config.system.coordinate_descent
        inductor.unsafe_marked_cacheable_functions = dict.fromkeys(CACHEABLE, "1")
        torch.compiler.set_stance("default")
    # for a plug-in that draws: the core's own draws are keyed by name and step
    torch.manual_seed(seed)
    if device == "cuda":
        torch.cuda.empty_cache()  # what the run before left cached, in segments of its own kind
        set_allocator(f"expandable_segments:{config.system.expandable_segments}")
        torch.cuda.reset_peak_memory_stats()
        if config.system.cuda_warm_start:
            torch.ones(1, device="cuda", requires_grad=True).backward()
