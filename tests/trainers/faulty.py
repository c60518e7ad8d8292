"""A trainer that fails as KIND says: crash, raise, oom, hang, forever, nan, short (no final validation), silent (no lines at
all), flaky (the first time only), rank (what torchrun prints of a rank that failed).
One that waits to be ended makes the file AT."""

import os
import signal
import subprocess
import sys
import time

KIND, STEPS = os.environ["KIND"], 8


def at() -> None:
    if "AT" in os.environ:
        open(os.environ["AT"], "w").close()


def happen() -> None:
    if KIND == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if KIND == "raise":
        raise ValueError("the shapes do not match")
    if KIND == "oom":
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
    if KIND == "rank":
        print(
            "[rank0]: RuntimeError: Connection reset by peer\n[rank5]: Traceback\n[rank5]: ValueError: the shapes do not match"
        )
        print(
            "E1121 17:32:28 26774 torch/distributed/elastic/api.py:1002] failed (exitcode: 1) local_rank: 5 (pid: 7) of binary: x"
        )
        print(
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\nRoot Cause"
        )
        sys.exit(1)
    if KIND == "hang":  # with a child in a session of its own, as torchrun's workers are
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
        )
        with open(os.environ["CHILD"], "w") as f:
            f.write(str(child.pid))
        at()
        time.sleep(3600)
    if KIND == "flaky" and not os.path.exists(os.environ["MARK"]):
        open(os.environ["MARK"], "w").close()
        sys.exit(3)
    if KIND == "forever":
        at()
    while KIND == "forever":
        print("still here")
        time.sleep(0.02)


for step in range(STEPS + 1):
    if step == 4:
        happen()
    if KIND == "silent" or (KIND == "short" and step == STEPS):
        continue
    loss = "nan" if KIND == "nan" and step >= 4 else f"{10.9 - step:.4f}"
    print(f"step:{step}/{STEPS} val_loss:{loss} train_time:{step * 10}ms step_avg:10.00ms")
if KIND == "nan":
    time.sleep(3600)  # nobody waits for a run that has diverged
