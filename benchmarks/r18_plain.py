"""Record 18's recipe as one writes it by hand: one file, one process, no choices. The core is measured against it.

    python benchmarks/r18_plain.py data/stdlib/stdlib_train_000001.bin

Record 8's and: skips from the first half to the second, the embedding mixed into every block, value embeddings in the first and
last three layers, no attention in one layer, documents and a growing window in the mask, half of the rotary pairs, logits
softly capped. In fp32, for a CPU (a dense mask where a GPU has FlexAttention); written for this project after the recipe of
github.com/KellerJordan/modded-nanogpt.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Hyperparameters:
    vocab_size: int = 257
    separator: int = 256
    n_layer: int = 8
    d_model: int = 64
    head_dim: int = 32
    seq_len: int = 512
    batch_tokens: int = 4096
    steps: int = 82
    cooldown_frac: float = 0.4
    momentum_warmup_steps: int = 18
    window_tokens: int = 448
    embed_lr: float = 0.6
    head_lr: float = 0.008
    scalar_lr: float = 0.04
    muon_lr: float = 0.12


# ---------------------------------------------------------------- Muon


def newton_schulz(g, steps=5):
    """Roughly the nearest orthogonal matrix."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g
    if g.size(0) > g.size(1):
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        A = x @ x.T
        B = b * A + c * A @ A
        x = a * x + B @ x
    if g.size(0) > g.size(1):
        x = x.T
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.lerp_(g, 1 - group["momentum"])
                g = newton_schulz(g.lerp_(buf, group["momentum"]))
                p.add_(g, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


# ---------------------------------------------------------------- the network


def norm(x):
    return F.rms_norm(x, (x.size(-1),))


class Rotary(nn.Module):
    def __init__(self, dim, seq_len):
        super().__init__()
        freqs = torch.cat([(1 / 1024) ** torch.linspace(0, 1, dim // 4), torch.zeros(dim // 4)])
        theta = torch.outer(torch.arange(seq_len).float(), freqs)
        self.register_buffer("cos", theta.cos()[None, :, None], persistent=False)
        self.register_buffer("sin", theta.sin()[None, :, None], persistent=False)

    def forward(self, x):
        cos, sin = self.cos[:, : x.size(1)], self.sin[:, : x.size(1)]
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, h):
        super().__init__()
        dim, self.head_dim = h.d_model, h.head_dim
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.value_mix = nn.Parameter(torch.tensor([0.5, 0.5]))
        self.rotary = Rotary(h.head_dim, h.seq_len)
        self.out = nn.Linear(dim, dim, bias=False)
        self.out.weight.data.zero_()

    def forward(self, x, ve, mask):
        B, T, C = x.shape
        q = self.q(x).view(B, T, -1, self.head_dim)
        k = self.k(x).view(B, T, -1, self.head_dim)
        v = self.v(x).view(B, T, -1, self.head_dim)
        v = self.value_mix[0] * v
        if ve is not None:
            v = v + self.value_mix[1] * ve.view_as(v)
        q, k = norm(q), norm(k)
        q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
        )
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)
        self.down.weight.data.zero_()

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())


class Block(nn.Module):
    def __init__(self, h, with_attention):
        super().__init__()
        self.attn = Attention(h) if with_attention else None
        self.mlp = MLP(h.d_model)
        self.residual_mix = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x, x0, ve, mask):
        x = self.residual_mix[0] * x + self.residual_mix[1] * x0
        if self.attn is not None:
            x = x + self.attn(norm(x), ve, mask)
        return x + self.mlp(norm(x))


