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
from harness.config.schedule import ScheduleValues, followed_at, schedule_at, windows_at
from harness.data.loader import Batch
from harness.model.float8 import Float8Head
from harness.model.gpt import GPT
from harness.model.objective import Objective
from harness.model.parameters import parameters_by_role
from harness.model.precision import FP32, dtypes
from harness.model.tokens import Tokens
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


def filled(tensor: Tensor, values: Sequence[float]) -> Tensor:
    """The tensor with these values: a copy from the host would wait for the device."""
    for place, value in zip(tensor.view(-1), values, strict=True):
        place.fill_(value)
    return tensor


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
        if isinstance(self.model.head, Float8Head):
            self.model.head.averages(config.data.ranks // self.world)
        # validation computes otherwise than training
        rounds = config.model.fp8_head or config.model.logits_dtype != "fp32"
        self._is_modal = bool(self.hooks.on or rounds)
        if precision.rounds:
            narrow_matrices(parameters_by_role(self.model), config.optim)
        compiled = compiles(config, device)
        # validates: shares may be uneven
        self.local = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.forward: Any = self.local
        self.objective = self._objective(tokens)
        trained = self.objective or self.hooks.training(self.model)
        if trained is not self.model:
            self.forward = torch.compile(trained, dynamic=False) if compiled else trained
        if self.world > 1:
            self.forward = DistributedDataParallel(
                self.forward,
                broadcast_buffers=config.system.broadcast_buffers,
                gradient_as_bucket_view=config.system.bucket_view,
            )
        # where validation shares training's graph, whoever comes first decides how it is split
        shared = config.precision.val_grad and not self._is_modal and self.objective is None
        self._unsplit = self.world > 1 and compiled and shared
        self.precision = precision
        self.optimizers = self._new_optimizers()
        self.parameters = list(self.model.parameters())
        self.tie = None  # head and token table, where they are one for a while
        if config.optim.tie_until is not None and self.model.head is not None:
            self.tie = Tie(self.model.head.weight, self.model.embed.weight)
            follow(self.tie)
        self.window = None  # of all layers (), or several, as windows_at has them
        if config.model.attn_window:
            n_windows = len(windows_at(config, 0))
            shape = (n_windows,) if n_windows > 1 else ()
            self.window = torch.zeros(shape, dtype=torch.int32, device=self.device)
        self.loss_weights: tuple[Tensor, ...] = ()  # of the losses on more than the next token

    def _objective(self, tokens: Tokens) -> Objective | None:
        """What training passes batches through where it is on more than the next token."""
        loss = self.config.loss
        if not loss.next_tokens and not loss.prefix_weight:
            return None
        texts = tokens.texts if loss.prefix_weight else None
        with self.device:
            return Objective(self.model, texts)

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

        Returns the attention windows, in tokens or blocks.
        """
        self.values = values = schedule_at(self.config, step)
        set_schedule(self.optimizers, values.lr_factor, values.momentum)
        if self.objective is not None:
            self.loss_weights = self._loss_weights(values)
        return self.set_window(step)

    def _loss_weights(self, values: ScheduleValues) -> tuple[Tensor, ...]:
        """As the objective takes them: none where the loss is the next token's alone.

        Zeros are left out, so that a stage computes what it needs: a graph of its own.
        """
        if values.next_tokens == (1.0,) and not values.prefix_weight:
            return ()
        next_K = torch.empty(len(values.next_tokens), device=self.device)
        weights = [filled(next_K, values.next_tokens)]
        if values.prefix_weight:
            prefix = torch.empty((), device=self.device)
            weights.append(filled(prefix, (values.prefix_weight,)))
        return tuple(weights)

    def set_window(self, step: int) -> Tensor | None:
        """The windows of update `step`, or of the validation before it; what turns q and k follows.

        The same tensors, refilled, so that nothing recompiles.
        """
        if self.window is not None:
            filled(self.window, windows_at(self.config, step))
            self.model.rotary.follow(followed_at(self.config, step))
        return self.window

    def _sync(self, last: bool) -> AbstractContextManager[None]:
        skip = self.world > 1 and self.config.system.no_sync and not last
        return self.forward.no_sync() if skip else nullcontext()

    def gradients(self, batches: Sequence[Batch], window: Tensor | None) -> Tensor:
        """Accumulate the gradient of this process's virtual ranks.

        Returns every micro-step's loss (ranks * micro_steps,).

        Virtual ranks stand for processes and are averaged; micro-steps of a rank are averaged or
        summed (system.accumulate), the tokens of a micro-step, too (loss.reduction). The gradient
        is loss.scale times that.
        """
        n_micro = batches[0][0].shape[0]
        scale = 1 / (len(batches) * (n_micro if self.config.system.accumulate == "mean" else 1))
        if self.config.loss.reduction == "sum_per_rank":
            scale *= batches[0][0][0].numel()
        scale *= self.config.loss.scale
        losses = []
        self._unsplit = False
        for r, (x, y) in enumerate(batches):
            for m in range(n_micro):
                with self._sync(last=r == len(batches) - 1 and m == n_micro - 1):
                    loss = self.forward(x[m], y[m], window, *self.loss_weights)
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
        if self._is_modal:  # what a plug-in adds may be, as dropout is
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
        if self._is_modal:
            self.model.train()
        # this process's share may be none
        return torch.cat(losses)[:n] if losses else torch.zeros(0, device=self.device)
