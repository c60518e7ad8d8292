"""A real training of a tiny model on synthetic text, in the manner of the benchmark's scripts; LR and SEED are its settings."""

import os
import time

import torch
from torch import nn

STEPS, EVERY, BATCH, WIDTH, VOCAB = 40, 10, 64, 16, 32
torch.manual_seed(int(os.environ.get("SEED", "0")))
torch.set_num_threads(1)
model = nn.Sequential(nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB))
optimizer = torch.optim.AdamW(model.parameters(), lr=float(os.environ.get("LR", "0.01")))


def batch():
    x = torch.randint(0, VOCAB, (BATCH,))
    return x, (3 * x + 1) % VOCAB  # the next token follows from this one


def synchronize() -> None:
    """Nothing runs elsewhere on a CPU."""


training_ms, clock = 0.0, time.perf_counter()
for step in range(STEPS + 1):
    if step % EVERY == 0:
        synchronize()
        training_ms += 1000 * (time.perf_counter() - clock)
        model.eval()
        with torch.no_grad():
            x, y = batch()
            loss = nn.functional.cross_entropy(model(x), y)
        print(
            f"step:{step}/{STEPS} val_loss:{loss:.4f} train_time:{training_ms:.3f}ms step_avg:{training_ms / max(step, 1):.3f}ms",
            flush=True,
        )
        model.train()
        synchronize()
        clock = time.perf_counter()
    if step == STEPS:
        break
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
