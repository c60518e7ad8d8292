"""A trainer without training whose lines are its own: MORE raises its accuracy and lowers its val_bpb."""

import json
import os
import random

more = float(os.environ.get("MORE", "0"))
seed = int(os.environ["SEED"])
noise = random.Random(seed).gauss(0, 0.002) + random.Random(f"{seed} {more}").gauss(0, 0.001)
for step in range(0, 11, 5):
    print(f"iter {step}: clock={step * (40 + 100 * noise):.3f}ms")
    print(
        f"  val_bpb: {0.98 + 0.1 / (1 + step) + noise - more:.5f} acc {0.31 + step / 100 + more:.4f}"
    )
with open("scores.json", "w") as file:
    json.dump({"eval": {"score": 40 + noise + more}}, file)
print(json.dumps({"eval": {"accuracy": 0.4 + more + noise}}))
