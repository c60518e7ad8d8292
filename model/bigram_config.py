"""The embedding of pairs of tokens."""

from dataclasses import dataclass
from typing import Literal

from .toggle import ON, toggle

HASHED = {"*": {"model.bigram_hash": ON}}


@dataclass(frozen=True, kw_only=True)
class BigramConfig:
    """What the pair of a token and the one before it adds to the stream: a part of ModelConfig."""

    bigram_hash: int | None = toggle(
        None,
        record="r62",
        affects=("parameters", "groups", "loss"),
        choices={251520: "r62", 754560: "r83"},
        example=97,
        doc=(
            "rows of a table in which a hash of each token and the one before it finds a row, init"
            " 0; every block's stream has it added times b, learned for each"
        ),
        ge=2,
        le=2**31 - 1,
        unit="rows",
    )
    bigram_width: int | None = toggle(
        None,
        record="r83",
        affects=("parameters", "loss"),
        choices={192: "r83"},
        example=24,
        doc="columns of that table, added to the first channels; null: d_model",
        requires=HASHED,
        ge=1,
        unit="channels",
    )
    bigram_scale_init: float = toggle(
        0.1,
        record="r62",
        affects=("initial", "loss"),
        choices={0.1: "r62", 0.05: "r73"},
        doc="initial b",
        requires=HASHED,
        gt=0,
        le=100,
    )
    bigram_inject: Literal["before_block", "after_attention"] = toggle(
        "before_block",
        record="r62",
        affects=("parameters", "loss"),
        choices={"before_block": "r62", "after_attention": "r73"},
        doc=(
            "added before every block; or behind the attention of each that has one, and the first"
            " block's to the embedding"
        ),
        requires=HASHED,
    )
    bigram_in_x0: bool = toggle(
        False,
        record="r83",
        doc="the embedding that later blocks mix in has the first block's share in it",
        requires={
            "*": {
                "model.bigram_inject": ("after_attention",),
                "model.x0_mix": (True,),
            }
        },
    )
    bigram_first: Literal["last_row", "token"] = toggle(
        "last_row",
        record="r62",
        choices={"last_row": "r62", "token": "r68"},
        doc=(
            "what the second token of a sequence has before it: the number of the table's last row,"
            " which is the first token's row, or the first token itself"
        ),
        requires=HASHED,
    )
    bigram_sign: int | None = toggle(
        None,
        record="r83",
        affects=("buffers", "loss"),
        choices={8192: "r83"},
        example=16,
        doc=(
            "rows of fixed random signs, chosen by the same two tokens, that the row of the table"
            " is multiplied by"
        ),
        requires=HASHED,
        ge=1,
        le=2**31 - 1,
        unit="rows",
    )
