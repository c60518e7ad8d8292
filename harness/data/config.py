"""The data's configuration: which tokens, in which order, in what portions.

Standard library only, as harness/config/run.py.
"""

from dataclasses import dataclass
from typing import Literal

from harness.model.config import toggle


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    corpus: str = toggle(
        "stdlib",
        record="r02",
        affects=("data", "validation", "loss"),
        doc="name of a prepared corpus",
    )
    batch_tokens: int = toggle(
        524288,
        record="r02",
        affects=("data", "loss"),
        doc="tokens per update over all ranks",
        ge=1,
        le=2**34,
        unit="tokens",
    )
    seq_len: int = toggle(
        1024,
        record="r02",
        affects=("data", "mask", "validation", "loss"),
        doc="tokens of one sequence",
        choices={65536: "r12"},
        ge=2,
        le=2**24,
        unit="tokens",
    )
    micro_tokens: int = toggle(
        65536,
        record="r02",
        affects=("data", "validation", "loss"),
        doc="tokens of one forward pass",
        ge=2,
        le=2**28,
        unit="tokens",
    )
    ranks: int = toggle(
        8,
        record="r02",
        affects=("data", "loss"),
        doc="ranks of the record, simulated by any number of processes",
        ge=1,
        le=1024,
    )
    loader: Literal["per_rank", "global"] = toggle(
        "per_rank",
        record="r02",
        affects=("data", "loss"),
        choices={"global": "r18"},
        doc="a position per rank, its offset included, or one for all ranks",
    )
    shard_switch: Literal["exceeds", "reaches", "reaches_with_target"] = toggle(
        "exceeds",
        record="r02",
        affects=("data", "loss"),
        choices={"exceeds": "r02", "reaches": "r12", "reaches_with_target": "r15"},
        doc="next shard when pos+G+1 > S, pos+G >= S, or pos+G+1 >= S; G tokens per round, S "
        "tokens in the shard",
    )
    first_batch_twice: bool = toggle(
        False,
        record="r04",
        affects=("data", "loss"),
        doc="the loader is reset after its first batch, which is trained twice",
        requires={True: {"data.loader": ("per_rank",)}},
    )
    order: Literal["sequential", "shuffled"] = toggle(
        "sequential",
        record="r02",
        affects=("data", "loss"),
        doc="tokens as they lie in the shards (the seed changes nothing), or sequences shuffled "
        "by seed",
        choices={"sequential": "r02"},
    )
    alignment: Literal["document_start", "packed"] | None = toggle(
        None,
        record="r26",
        affects=("data", "loss"),
        choices={"document_start": "r26", "packed": "r29"},
        doc="every pass begins with a document; document_start: and reads on, packed: it holds "
        "whole ones, of which the last is cut; what is left over is never seen",
        requires={
            "*": {
                "model.attn_mask": ("document",),
                "data.loader": ("global",),
                "data.order": ("sequential",),
            }
        },
    )
    max_doc_len: tuple[int, ...] = toggle(
        (),
        record="r29",
        affects=("data", "loss"),
        example=(64,),
        doc="tokens of a document that are read at most, one number or one for each stage; [2048] "
        "in record 29, [896, 2048, 2048] in record 74",
        unit="tokens",
        requires={"*": {"data.alignment": ("packed",)}},
    )
    val_tokens: int = toggle(
        10_485_760,
        record="r02",
        affects=("validation",),
        doc="validation tokens: the first of the set",
        ge=1,
        unit="tokens",
    )
    val_seq_len: int | None = toggle(
        None,
        record="r21",
        affects=("validation",),
        choices={262144: "r21"},
        example=512,
        doc="tokens of a validation's sequence, one to a pass; null: both as in training",
        ge=2,
        le=2**24,
        unit="tokens",
    )
    val_every: int = toggle(
        128,
        record="r02",
        affects=("validation",),
        doc="updates between validations",
        choices={125: "r04"},
        ge=1,
    )
    input_dtype: Literal["int64", "int32"] = toggle(
        "int64",
        record="r02",
        affects=("data", "validation"),
        doc="dtype of the input ids on the device",
        choices={"int32": "r15"},
    )
    pinned: bool = toggle(
        False,
        record="r15",
        affects=("data",),
        doc="batches through pinned memory, copied asynchronously (CUDA)",
    )
    heldout: str | None = toggle(
        None,
        record="r02",
        affects=("validation",),
        example="other",
        doc="a corpus whose held-out text (or else validation text) the last weights are "
        "validated on too, beside val_loss",
    )
    cache: Literal["none", "local"] = toggle(
        "none",
        record="r02",
        affects=("runtime",),
        doc="read the shards from the node's own disk, copied there once per node ($ABLATE_CACHE)",
    )

    @property
    def val_portion(self) -> tuple[int, int]:
        """Tokens of a validation's forward pass, and of a sequence in it."""
        if self.val_seq_len is not None:
            return self.val_seq_len, self.val_seq_len
        return self.micro_tokens, self.seq_len
