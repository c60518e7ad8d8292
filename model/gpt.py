"""The GPT of records 2 to 18, with changes of later ones, read from top to bottom.

B batch, T sequence, C model_dim, N heads, H head_dim, F MLP hidden, V vocabulary, L layers.
A component is chosen where it is built; the forward pass asks only whether it is there.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .activation import ACTIVATIONS
from .attention import KERNELS, Mask, make_mask
from .bigram import BigramEmbedding
from .block import make_block
from .config import ModelConfig
from .embeddings import VALUE_TABLES, Embedding
from .exclusive import EXCLUDE
from .float8 import Float8Head
from .gates import Gate, Smear
from .layers import Linear, RMSNorm
from .layout import attention_free, layer_kinds, skip_sources, table_of_layer
from .loss import chunked_cross_entropy
from .mask import document_ids
from .paired import by_parity, from_slots, in_slots
from .parameters import initialize, parameter
from .precision import BF16, FP32, PLAIN, Dtypes
from .rotary import ROTATIONS, UNTURNED, Rotary, Turns, offset_keys
from .skips import SKIP_INIT, Backout, Skip
from .softcap import capped, softcap_of
from .stream import Stream
from .tokens import Tokens
from .values import GATE_INPUTS, ValueMix, add, lerp, pair, remainder_of_pair

STORAGE = {"fp32": FP32, "bf16": BF16}

# ---------------------------------------------------------------- MLP


class MLP(nn.Module):
    def __init__(self, c: ModelConfig, dtypes: Dtypes) -> None:
        super().__init__()
        d, wide = c.d_model, c.mlp_ratio * c.d_model
        self.up = Linear(wide, d, role="hidden", init=c.up_init, dtypes=dtypes, part="up")
        self.down = Linear(d, wide, role="hidden", init=c.proj_init, dtypes=dtypes, part="down")
        self.activation, self.lifted = ACTIVATIONS[c.activation], dtypes.lifted

    def forward(self, x_BTC: Tensor) -> Tensor:
        y_BTC: Tensor = self.down(self.activation(self.up(x_BTC), self.lifted))
        return y_BTC


# ---------------------------------------------------------------- attention


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
        if c.attn_gate is not None:
            self.head_gate = Gate(n_heads, dtypes)
        self.xsa_alpha = None
        if layer in c.xsa:
            self.xsa_alpha = parameter(
                (n_heads,), role="scalar", init=0.0, dtype=dtypes.scalar, part="xsa"
            )
            self.exclude = EXCLUDE[c.xsa_form]
        self.value_gate = None
        if has_table and c.value_mix in GATE_INPUTS:
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
        if c.value_mix == "pair":
            self.mix = remainder_of_pair if self.first_scales_weights else pair
            self.value_mix = parameter((2,), role="scalar", init=0.5, dtype=dtypes.scalar)
        elif c.value_mix in ("add", *GATE_INPUTS):
            self.mix = add if has_table else None
        elif has_table or c.value_residual is not None:
            self.mix = lerp
            if has_table or c.value_residual == "learned":
                self.value_mix = parameter((), role="scalar", init=0.5, dtype=dtypes.scalar)

    def forward(
        self, x_BTC: Tensor, rotary: Turns, mask: Mask, source: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The branch's output (B, T, C) and this layer's own values (B, T, N, H), unmixed."""
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
        if self.xsa_alpha is not None:
            y_BTNH = self.exclude(y_BTNH, v.transpose(1, 2), self.xsa_alpha)
        if self.head_gate is not None:
            y_BTNH = y_BTNH * self.head_gate(x_BTC)[..., None]
        return self.out(y_BTNH.reshape(B, T, C), self.out_scale), own_v


# ---------------------------------------------------------------- the network


