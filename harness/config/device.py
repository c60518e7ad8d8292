"""What a device cannot do is replaced by what computes the same there, and noted as substituted."""

from harness.config.run import NewValues, RunConfig, with_fields
from harness.errors import UserError

# without CUDA: the equivalent kernel
SUBSTITUTES = {
    "cudnn": "sdpa",
    "flash": "sdpa",
    "flex": "dense",
}


def for_device(
    config: RunConfig, device: str, asked: frozenset[str]
) -> tuple[RunConfig, tuple[str, ...]]:
    """The configuration as it runs on "cpu" or "cuda", and what was substituted, in words.

    `asked`: dotted fields that the user set; a kernel among them is never substituted but refused.
    """
    changes: NewValues = {}
    notes = []
    if config.model.fp8_head:
        notes.append("model.fp8_head by float8 casts around a product in fp32")
    if device != "cpu":
        return config, tuple(notes)
    kernel = config.model.attn_kernel
    if kernel in SUBSTITUTES:
        if "model.attn_kernel" in asked:
            raise UserError(
                f"model.attn_kernel={kernel} needs CUDA, which this machine lacks: use "
                f"{SUBSTITUTES[kernel]}, or run it on a GPU"
            )
        changes["model.attn_kernel"] = SUBSTITUTES[kernel]
        changes["model.block_mask"] = "traced"
        notes.append(f"model.attn_kernel={kernel} by {SUBSTITUTES[kernel]} (no CUDA)")
    if "precision.mode" not in asked and config.precision.mode == "record":
        changes["precision.mode"] = "fp32"
        notes.append("precision.mode=record by fp32 (CPU)")
    return with_fields(config, changes), tuple(notes)
