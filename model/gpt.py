"""The GPT of records 2 to 86, read from top to bottom.

B batch, T sequence, C model_dim, N heads, H head_dim, F MLP hidden, V vocabulary, L layers.
A component is chosen where it is built; the forward pass asks only whether it is there.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .activation import ACTIVATIONS
from .attention import Mask, make_mask
from .bigram import BigramEmbedding
from .block import make_block
from .composed import near
from .config import ModelConfig
from .embeddings import VALUE_TABLES, Embedding
from .float8 import Float8Head
from .gates import Smear
from .heads import Attention, make_rotary
from .layers import Linear, RMSNorm
from .layout import attention_free, layer_kinds, skip_sources, table_of_layer
from .loss import chunked_cross_entropy
from .mask import document_ids
from .mudd import Mudd, MuddGates
from .parameters import initialize, parameter
from .precision import BF16, PLAIN, Dtypes
from .skips import SKIP_INIT, Backout, Skip
from .softcap import capped, softcap_of
from .stream import ENTERED, Stream
from .tokens import Tokens

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


# ---------------------------------------------------------------- the network


def make_head(c: ModelConfig, dtypes: Dtypes, *, rows: int) -> Linear | None:
    """The matrix of the logits; None where it is the token table."""
    if c.tied_head:
        return None
    if c.fp8_head:
        return Float8Head(rows, c.d_model, init=c.head_init, dtypes=dtypes, scales=c.fp8_head)
    return Linear(rows, c.d_model, role="head", init=c.head_init, dtypes=dtypes)


class GPT(nn.Module):
    def __init__(self, c: ModelConfig, tokens: Tokens, dtypes: Dtypes = PLAIN) -> None:
        super().__init__()
        self.separator = tokens.separator
        padded = math.ceil(tokens.vocab_size / c.vocab_multiple) * c.vocab_multiple
        rows = padded if c.pad_tables else tokens.vocab_size

        self.skip_weights = None
        self.skip_sources = skip_sources(c) if c.unet_skip else []
        if self.skip_sources:
            is_share, shape = c.skip_weight == "sigmoid", (len(self.skip_sources),)
            init = SKIP_INIT if is_share else 1.0
            self.skip_weights = parameter(
                shape, role="scalar", init=init, dtype=dtypes.scalar, part="skip"
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
        self.backout = self.mudd = None
        if c.mudd is not None:
            self.mudd = Mudd(c, dtypes)
        elif c.backout is not None:
            self.backout = Backout(c.backout, dtypes)
        self.mudd_gates = MuddGates(c, dtypes) if c.mudd_gate is not None else None
        self.composed, self.dc_window = c.dc_mha, c.dc_window
        self.saved_layers = {c.backout, *c.skip_layers[:1], *self.skip_sources}
        self.left_early = c.skip_layers[0] if c.skip_from == "attention" else None
        self.norm = RMSNorm(c.norm_eps, None)
        self.head = make_head(c, dtypes, rows=padded)

        self.first_values = c.value_residual is not None
        self.softcap, self.loss_rows = softcap_of(c.logit_softcap, c.d_model), c.loss_rows
        self.trained_logits = BF16 if c.logits_dtype == "bf16" and dtypes.rounds else None
        self.kinds = layer_kinds(c)
        self.mask_args = None
        if c.attn_mask == "document":
            self.mask_args = (c.attn_kernel, c.attn_window, c.block_mask)
        self.matmul_dtype = dtypes.matmul

    def documents(self, ids_BT: Tensor) -> Tensor:
        """Each position's document (1, T): one of all, where attention minds none."""
        if self.mask_args is None:
            return torch.zeros_like(ids_BT[:1])
        return document_ids(ids_BT[0], self.separator)[None]

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
        made = {kind: self.mask(ids_BT, sizes[kind[1]], kind[0]) for kind in dict.fromkeys(kinds)}
        return [made[kind] for kind in kinds]

    def stream(self, ids_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Token ids (B, T) to what the head sees (B, T, C).

        window: integer, in tokens or blocks as the mask counts, as `masks` takes it.
        """
        masks = self.masks(ids_BT, window)
        x = self.embed(ids_BT)
        if self.smear is not None:
            x = self.smear(x)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        stream, T, half = Stream(x, len(self.blocks)), ids_BT.shape[1], len(self.blocks) // 2
        if self.mudd_gates is not None:
            self.mudd_gates(0, stream)
        if self.bigram is not None:
            self.bigram(stream, ids_BT)
        tables = {slots: self.rotary(slots * T) for slots in {kind.slots for kind in self.kinds}}
        rotary = [tables[kind.slots] for kind in self.kinds]
        sources = (
            self.value_embeds(ids_BT)
            if self.value_embeds is not None
            else [None] * len(self.blocks)
        )
        stream.saved[ENTERED] = stream.x
        if self.composed:
            stream.tell(self.composed, "near", near(self.documents(ids_BT), self.dc_window))
        first_row = next((row for row in sources if row is not None), None)
        for i, block in enumerate(self.blocks):
            if self.mudd_gates is not None and i > 0:
                self.mudd_gates(i, stream)
            if self.mudd is not None and i == len(self.blocks) - 1:
                sources[i] = self.mudd.before(stream, sources[i])
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
        if self.mudd is not None:
            self.mudd.after(stream, first_row)
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
        if self.trained_logits is not None and self.training:
            z = z.to(self.trained_logits)
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
