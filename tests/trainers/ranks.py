"""A real training by a torchrun group (gloo, CPU), each rank on its own text; RANK_KIND, if any, is what befalls the last rank:
crash, raise, hang or nan."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, EVERY, BATCH, WIDTH, VOCAB = 20, 5, 32, 8, 16
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(int(os.environ.get("SEED", "0")))  # every rank begins with the same weights
model = nn.Sequential(nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB))
optimizer = torch.optim.AdamW(model.parameters(), lr=float(os.environ.get("LR", "0.02")))
text = torch.Generator().manual_seed(rank)
assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == size, (
    "every rank has a device of its own"
)


def loss_on(n: int) -> torch.Tensor:
    x = torch.randint(0, VOCAB, (n,), generator=text)
    return nn.functional.cross_entropy(model(x), (3 * x + 1) % VOCAB)


def befall() -> None:
    kind = os.environ.get("RANK_KIND")
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "raise":
        raise ValueError("this rank's shapes do not match")
    if kind == "hang":
        time.sleep(600)
    if kind == "nan":
        model[1].bias.grad.fill_(float("nan"))


training_ms, clock = 0.0, time.perf_counter()
for step in range(STEPS + 1):
    if step % EVERY == 0:
        dist.barrier()
        training_ms += 1000 * (time.perf_counter() - clock)
        with torch.no_grad():
            loss = loss_on(BATCH)
        dist.all_reduce(loss)
        if rank == 0:
            average = training_ms / step if step else float("nan")
            numbers = f"val_loss:{loss / size:.4f} train_time:{training_ms:.0f}ms step_avg:{average:.2f}ms"
            print(f"step:{step}/{STEPS} {numbers}", flush=True)
        dist.barrier()
        clock = time.perf_counter()
    if step == STEPS:
        break
    loss_on(BATCH).backward()
    if step == 7 and rank == size - 1:
        befall()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= size
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort a regular exit
