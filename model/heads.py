"""The attention of a layer: q, k and v, what is mixed into the values, gates of the heads.

B batch, T sequence, C model_dim, N heads, H head_dim.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from .attention import KERNELS, Mask
from .composed import correction
from .config import ModelConfig
from .exclusive import EXCLUDE
from .gates import Gate
from .layers import Linear, RMSNorm
from .layout import gated_layers, table_of_layer
from .paired import by_parity, from_slots, in_slots
from .parameters import parameter
from .precision import BF16, FP32, Dtypes
from .rotary import ROTATIONS, UNTURNED, Rotary, Turns, offset_keys
from .stream import NOTHING
from .values import GATE_INPUTS, ValueMix, add, lerp, pair, remainder_of_pair

STORAGE = {"fp32": FP32, "bf16": BF16}


def make_rotary(c: ModelConfig, dtypes: Dtypes, *, seq_len: int) -> Rotary:
    """The tables of the longest sequence, seq_len tokens, shared by all layers."""
    return Rotary(
        head_dim=c.head_dim,
        base=c.rope_base,
        pairs=c.rope_pairs,
        freq_dtype=STORAGE[c.rope_freq_dtype] if dtypes.rounds else FP32,
        table_dtype=STORAGE[c.rope_table_dtype] if dtypes.rounds else FP32,
        seq_len=2 * seq_len if c.paired_heads else seq_len,
        as_buffers=c.rope_buffers,
        yarn=c.window_yarn,
    )


class Attention(nn.Module):
    def __init__(self, c: ModelConfig, dtypes: Dtypes, *, layer: int) -> None:
        super().__init__()
        has_table, n_heads = table_of_layer(c)[layer] is not None, c.d_model // c.head_dim
        self.head_dim, self.merged = c.head_dim, c.qkv_layout == "merged"

        def linear(part: str, rows: int = c.d_model, init: str = c.qkv_init) -> Linear:
            return Linear(rows, c.d_model, role="hidden", init=init, dtypes=dtypes, part=part)

        is_mimetic = c.out_init == "mimetic"
        if self.merged:
            self.qkv = linear("qkv", 3 * c.d_model)
        else:
            self.q, self.k = linear("q"), linear("k")
            self.v = linear("v", init="mimetic_v" if is_mimetic else c.qkv_init)
        self.out = linear("out", init="mimetic_out" if is_mimetic else c.out_init or c.proj_init)
        self.norm_first = RMSNorm(c.norm_eps, dtypes.lifted) if c.qk_norm == "before_rope" else None
        self.norm_last = RMSNorm(c.norm_eps, dtypes.lifted) if c.qk_norm == "after_rope" else None
        self.rotate, self.paired = ROTATIONS[c.rope_pairing][c.rope_math], layer in c.paired_heads
        if self.paired:
            self.rotate = by_parity(self.rotate)
        offset_by = "halves" if c.key_offset_channels == "quarters" else c.rope_pairing
        self.unturned = UNTURNED[offset_by] if layer in c.key_offset else None
        self.kernel, self.scale = KERNELS[c.attn_kernel], c.attn_scale
        self.head_gate = None
        if c.attn_gate == "sigmoid12" and layer in gated_layers(c):
            self.head_gate = Gate(n_heads, dtypes)
        self.exclude, self.xsa_alpha = EXCLUDE[c.xsa_form], None
        if layer in c.xsa and c.mudd_gate is None:
            self.xsa_alpha = parameter(
                (n_heads,), role="scalar", init=0.0, dtype=dtypes.scalar, part="xsa"
            )
        self.value_gate = None
        is_told = c.mudd is not None and layer == c.n_layer - 1  # what is added to its values
        if has_table and c.value_mix in GATE_INPUTS and not is_told:
            self.value_gate = Gate(n_heads, dtypes)
            read = "gate" if self.paired and c.value_mix == "gate_mixed" else c.value_mix
            self.gate_input = GATE_INPUTS[read]
        self.mix: ValueMix | None = None
        self.value_mix: Any = 0.5  # a number, or a parameter
        self.first_scales_weights = c.attn_lambda == "weights"
        self.in_scale = self.out_scale = None
        if c.attn_lambda == "in_out":
            self.in_scale = parameter((), role="scalar", init=0.5, dtype=dtypes.scalar)
            self.out_scale = parameter((), role="scalar", init=1.0, dtype=dtypes.scalar)
        if is_told:
            self.mix = add
        elif c.value_mix == "pair":
            self.mix = remainder_of_pair if self.first_scales_weights else pair
            self.value_mix = parameter((2,), role="scalar", init=0.5, dtype=dtypes.scalar)
        elif c.value_mix in ("add", *GATE_INPUTS):
            self.mix = add if has_table else None
        elif has_table or c.value_residual is not None:
            self.mix = lerp
            if has_table or c.value_residual == "learned":
                self.value_mix = parameter((), role="scalar", init=0.5, dtype=dtypes.scalar)

    def forward(
        self,
        x_BTC: Tensor,
        rotary: Turns,
        mask: Mask,
        source: Tensor | None,
        told: Mapping[str, Tensor] = NOTHING,
    ) -> tuple[Tensor, Tensor]:
        """The branch's output (B, T, C) and this layer's own values (B, T, N, H), unmixed.

        source: what is mixed into the values. told: a stream's, of this layer.
        """
        B, T, C = x_BTC.shape
        a = self.value_mix[0] if self.first_scales_weights else self.in_scale
        q, k, v = (
            self.qkv(x_BTC, a).chunk(3, dim=-1)
            if self.merged
            else (self.q(x_BTC, a), self.k(x_BTC, a), self.v(x_BTC, a))
        )
        q, k, v = (z.view(B, T, -1, self.head_dim) for z in (q, k, v))
        own_v = v
        row = None if source is None else source.view_as(v)
        if self.value_gate is not None and source is not None:
            row = 2 * self.value_gate(self.gate_input(x_BTC, source))[..., None] * row
        if self.mix is not None:
            v = self.mix(v, row, self.value_mix)
        if self.norm_first is not None:
            q, k = self.norm_first(q), self.norm_first(k)
        q, k = (self.rotate(z, rotary.cos, rotary.sin) for z in (q, k))
        if rotary.growth is not None:
            q = rotary.growth * q
        if self.unturned is not None:
            k = offset_keys(k, self.unturned)
        if self.norm_last is not None:
            q, k = self.norm_last(q), self.norm_last(k)
        q, k, v = (z.transpose(1, 2).to(own_v.dtype) for z in (q, k, v))
        if self.paired:
            y = from_slots(self.kernel(in_slots(q), in_slots(k), in_slots(v), mask, self.scale))
        else:
            y = self.kernel(q, k, v, mask, self.scale)
        y_BTNH = y.transpose(1, 2)
        seen = told.get("near")
        if seen is not None:
            mix = correction(q, k, v, told["mixed"], told["taken"], seen, self.scale)
            y_BTNH = y_BTNH + mix
        alpha = told.get("xsa", self.xsa_alpha)
        if alpha is not None:
            y_BTNH = self.exclude(y_BTNH, v.transpose(1, 2), alpha)
        gate = told.get("gate") if self.head_gate is None else self.head_gate(x_BTC)
        if gate is not None:
            y_BTNH = y_BTNH * gate[..., None]
        return self.out(y_BTNH.reshape(B, T, C), self.out_scale), own_v
