"""The training core.

One model, its optimizers and the update, on this process's share of a global batch.

It is fed batches and keeps no clock; harness/training/train.py is the protocol around it,
harness/bench/replay.py feeds it recordings.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from harness.config.run import RunConfig
from harness.config.schedule import schedule_at, window_at
from harness.data.loader import Batch
from harness.model.gpt import GPT, Tokens
from harness.model.parameters import parameters_by_role
from harness.model.precision import FP32, dtypes
from harness.optim.build import (
    build_optimizers,
    narrow_matrices,
    normalize_gradients,
    set_schedule,
)
from harness.optim.cadence import act
from harness.optim.tying import Tie, follow
from harness.training.hooks import Hooks

# losses of a validation in one tensor: each by itself would lie between two passes, and hold their
# memory apart
LOSSES_PER_CHUNK = 1024


def compiles(config: RunConfig, device: str) -> bool:
    """Whether torch.compile is used.

    By request, or by default on CUDA alone (on a CPU it costs more than short runs gain).
    """
    return config.system.compile == "on" or (config.system.compile == "auto" and device == "cuda")


class Core:
    def __init__(
        self, config: RunConfig, tokens: Tokens, *, seed: int, device: str = "cpu"
    ) -> None:
        self.config, self.device = config, torch.device(device)
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.hooks = Hooks(config)
        precision = dtypes(config.precision.mode, config.precision.policy)
        with self.device:
            self.model = GPT(config.model, tokens, precision)
            self.hooks.build(self.model)
        self.model.initialize(seed)
        if precision.rounds:
            narrow_matrices(parameters_by_role(self.model), config.optim)
        compiled = compiles(config, device)
        # validates: shares may be uneven
        self.local = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.forward: Any = self.local
        trained = self.hooks.training(self.model)
        if trained is not self.model:
            self.forward = torch.compile(trained, dynamic=False) if compiled else trained
        if self.world > 1:
            self.forward = DistributedDataParallel(
                self.forward,
                broadcast_buffers=config.system.broadcast_buffers,
                gradient_as_bucket_view=config.system.bucket_view,
            )
        # where validation shares training's graph, whoever comes first decides how it is split
        shared = config.precision.val_grad and not self.hooks.on
        self._unsplit = self.world > 1 and compiled and shared
        self.precision = precision
        self.optimizers = self._new_optimizers()
        self.parameters = list(self.model.parameters())
        self.tie = None  # head and token table, where they are one for a while
        if config.optim.tie_until is not None and self.model.head is not None:
            self.tie = Tie(self.model.head.weight, self.model.embed.weight)
            follow(self.tie)
        self._window = (
            torch.zeros((), dtype=torch.int32, device=self.device)
            if config.model.attn_window
            else None
        )

    def _new_optimizers(self) -> list[torch.optim.Optimizer]:
        return build_optimizers(
            parameters_by_role(self.model),
            self.config.optim,
            dtype=self.precision.matmul,
            device_type=self.device.type,
            head_dim=self.config.model.head_dim,
            compile=compiles(self.config, self.device.type),
            own=self.hooks.rules(),
        )

    @torch.no_grad()
    def reset_optimizers(self) -> None:
        """As they were before the first update, without gradients that waited to be used."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        if self.hooks.rules() is not None:  # who knows what a plug-in's rule starts from
            self.optimizers = self._new_optimizers()
            return
        for optimizer in self.optimizers:  # every rule of ours starts from zeros
            for memory in optimizer.state.values():
                for value in memory.values():
                    if isinstance(value, Tensor):
                        value.zero_()

    def set_step(self, step: int) -> Tensor | None:
        """Write the schedules of update `step` (0-based), which the next `step()` goes by.

        Returns the attention window, in tokens or blocks.
        """
        self.values = values = schedule_at(self.config, step)
        set_schedule(self.optimizers, values.lr_factor, values.momentum)
        return self.set_window(step)

    def set_window(self, step: int) -> Tensor | None:
        """The window of update `step`, or of the validation before it.

        One tensor, refilled, so that nothing recompiles.
        """
        if self._window is not None:
            window = window_at(self.config, step)
            assert window is not None
            self._window.fill_(window)
        return self._window

    def _sync(self, last: bool) -> AbstractContextManager[None]:
        skip = self.world > 1 and self.config.system.no_sync and not last
        return self.forward.no_sync() if skip else nullcontext()

    def gradients(self, batches: Sequence[Batch], window: Tensor | None) -> Tensor:
        """Accumulate the gradient of this process's virtual ranks.

        Returns every micro-step's loss (ranks * micro_steps,).

        Virtual ranks stand for processes and are averaged; micro-steps of a rank are averaged or
        summed (system.accumulate).
        """
        n_micro = batches[0][0].shape[0]
        scale = 1 / (len(batches) * (n_micro if self.config.system.accumulate == "mean" else 1))
        losses = []
        self._unsplit = False
        for r, (x, y) in enumerate(batches):
            for m in range(n_micro):
                with self._sync(last=r == len(batches) - 1 and m == n_micro - 1):
                    loss = self.forward(x[m], y[m], window)
                    self.hooks.check_loss(loss)
                    (loss if scale == 1 else loss * scale).backward()
                losses.append(loss.detach())
        return torch.stack(losses)

    def step(self) -> None:
        """Apply the accumulated gradient and drop what was used of it."""
        if self.config.optim.grad_norm_per_tensor:
            normalize_gradients(self.parameters)
        act(
            self.optimizers,
            adam=self.values.adam_acts,
            scalars_rest=self.values.scalars_rest,
            tie=self.tie,
            tied=self.values.tied,
        )

    def update(self, step: int, batches: Sequence[Batch]) -> Tensor:
        """Update `step`: schedules, gradient, optimizers.

        Returns the micro-steps' losses, still on the device.
        """
        losses = self.gradients(batches, self.set_step(step))
        self.step()
        return losses

    def evaluate(self, step: int, batches: Iterable[Batch]) -> Tensor:
        """Mean loss of every validation micro-batch (x, y) before update `step`, on the device.

        x and y are (rows, seq_len). Before any training every process needs at least one.
        """
        window = self.set_window(step)
        if self.hooks.on:  # what it adds may behave otherwise while training, as dropout does
            self.model.eval()
        forward = self.local
        if self._unsplit:  # DDP splits what is compiled inside it, so that reduction overlaps
            forward, self._unsplit = self.forward, False
        if self.config.precision.val_fp32:
            self.model.set_matmul_dtype(FP32)
        with nullcontext() if self.config.precision.val_grad else torch.no_grad():
            losses, n = [], 0
            for n, (x, y) in enumerate(batches, start=1):
                if n % LOSSES_PER_CHUNK == 1:
                    losses.append(torch.empty(LOSSES_PER_CHUNK, device=self.device))
                losses[-1][(n - 1) % LOSSES_PER_CHUNK] = forward(x, y, window).detach()
                forward = self.local
        if self.config.precision.val_fp32:
            self.model.set_matmul_dtype(self.precision.matmul)
        if self.hooks.on:
            self.model.train()
        # this process's share may be none
        return torch.cat(losses)[:n] if losses else torch.zeros(0, device=self.device)