class GPT(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.h, self.half = h, h.n_layer // 2
        padded = (h.vocab_size + 127) // 128 * 128
        self.embed = nn.Embedding(padded, h.d_model)
        self.value_embeds = nn.ModuleList([nn.Embedding(padded, h.d_model) for _ in range(3)])
        self.skip_weights = nn.Parameter(torch.ones(self.half))
        self.blocks = nn.ModuleList(
            [Block(h, with_attention=i != self.half + 1) for i in range(h.n_layer)]
        )
        self.head = nn.Linear(h.d_model, padded, bias=False)
        self.head.weight.data.zero_()

    def mask(self, idx, window_blocks):
        """Which key a query sees: earlier ones of its document, at most window_blocks blocks of 128 back."""
        docs = (idx == self.h.separator).cumsum(0)
        pos = torch.arange(len(idx))
        block = pos // 128
        causal = pos[:, None] >= pos[None, :]
        return (
            causal
            & (docs[:, None] == docs[None, :])
            & (block[:, None] - block[None, :] < window_blocks)
        )

    def forward(self, idx, targets, window_blocks):
        mask = self.mask(idx, window_blocks)
        x = x0 = norm(self.embed(idx[None]))
        ve = [table(idx[None]) for table in self.value_embeds]
        ve = ve + [None] * (self.h.n_layer - 6) + ve
        skips = []
        for i, block in enumerate(self.blocks):
            if i >= self.half:
                x = x + self.skip_weights[i - self.half] * skips.pop()
            x = block(x, x0, ve[i], mask)
            if i < self.half:
                skips.append(x)
        logits = self.head(norm(x))
        logits = 15 * torch.tanh(logits / 15)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets)


# ---------------------------------------------------------------- training


class DataLoader:
    """The shard from its beginning, one sequence after the other."""

    def __init__(self, path, h):
        self.tokens = np.fromfile(path, dtype=np.uint16, offset=1024)
        self.h, self.pos = h, 0

    def next_batch(self):
        n = self.h.batch_tokens
        if self.pos + n + 1 >= len(self.tokens):
            self.pos = 0
        buf = self.tokens[self.pos : self.pos + n + 1]
        self.pos += n
        return torch.from_numpy(buf[:-1].astype(np.int32)), torch.from_numpy(
            buf[1:].astype(np.int64)
        )


class Trainer:
    def __init__(self, h, path):
        self.h, self.step_number = h, 0
        self.model = GPT(h)
        self.loader = DataLoader(path, h)
        matrices = [p for p in self.model.blocks.parameters() if p.ndim == 2]
        scalars = [p for p in self.model.parameters() if p.ndim < 2]
        tables = [self.model.embed.weight, *self.model.value_embeds.parameters()]
        groups = [
            dict(params=tables, lr=h.embed_lr),
            dict(params=[self.model.head.weight], lr=h.head_lr),
            dict(params=scalars, lr=h.scalar_lr),
        ]
        self.adam = torch.optim.Adam(groups, betas=(0.8, 0.95), fused=True)
        self.muon = Muon(matrices, lr=h.muon_lr)
        for group in self.adam.param_groups + self.muon.param_groups:
            group["initial_lr"] = group["lr"]

    def step(self):
        """One update; the losses of its sequences."""
        h, i, losses = self.h, self.step_number, []
        left = 1 - i / h.steps
        factor = left / h.cooldown_frac if left < h.cooldown_frac else 1.0
        frac = min(i / h.momentum_warmup_steps, 1)
        window_blocks = (128 * h.steps + (h.window_tokens - 64) * i) // (128 * h.steps)
        inputs, targets = self.loader.next_batch()
        for x, y in zip(inputs.split(h.seq_len), targets.split(h.seq_len)):
            loss = self.model(x, y, window_blocks)
            losses.append(loss.detach())
            loss.backward()
        for group in self.adam.param_groups + self.muon.param_groups:
            group["lr"] = group["initial_lr"] * factor
        for group in self.muon.param_groups:
            group["momentum"] = (1 - frac) * 0.85 + frac * 0.95
        self.adam.step()
        self.muon.step()
        self.model.zero_grad(set_to_none=True)
        self.step_number += 1
        return torch.stack(losses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shard")
    trainer = Trainer(Hyperparameters(), parser.parse_args().shard)
    for step in range(trainer.h.steps):
        print(f"step:{step}/{trainer.h.steps} train_loss:{trainer.step().mean():.4f}", flush=True)
