"""A trainer without training: its loss follows from what it does, so that the effect of every change is known."""

import os
import random

STEPS = 20
SEED = int(os.environ.get("SEED", "0"))
WIDTH = 64
noise = random.Random(SEED).gauss(0, 0.0005)


def adam(rate):
    return 0.01 - abs(rate - 0.002)


def loss_of(step, gain):
    """The loss after some steps."""
    return 3.27 + noise - gain + 7 * 0.8**step


def train():
    gain = adam(rate=0.002)
    gate = 0
    scale = 1
    depth = 12
    gain += 0.02 * gate * (scale - 1)
    print("training with width", WIDTH, depth)
    for step in range(STEPS + 1):
        if step % 5 == 0:
            ms = 1000 * step
            print(f"step:{step}/{STEPS} val_loss:{loss_of(step, gain):.4f} train_time:{ms}ms")


train()
