"""Every record's preset bit for bit: `python -m tests.bits > FILE`, before a change of the core and after it; `diff` shows nothing.

A line for each preset and precision: a digest of the losses and of all weights after three updates. Bits depend on the processor, so
none are kept.
"""

import hashlib

import torch

from tests.small_presets import PRESETS, batch, core, small

UPDATES = 3


def digest(record: str, mode: str) -> str:
    """Of the losses and weights of a small preset in precision mode "record" or "fp32"."""
    trained = core(small(record, mode))
    lines = hashlib.sha256()
    for step in range(UPDATES):
        lines.update(trained.update(step, [batch(step)]).numpy().tobytes())
    for name, p in trained.model.named_parameters():
        lines.update(name.encode() + p.detach().float().numpy().tobytes())
    return lines.hexdigest()[:16]


def main() -> None:
    torch.set_num_threads(1)
    for record in PRESETS:
        for mode in ("record", "fp32"):
            print(record, mode, digest(record, mode), flush=True)


if __name__ == "__main__":
    main()
