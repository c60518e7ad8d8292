"""Where a run rounds.

One row per dtype policy (ladder: r02 autocast, r10 bf16 model, r18 bf16 embeddings).

Autocast is written out as casts: matrix products in bf16, while norms and squares of their results
are lifted to fp32, as the library's autocast does. So the chain is explicit, and the same under
every version of PyTorch.
"""

from dataclasses import dataclass

import torch

BF16, FP32 = torch.bfloat16, torch.float32


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    matmul: torch.dtype  # inputs and outputs of every linear layer and of attention
    table: torch.dtype  # storage of token and value tables, hence of the residual stream
    scalar: torch.dtype  # storage of mixing scalars
    # linear weights are stored in fp32 after rounding their initial values to this
    linear_init: torch.dtype
    lifted: torch.dtype | None  # dtype of norms and squares of a product; None: that of their input
    rounds: (
        bool  # whether rotary frequencies and tables are rounded to the dtype their toggle names
    )


POLICIES = {
    "autocast": Dtypes(
        matmul=BF16, table=FP32, scalar=FP32, linear_init=FP32, lifted=FP32, rounds=True
    ),
    "bf16_model": Dtypes(
        matmul=BF16, table=BF16, scalar=BF16, linear_init=BF16, lifted=None, rounds=True
    ),
    "bf16_embeds": Dtypes(
        matmul=BF16, table=BF16, scalar=FP32, linear_init=FP32, lifted=None, rounds=True
    ),
}
PLAIN = Dtypes(matmul=FP32, table=FP32, scalar=FP32, linear_init=FP32, lifted=None, rounds=False)


def dtypes(mode: str, policy: str) -> Dtypes:
    """The row of a policy in mode "record"; in mode "fp32" every cast is a no-op."""
    return PLAIN if mode == "fp32" else POLICIES[policy]
