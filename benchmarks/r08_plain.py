"""Record 8's recipe as one writes it by hand: one file, one process, no choices. The core is measured against it.

    python benchmarks/r08_plain.py data/stdlib/stdlib_train_000001.bin

Untied head starting at zero, normed embedding, q and k normed, rotary positions, squared ReLU, Muon for the matrices, Adam for
the two tables. In fp32, for a CPU; written for this project after the recipe of github.com/KellerJordan/modded-nanogpt.
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
    n_layer: int = 8
    d_model: int = 64
    head_dim: int = 32
    seq_len: int = 512
    micro_tokens: int = 512
    batch_tokens: int = 4096
    steps: int = 269
    cooldown_steps: int = 77
    embed_lr: float = 0.3
    head_lr: float = 0.002
    muon_lr: float = 0.048


# ---------------------------------------------------------------- Muon


def newton_schulz(g, steps=5):
    """Roughly the nearest orthogonal matrix."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    if g.size(0) > g.size(1):
        x = x.T
    for _ in range(steps):
        A = x @ x.T
        B = A @ x
        x = a * x + b * B + c * A @ B
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
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.mul_(group["momentum"]).add_(p.grad)
                g = newton_schulz(p.grad.add(buf, alpha=group["momentum"]))
                g *= max(1, g.size(0) / g.size(1)) ** 0.5
                p.add_(g, alpha=-group["lr"])


# ---------------------------------------------------------------- the network


def norm(x):
    return F.rms_norm(x, (x.size(-1),))


class Rotary(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        self.freqs = (1 / base) ** (torch.arange(0, dim, 2) / dim)
        self.seq_len = None

    def forward(self, x):
        T = x.shape[1]
        if self.seq_len != T:
            theta = torch.outer(torch.arange(T).float(), self.freqs)
            self.seq_len, self.cos, self.sin = (
                T,
                theta.cos()[None, :, None],
                theta.sin()[None, :, None],
            )
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x1 * self.cos + x2 * self.sin, x2 * self.cos - x1 * self.sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.out.weight.data.zero_()
        self.rotary = Rotary(head_dim)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q(x).view(B, T, -1, self.head_dim)
        k = self.k(x).view(B, T, -1, self.head_dim)
        v = self.v(x).view(B, T, -1, self.head_dim)
        q, k = norm(q), norm(k)
        q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
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
    def __init__(self, dim, head_dim):
        super().__init__()
        self.attn = Attention(dim, head_dim)
        self.mlp = MLP(dim)

    def forward(self, x):
        x = x + self.attn(norm(x))
        return x + self.mlp(norm(x))


class GPT(nn.Module):
    def __init__(self, h):
        super().__init__()
        padded = (h.vocab_size + 127) // 128 * 128
        self.embed = nn.Embedding(padded, h.d_model)
        self.blocks = nn.ModuleList([Block(h.d_model, h.head_dim) for _ in range(h.n_layer)])
        self.head = nn.Linear(h.d_model, padded, bias=False)
        self.head.weight.data.zero_()

    def forward(self, idx, targets):
        x = norm(self.embed(idx))
        for block in self.blocks:
            x = block(x)
        logits = self.head(norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


# ---------------------------------------------------------------- training


class DataLoader:
    """The shard from its beginning, one micro-batch after the other."""

    def __init__(self, path, h):
        self.tokens = np.fromfile(path, dtype=np.uint16, offset=1024)
        self.rows, self.seq_len, self.pos = h.micro_tokens // h.seq_len, h.seq_len, 0

    def next_batch(self):
        n = self.rows * self.seq_len
        buf = torch.tensor(self.tokens[self.pos : self.pos + n + 1].astype(np.int64))
        self.pos += n
        if self.pos + n + 1 > len(self.tokens):
            self.pos = 0
        return buf[:-1].view(self.rows, self.seq_len), buf[1:].view(self.rows, self.seq_len)


class Trainer:
    def __init__(self, h, path):
        self.h, self.step_number = h, 0
        self.model = GPT(h)
        self.loader = DataLoader(path, h)
        self.optimizers = [
            torch.optim.Adam(
                [self.model.embed.weight], lr=h.embed_lr, betas=(0.9, 0.95), fused=True
            ),
            torch.optim.Adam([self.model.head.weight], lr=h.head_lr, betas=(0.9, 0.95), fused=True),
            Muon(self.model.blocks.parameters(), lr=h.muon_lr),
        ]
        self.rates = [opt.param_groups[0]["lr"] for opt in self.optimizers]

    def step(self):
        """One update; the losses of its micro-batches."""
        h, losses = self.h, []
        micro_steps = h.batch_tokens // h.micro_tokens
        left = h.steps - self.step_number
        factor = left / h.cooldown_steps if left <= h.cooldown_steps else 1.0
        for _ in range(micro_steps):
            x, y = self.loader.next_batch()
            loss = self.model(x, y)
            losses.append(loss.detach())
            (loss / micro_steps).backward()
        for opt, rate in zip(self.optimizers, self.rates):
            opt.param_groups[0]["lr"] = rate * factor
            opt.step()
        self.model.zero_grad(set_to_none=True)
        self.step_number += 1
        return torch.stack(losses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shard")
    trainer = Trainer(Hyperparameters(), parser.parse_args().shard)
    for step in range(trainer.h.steps):
        print(f"step:{step}/{trainer.h.steps} train_loss:{trainer.step().mean():.4f}", flush=True)
