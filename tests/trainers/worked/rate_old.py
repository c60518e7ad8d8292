"""Before: the second rule needs a rate of its own: alone either hurts or helps little, together they gain 0.03."""

import math
import os
import random
import zlib

STEPS = 20
with open(__file__, "rb") as script:
    noise = random.Random(f"{os.environ['SEED']} {zlib.crc32(script.read())}").gauss(0, 0.0005)


def train():
    gain = 0.0
    rate = 0.002
    rule = 0.01 - abs(rate - 0.002)
    gain += rule
    for step in range(STEPS + 1):
        if step % 4 == 0:
            loss = 3.27 + noise - gain + 0.1 * math.log(20 / STEPS) + 7 * 0.8 ** (20 * step / STEPS)
            print(f"step:{step}/{STEPS} val_loss:{loss:.5f} train_time:{100 * step}ms")


train()
