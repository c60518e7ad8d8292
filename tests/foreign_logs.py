"""Logs as each era of the public benchmark printed them, with known numbers, for the tests of the import."""

import random
from pathlib import Path

from harness.foreign.log_lines import LogError
from harness.foreign.log_runs import read_logs
from harness.foreign.logs import Reading

CODE = '''import os
import sys
with open(sys.argv[0]) as f:
    code = f.read() # read the code of this file ASAP, for logging
"""
A sample of the output:
step:0/%(steps)d val_loss:1.0000 train_time:1ms step_avg:1.00ms
step:%(steps)d/%(steps)d val_loss:0.5000 train_time:1ms step_avg:1.00ms
s:128 tel:0.1234
====================================================================================================
"""
import torch
from torch import nn

class Muon(torch.optim.Optimizer):
    pass

for step in range(%(steps)d + 1):
    print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f} train_time:{training_time_ms:.0f}ms", console=True)
TEXT = """
step:3/%(steps)d val_loss:0.9000 train_time:7ms step_avg:1.00ms
"""
print0(f"peak memory allocated: {torch.cuda.max_memory_allocated() // 1024 // 1024} MiB", console=True)
'''
LINE = "=" * 100
SMI = """Tue Nov 12 03:22:58 2024
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.127.05             Driver Version: 550.127.05     CUDA Version: 12.6     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   28C    P0             98W /  700W |       7MiB /  81559MiB |      0%      Default |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:2A:00.0 Off |                    0 |
+-----------------------------------------------------------------------------------------+"""


def curve(steps: int, every: int, final: float) -> list[tuple[int, float]]:
    """(step, loss) of every validation, the last one `final`."""
    return [
        (s, final + (10.9 - final) * (1 - s / steps) ** 2) for s in [*range(0, steps, every), steps]
    ]


def late_2024(final: float, *, steps: int = 250, ms: float = 200.0, seed: int = 0) -> str:
    """Records 3 to 11: ==== before the code, ten untimed steps, training losses, one total of memory."""
    lines = [
        LINE,
        CODE % {"steps": steps},
        LINE,
        "Running pytorch 2.6.0.dev20241107+cu124 compiled for CUDA 12.4",
        "nvidia-smi:",
        SMI,
        LINE,
    ]
    jitter = random.Random(seed).uniform(0.999, 1.001)
    vals, clock = (
        dict(curve(steps, 125, final)),
        lambda s: (s - 10) * ms * jitter if s >= 10 else s * 2 * ms,
    )
    for step in range(steps + 1):
        average = f"{clock(step) / (step - 10):.2f}" if step > 10 else "nan"
        if step in vals:
            lines.append(
                f"step:{step}/{steps} val_loss:{vals[step]:.4f} train_time:{clock(step):.0f}ms step_avg:{average}ms"
            )
        if step < steps:
            average = f"{clock(step + 1) / (step + 1 - 10):.2f}" if step + 1 > 10 else "nan"
            lines.append(
                f"step:{step + 1}/{steps} train_loss:{5.0:.4f} train_time:{clock(step + 1):.0f}ms step_avg:{average}ms"
            )
    return "\n".join([*lines, "peak memory consumption: 31563 MiB", ""])


def year_2025(final: float, *, steps: int = 250, ms: float = 150.0, seed: int = 0) -> str:
    """Records 12 and later: the code comes first, versions of Python and torch, no training losses, two numbers of memory."""
    head = [
        "Running Python 3.12.7 (main, Oct  1 2024) [GCC 13.2.0]",
        "Running PyTorch 2.7.0.dev20250125+cu126 compiled for CUDA 12.6",
        SMI,
    ]
    lines = [CODE % {"steps": steps}, LINE, *head, LINE]
    jitter = random.Random(seed).uniform(0.999, 1.001)
    for step, loss in curve(steps, 125, final):
        time = step * ms * jitter
        if step:
            lines.append(
                f"step:{step}/{steps} train_time:{time:.0f}ms step_avg:{time / step:.2f}ms"
            )
        lines.append(
            f"step:{step}/{steps} val_loss:{loss:.4f} train_time:{time:.0f}ms step_avg:{time / max(step, 1):.2f}ms"
        )
    return "\n".join([*lines, "peak memory allocated: 31361 MiB reserved: 36734 MiB", ""])


def first_records(final: float, *, steps: int = 512) -> str:
    """Records 1 and 2: no code, no times; every training loss, and a validation every 128 steps."""
    vals, lines = dict(curve(steps, 128, final)), []
    for step in range(steps + 1):
        if step in vals:
            lines.append(f"s:{step} tel:{vals[step]:.4f}")
        if step < steps:
            lines.append(f"s:{step} trl:{6.1:.4f}")
    return "\n".join([*lines, ""])


ERAS = {"late_2024": late_2024, "year_2025": year_2025, "first_records": first_records}


def read_log(path: Path) -> tuple[Reading, str | None]:
    """The one run of a file, with the digest of its code; raises LogError for several."""
    runs = read_logs(path)
    if len(runs) > 1:
        raise LogError(f"it holds {len(runs)} whole runs: two runs in one file?")
    return runs[0].reading, runs[0].code
