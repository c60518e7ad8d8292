"""An H100 that is not there: what PyTorch's compiler asks of one, answered from its data sheet.

Only for a process that lowers networks and runs nothing (harness/bench/lowering.py): what is
changed here stays changed. Tracing is served by harness/bench/stand_in.cpp, preloaded.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
import torch._inductor.fx_passes.fuse_attention
import torch._inductor.fx_passes.misc_patterns
import torch._inductor.fx_passes.pad_mm
import torch._inductor.runtime.triton_helpers
import triton
from torch._dynamo.device_interface import CudaInterface
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

CAPABILITY, WARP = 90, 32
SHARED_BYTES = 227 * 1024  # of shared memory that a block may ask for
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    total_memory=80 * 2**30,
    L2_cache_size=50 * 2**20,
    multi_processor_count=132,
    regs_per_multiprocessor=2**16,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=WARP,
    shared_memory_per_block=48 * 1024,
    shared_memory_per_block_optin=SHARED_BYTES,
    shared_memory_per_multiprocessor=228 * 1024,
    memory_bus_width=5120,
    memory_clock_rate=2_619_000,
    clock_rate=1_755_000,
    is_integrated=0,
    is_multi_gpu_board=0,
    gcnArchName="",
    uuid="none",
)
COMMON = {  # what torch.cuda and the compiler's view of it both answer
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_properties": H100,
    "is_bf16_supported": True,
    "synchronize": None,
}
OF_TORCH = {
    "_is_compiled": True,
    "_lazy_init": None,
    "_exchange_device": 0,
    "_maybe_exchange_device": 0,
    "is_initialized": False,
    "get_device_name": H100.name,
    "get_device_capability": (H100.major, H100.minor),
    "get_rng_state": torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": None,
}
OF_COMPILER = {
    "exchange_device": 0,
    "maybe_exchange_device": 0,
    "get_compute_capability": CAPABILITY,
    "get_raw_stream": 0,
    "is_triton_capable": True,
    "raise_if_triton_unavailable": None,
}

WOULD_RUN = (  # passes that would run something on the card in order to choose
    (torch._inductor.fx_passes.fuse_attention, "_sfdp_init"),
    (torch._inductor.fx_passes.misc_patterns, "_misc_patterns_init"),
    (torch._inductor.fx_passes.pad_mm, "_pad_mm_init"),
    (torch._inductor.runtime.triton_helpers, "set_driver_to_gpu"),
)


class NoDriver(DriverBase):
    """What triton asks of a driver to make code for the card, and nothing that would run it."""

    def __init__(self) -> None:
        pass

    @staticmethod
    def is_active() -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", CAPABILITY, WARP)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        raise AssertionError("nothing can be timed on a card that is not there")


def always(value: Any) -> Callable[..., Any]:
    """A function that answers this, whatever it is asked."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def an_h100() -> None:
    """Let this process see one H100."""
    for name, value in (COMMON | OF_TORCH).items():
        setattr(torch.cuda, name, always(value))
    for name in ("_lazy_init", "get_rng_state", "set_rng_state"):
        setattr(torch.cuda.random, name, getattr(torch.cuda, name))
    torch.version.cuda = "13.0"
    torch.backends.cuda.is_built = always(True)
    for name, value in (COMMON | OF_COMPILER).items():
        setattr(CudaInterface, name, staticmethod(always(value)))
    for name in ("get_device_properties", "current_device"):
        setattr(CudaInterface.Worker, name, staticmethod(always(COMMON[name])))
    for passes, name in WOULD_RUN:
        setattr(passes, name, always(None))
    torch._inductor.config.joint_graph_constant_folding = False
    torch._inductor.config.shape_padding = False
    triton.runtime.driver.set_active(NoDriver())