class GPT(nn.Module):
    def __init__(self, c: ModelConfig, tokens: Tokens, dtypes: Dtypes = PLAIN) -> None:
        super().__init__()
        self.separator = tokens.separator
        padded = math.ceil(tokens.vocab_size / c.vocab_multiple) * c.vocab_multiple
        rows = padded if c.pad_tables else tokens.vocab_size

        self.skip_weights = None
        self.skip_sources = skip_sources(c) if c.unet_skip else []
        if self.skip_sources:
            is_share = c.skip_weight == "sigmoid"
            init = SKIP_INIT if is_share else 1.0
            self.skip_weights = parameter(
                (len(self.skip_sources),),
                role="scalar",
                init=init,
                dtype=dtypes.scalar,
                part="skip",
            )
            self.skip_share = torch.sigmoid if is_share else None
        self.embed = Embedding(rows, c.d_model, role="embed", init=c.embed_init, dtype=dtypes.table)
        self.smear = Smear(dtypes) if c.smear else None
        self.bigram = BigramEmbedding(c, dtypes) if c.bigram_hash is not None else None
        self.embed_norm = RMSNorm(c.norm_eps, None) if c.post_embed_norm else None
        self.value_embeds = None
        if c.value_embed is not None:
            self.value_embeds = VALUE_TABLES[c.value_tables](c, rows, dtypes, table_of_layer(c))
        self.rotary = make_rotary(c, dtypes, seq_len=tokens.seq_len)
        self.blocks = nn.ModuleList(
            make_block(
                c,
                dtypes,
                layer=i,
                attn=Attention(c, dtypes, layer=i) if i not in attention_free(c) else None,
                mlp=MLP(c, dtypes) if i not in c.mlp_free_layers else None,
            )
            for i in range(c.n_layer)
        )
        self.skip = None
        if c.skip_layers:
            source, into = c.skip_layers
            self.skip = Skip(source, into, dtypes, gated=c.skip_gate)
        self.backout = Backout(c.backout, dtypes) if c.backout is not None else None
        self.saved_layers = {c.backout, *c.skip_layers[:1], *self.skip_sources}
        self.left_early = c.skip_layers[0] if c.skip_from == "attention" else None
        self.norm = RMSNorm(c.norm_eps, None)
        self.head = None
        if not c.tied_head:
            self.head = Linear(padded, c.d_model, role="head", init=c.head_init, dtypes=dtypes)
        if c.fp8_head:
            self.head = Float8Head(
                padded, c.d_model, init=c.head_init, dtypes=dtypes, scales=c.fp8_head
            )

        self.first_values = c.value_residual is not None
        self.softcap, self.loss_rows = softcap_of(c.logit_softcap, c.d_model), c.loss_rows
        self.kinds = layer_kinds(c)
        self.mask_args = None
        if c.attn_mask == "document":
            self.mask_args = (c.attn_kernel, c.attn_window, c.block_mask)
        self.matmul_dtype = dtypes.matmul

    def mask(self, ids_BT: Tensor, window: Tensor | None, slots: int = 1) -> Mask:
        """The mask of the layers of a kind: None where the kernel is causal by itself.

        Document masks take one row, B = 1. slots: of a position.
        """
        if self.mask_args is None:
            return None
        kernel, kind, builder = self.mask_args
        doc_T = document_ids(ids_BT[0], self.separator)
        return make_mask(
            kernel,
            doc_T if slots == 1 else doc_T.repeat_interleave(slots),
            window,
            kind,
            builder,
            self.matmul_dtype,
        )

    def masks(self, ids_BT: Tensor, window: Tensor | None) -> list[Mask]:
        """Every layer's mask; layers of one kind share one.

        window: of the long layers, and where there are short ones (2,), of both; (3,): of the last
        layer, too.
        """
        sizes = [window] if window is None or window.ndim == 0 else window.unbind()
        kinds = [(kind.slots, int(kind.is_short)) for kind in self.kinds]
        if len(sizes) > 2:
            kinds[-1] = (self.kinds[-1].slots, 2)
        made: dict[tuple[int, int], Mask] = {}
        for slots, size in kinds:
            if (slots, size) not in made:
                made[slots, size] = self.mask(ids_BT, sizes[size], slots)
        return [made[kind] for kind in kinds]

    def stream(self, ids_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Token ids (B, T) to what the head sees (B, T, C).

        window: integer, in tokens or blocks as the mask counts, as `masks` takes it.
        """
        x = self.embed(ids_BT)
        if self.smear is not None:
            x = self.smear(x)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        stream, T, half = Stream(x), ids_BT.shape[1], len(self.blocks) // 2
        if self.bigram is not None:
            self.bigram(stream, ids_BT)
        masks = self.masks(ids_BT, window)
        tables = {slots: self.rotary(slots * T) for slots in {kind.slots for kind in self.kinds}}
        rotary = [tables[kind.slots] for kind in self.kinds]
        sources = (
            self.value_embeds(ids_BT)
            if self.value_embeds is not None
            else [None] * len(self.blocks)
        )
        for i, block in enumerate(self.blocks):
            if self.skip_weights is not None and 0 <= i - half < len(self.skip_sources):
                # by index: unbound, a compiled pass would write three more streams and read three
                weight = self.skip_weights[i - half]
                if self.skip_share is not None:
                    weight = self.skip_share(weight)
                stream.x = stream.x + weight * stream.saved[self.skip_sources[i - half]]
            if self.skip is not None and i == self.skip.into:
                self.skip(stream)
            source = stream.values if self.first_values else sources[i]
            block(stream, rotary[i], masks[i], source)
            if i in self.saved_layers:
                stream.saved[i] = stream.attended if i == self.left_early else stream.x
        if stream.second is not None:
            stream.x = (stream.x + stream.second) / 2
        if self.backout is not None:
            self.backout(stream)
        y_BTC: Tensor = self.norm(stream.x)
        return y_BTC

    def logits(self, ids_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Token ids (B, T) to fp32 logits (B, T, V)."""
        x = self.stream(ids_BT, window)
        z = (
            self.head(x)
            if self.head is not None
            else F.linear(x.to(self.matmul_dtype), self.embed.weight.to(self.matmul_dtype))
        )
        if self.softcap is not None:
            z = capped(z, self.softcap)
        return z.float()

    def forward(self, ids_BT: Tensor, targets_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Mean cross-entropy over all positions, nats per token, fp32 scalar."""
        if self.loss_rows is None:
            return F.cross_entropy(self.logits(ids_BT, window).flatten(0, 1), targets_BT.flatten())
        x = self.stream(ids_BT, window).flatten(0, 1).to(self.matmul_dtype)
        head = self.embed if self.head is None else self.head
        return chunked_cross_entropy(
            x,
            head.weight.to(x.dtype),
            targets_BT.flatten(),
            softcap=self.softcap,
            rows=self.loss_rows,
        )

    def set_matmul_dtype(self, dtype: torch.dtype) -> None:
        """Run the products in another dtype (validation outside autocast)."""
        self.matmul_dtype = dtype
        for module in self.modules():
            if isinstance(module, Linear):
                module.dtype = dtype

    def initialize(self, seed: int) -> None:
        """Draw every parameter by (seed, name), and the signs of the pairs of tokens."""
        initialize(self, seed)
        if self.bigram is not None:
            self.bigram.draw_signs("bigram.sign", seed)
