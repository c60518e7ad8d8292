"""Records' presets at a size that trains in milliseconds, for the tests of the network."""

from typing import Any

import torch
from torch import Tensor

from harness.config.device import for_device
from harness.config.presets import load_scale, names, preset_values, to_config
from harness.config.run import RunConfig, with_fields
from harness.config.validate import check_config
from harness.model.tokens import Tokens
from harness.training.core import Batch, Core

PRESETS = [name for name in names("records") if name <= "r18"]  # those of another depth: LATER
LATER = [name for name in names("records") if name > "r18"]
SEPARATOR, VOCAB, SEQ_LEN = 256, 257, 256
SMALL = {
    "model.n_layer": 6,  # the fewest that record 17's value tables allow
    "model.d_model": 32,
    "model.head_dim": 16,
    "data.seq_len": SEQ_LEN,
    "data.micro_tokens": SEQ_LEN,
    "data.batch_tokens": SEQ_LEN,
    "data.val_tokens": SEQ_LEN,
    "data.val_seq_len": None,
    "data.ranks": 1,
    "schedule.window_tokens": 128,
}
TOKENS = Tokens(vocab_size=VOCAB, separator=SEPARATOR, seq_len=SEQ_LEN)


def small(name: str, mode: str = "record", **values: Any) -> RunConfig:
    """A preset at this size with the kernels of a CPU, in precision mode "record" or "fp32". values: model fields, others as section__field."""
    changed = (
        preset_values(name)[0]
        | SMALL
        | {"precision.mode": mode}
        | {k.replace("__", ".") if "__" in k else f"model.{k}": v for k, v in values.items()}
    )
    config, _ = for_device(to_config(changed), "cpu", frozenset({"precision.mode"}))
    check_config(config)
    return config


def tiny(name: str) -> RunConfig:
    """A preset at the scale tiny, in passes of one rank, with the kernels of a CPU."""
    at = load_scale("tiny", name).apply(preset_values(name)[0])
    tokens = at["data.seq_len"]
    changed = {"data.batch_tokens": tokens, "data.ranks": 1, "data.val_tokens": tokens}
    config, _ = for_device(with_fields(to_config(at), changed), "cpu", frozenset())
    check_config(config)
    return config


def core(config: RunConfig, seed: int = 0, tokens: Tokens = TOKENS) -> Core:
    return Core(config, tokens, seed=seed)


def ids(seed: int, every: int = 40) -> Tensor:
    """Token ids (1, SEQ_LEN), a separator about every so many."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, SEPARATOR, (1, SEQ_LEN), generator=generator)
    return tokens.where(torch.rand(tokens.shape, generator=generator) > 1 / every, SEPARATOR)


def batch(seed: int) -> Batch:
    """One micro-batch, as Core takes it: ids and targets (1, 1, SEQ_LEN)."""
    x = ids(seed)
    return x[None], x.roll(-1, dims=1)[None]


def disturb(model: torch.nn.Module) -> None:
    """Draw every parameter anew, so that no zero hides a path."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
