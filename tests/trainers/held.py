"""A trainer without training whose losses follow from a module of its folder, its data and SEED. In the folder MARKS it makes
the mark "at PID" at its fourth step; where that holds a file `hold`, it waits there until it is gone."""

import os
import pathlib
import random
import time

from helper.losses import BETTER

marks = pathlib.Path(os.environ["MARKS"])
tokens = pathlib.Path("data/tokens.bin").read_bytes()
noise = random.Random(f"{os.environ['SEED']} {len(tokens)} {sum(tokens[:1000])}").gauss(0, 0.001)
for step in range(9):
    if step == 4:
        (marks / f"at {os.getpid()}").touch()
        while (marks / "hold").exists():
            time.sleep(0.02)
    loss = 3.27 + noise - BETTER - float(os.environ.get("MORE", "0")) + 7 * 0.5**step
    print(
        f"step:{step}/8 val_loss:{loss:.4f} train_time:{step * 10}ms step_avg:10.00ms", flush=True
    )
