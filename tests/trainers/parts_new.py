"""The same with changes: muon has a rate of its own, gate and scale help together alone, dropping hurts."""

import math
import os
import random

STEPS = 20
SEED = int(os.environ.get("SEED", "0"))
WIDTH = 64
noise = random.Random(SEED).gauss(0, 0.0005)


def muon(rate):
    return 0.04 - abs(math.log10(rate / 0.05)) * 0.02


def loss_of(step, gain):
    """The loss after so many steps."""
    return 3.27 + noise - gain + 7 * 0.8**step


def train():
    gain = muon(rate=0.05)  # adam's rate would be far too low
    gate = 1
    scale = 2
    depth = 11
    gain += 0.02 * gate * (scale - 1)
    dropped = 0.01
    gain -= dropped
    print("now training with width", WIDTH, "and depth", depth)
    for step in range(STEPS + 1):
        if step % 5 == 0:
            ms = 1000 * step
            print(f"step:{step}/{STEPS} val_loss:{loss_of(step, gain):.4f} train_time:{ms}ms")


train()
