"""One run, from its specification to its outcome: the timing protocol around the training core."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.config.run import EXPLODED, UNTIMED_STEPS, from_plain
from harness.config.schedule import first_of_a_kind, growth_at, longest_sequence, tokens_trained
from harness.corpora.bpe import token_texts
from harness.corpora.cache import cache_locally
from harness.corpora.index import open_corpus, open_heldout
from harness.corpora.verify import verify
from harness.data.loader import Batch, ValLoader
from harness.data.prefetcher import Prefetcher
from harness.errors import UserError
from harness.model.tokens import Tokens
from harness.run.document import Document
from harness.run.measured import Measured
from harness.run.metrics import HeldoutLoss, MetricRow, TrainingLoss, Validation
from harness.run.spec import Outcome, RunSpec, Status
from harness.training.clock import Clock, Stopwatch
from harness.training.core import Core, compiles
from harness.training.fork import go_on_from, save_trunk
from harness.training.loaders import loaders, val_loader
from harness.training.output import RunOutput
from harness.training.runtime import join_group, set_runtime
from harness.training.utilisation import mfu

GUARDED_STEPS = 5  # system.skip_guards: guards are evaluated this long


def refuse_other(what: str, present: str, planned: str) -> None:
    """Raises UserError unless the text is the one that the run was planned on."""
    if present != planned:
        raise UserError(
            f"{what} has fingerprint {present[:12]}, but the run was planned on {planned[:12]}: "
            "plan it again, or bring that corpus back"
        )


class Training:
    """A run in progress on this process.

    Data to the device, steps, validations, and the account of its time.
    """

    def __init__(self, spec: RunSpec, *, device: str, out: RunOutput) -> None:
        self.config, self.out = from_plain(spec.config), out
        self.first = spec.branch.at if spec.branch else 0  # update
        self.until = spec.until  # a trunk ends before this update
        self.rows: list[Document] = []  # of a trunk's curve
        self.trunk_s = 0.0  # training time of the trunk that it goes on from
        self.stopwatch = Stopwatch()
        with self.stopwatch.phase("build_s"):
            self.rank = join_group(spec.world_size, device)
            set_runtime(self.config, device, seed=spec.seed)
        with self.stopwatch.phase("data_s"):
            corpus = open_corpus(self.config.data.corpus)
            refuse_other(f"corpus '{corpus.name}'", corpus.fingerprint, spec.data_fingerprint)
            if self.config.data.cache == "local":
                corpus = cache_locally(corpus)
            verify(corpus)
            heldout = (
                open_heldout(self.config.data.heldout, corpus) if self.config.data.heldout else None
            )
            if heldout is not None:
                if heldout.name != corpus.name:
                    verify(open_corpus(heldout.name))
                refuse_other(
                    f"the held-out text of '{heldout.name}'",
                    heldout.fingerprint,
                    str(spec.heldout_fingerprint),
                )
        with self.stopwatch.phase("build_s"):
            tokens = Tokens(
                vocab_size=corpus.vocab_size,
                separator=corpus.separator,
                seq_len=longest_sequence(self.config),
                texts=token_texts(corpus) if self.config.loss.prefix_weight else None,
            )
            self.core = Core(self.config, tokens, seed=spec.seed, device=device)
        with self.stopwatch.phase("data_s"):
            mine: dict[str, Any] = {
                "rank": self.rank,
                "world_size": spec.world_size,
                "device": device,
            }
            self.stream, self.val = loaders(self.config, corpus, seed=spec.seed, **mine)
            self.heldout: ValLoader | None = None
            if heldout is not None:
                n_tokens = heldout.first_tokens(
                    self.config.data.val_tokens, self.config.data.val_portion[0]
                )
                self.heldout = val_loader(self.config, heldout.shards, n_tokens, **mine)
        self.compiled, self.vocab_size = compiles(self.config, device), corpus.vocab_size
        self.clock = Clock(self.core.device)
        self.untimed_steps = UNTIMED_STEPS if self.config.timing.protocol == "skip10" else 0
        self.losses: list[Tensor] = []  # since the last validation, on the device
        self.first_val = self.last_val = self.heldout_loss = math.nan

    def on_device(self, batches: Any) -> list[Batch]:
        pinned = self.config.data.pinned
        return [
            (
                x.to(self.core.device, non_blocking=pinned),
                y.to(self.core.device, non_blocking=pinned),
            )
            for x, y in batches
        ]

    def dummy(self, step: int | None) -> list[Batch]:
        """Zeros in the shape of update `step`'s batches, None: of a validation's."""
        d = self.config.data
        if step is None:
            micro_tokens, seq_len = d.val_portion
            shape = (1, micro_tokens // seq_len, seq_len)
        else:
            shape = (
                d.batch_tokens // (d.ranks * d.micro_tokens),
                d.micro_tokens // d.seq_len,
                growth_at(self.config, step) * d.seq_len,
            )
        x = torch.zeros(shape, dtype=getattr(torch, d.input_dtype), device=self.core.device)
        return [(x, x.long())] * (d.ranks // self.core.world)

    def warm_up(self) -> None:
        """Meet every shape of the run on dummy data, so that kernels are compiled and chosen.

        Everything is put back as it was.
        """
        state = [*self.core.parameters, *self.core.model.buffers()]
        before = [t.detach().clone() for t in state]
        random = (
            torch.get_rng_state(),
            (torch.cuda.get_rng_state() if self.core.device.type == "cuda" else None),
        )
        with self.stopwatch.phase("compile_s" if self.compiled else "warmup_s"):
            self.core.update(0, self.dummy(0))
            x, y = self.dummy(None)[0]
            self.core.evaluate(0, [(x[0], y[0])])
            for step in first_of_a_kind(self.config)[1:]:
                self.core.update(step, self.dummy(step))
        with self.stopwatch.phase("warmup_s"):
            self.core.update(1, self.dummy(1))
            with torch.no_grad():
                self.core.set_window(0)
                for t, value in zip(state, before, strict=True):
                    t.copy_(value)
                self.core.reset_optimizers()
            torch.set_rng_state(random[0])
            if random[1] is not None:
                torch.cuda.set_rng_state(random[1])

    def validate(self, step: int, val: ValLoader) -> float:
        """Mean loss over a set's tokens on all processes, nats per token."""
        total = self.core.evaluate(step, (self.on_device([b])[0] for b in val)).double().sum()
        if self.core.world > 1:
            dist.all_reduce(total)
        return float(total) / val.n_micro

    def validate_heldout(self, step: int) -> None:
        """The second metric: the last weights on other text."""
        if self.heldout is not None:
            self.heldout_loss = self.validate(step, self.heldout)
            self.out.metric(HeldoutLoss(step=step, heldout_loss=self.heldout_loss))
            self.out.log(
                f"step:{step}/{self.config.schedule.steps} heldout_loss:{self.heldout_loss:.4f}"
            )

    def report(self, step: int, val_loss: float) -> bool:
        """Write what is known at a validation; True if the run has diverged."""
        train = self.training_losses()
        for i, loss in enumerate(train):
            self.note(TrainingLoss(step=step - len(train) + i, train_loss=loss))
        times = self.clock.new_step_ms() if step > self.untimed_steps else []
        tokens = tokens_trained(self.config, range(step))
        point = Validation(
            step=step,
            val_loss=val_loss,
            train_time_s=self.clock.elapsed_s,
            tokens=tokens if self.config.schedule.batch_growth else None,
            step_times_ms=[round(ms, 2) for ms in times],
        )
        self.note(point)
        self.last_val = val_loss
        if step == 0:
            self.first_val = val_loss
        return not all(map(math.isfinite, train)) or self.has_exploded(val_loss)

    def note(self, row: MetricRow) -> None:
        """Write a point of the curve; what goes on from a trunk has it too."""
        self.out.metric(row)
        if self.until:
            self.rows.append(row.to_json())

    def training_losses(self) -> list[float]:
        """The mean loss of every update since the last validation, over all processes."""
        if not self.losses:
            return []
        means = torch.stack(self.losses).mean(1)
        self.losses.clear()
        if self.core.world > 1:
            dist.all_reduce(means)
        losses: list[float] = (means / self.core.world).tolist()
        return losses

    def has_exploded(self, val_loss: float) -> bool:
        """Whether a validation loss is not finite, or far above the first and a guess at random."""
        guess = math.log(self.vocab_size)
        first = self.first_val if math.isfinite(self.first_val) else 0.0
        return not math.isfinite(val_loss) or val_loss > EXPLODED * max(first, guess)

    def run(self, stop: Callable[[], bool]) -> tuple[int, Status]:
        """The protocol: validate, stop, step. Returns the number of updates done and the status."""
        n_steps, every = self.config.schedule.steps, self.config.data.val_every
        self.clock.start()
        # one more than the updates, so that the last validation sees the last weights
        for step in range(self.first, n_steps + 1):
            goes_on = step == self.first > 0  # the trunk validated here
            validates = (step % every == 0 or step == n_steps) and not goes_on
            if self.is_checkpoint(step, validates=validates):
                self.clock.stop()
                self.checkpoint(step)
                self.clock.start()
            if validates:
                self.clock.stop()
                with self.stopwatch.phase("validate_s"):
                    diverged = self.report(step, self.validate(step, self.val))
                    if step == n_steps and not diverged:
                        self.validate_heldout(step)
                if diverged or step == n_steps:
                    return step, "diverged" if diverged else "finished"
                self.clock.start()
            if step == self.until:
                self.clock.stop()
                save_trunk(self, step)
                return step, "finished"
            if stop():
                self.clock.stop()
                return step, "interrupted"
            if step == self.untimed_steps > 0:
                self.clock.restart()
            if (
                step - self.first == GUARDED_STEPS
                and self.config.system.skip_guards
                and self.compiled
            ):
                torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
            self.losses.append(self.core.update(step, self.on_device(next(self.stream))))
            self.clock.mark()
            self.out.heartbeat(step, n_steps)
        raise AssertionError("the last validation ends the run")

    def is_checkpoint(self, step: int, *, validates: bool) -> bool:
        """Whether model and optimizers are saved before update `step`.

        After the last update they are, unless `system.checkpoint` is "none".
        """
        s = self.config.system
        due = validates if s.checkpoint_every is None else step % s.checkpoint_every == 0
        return s.checkpoint != "none" and (
            step == self.config.schedule.steps or (s.checkpoint == "every" and due)
        )

    def checkpoint(self, step: int) -> None:
        """Save model and optimizers, on the first process."""
        if self.rank == 0:
            state = {
                "step": step,
                "model": self.core.model.state_dict(),
                "optimizers": [o.state_dict() for o in self.core.optimizers],
            }
            self.out.save("checkpoint.pt", lambda file: torch.save(state, file))

    def final(self, step: int) -> Measured:
        """The numbers of result.json."""
        ms, tokens = self.clock.step_ms, tokens_trained(self.config, range(step))
        mean = statistics.fmean(ms) if ms else None
        tokens_per_s = tokens / step / mean * 1000 if mean else None
        allocated_mib = reserved_mib = None
        if self.core.device.type == "cuda":  # read before the device's rate is measured
            allocated_mib = torch.cuda.max_memory_allocated() / 2**20
            reserved_mib = torch.cuda.max_memory_reserved() / 2**20
        return Measured(
            val_loss=self.last_val,
            heldout_loss=self.heldout_loss,
            train_time_s=self.clock.elapsed_s,
            steps=step,
            tokens=tokens,
            parameters=sum(map(Tensor.numel, self.core.model.parameters())),
            step_ms=mean,
            step_ms_median=statistics.median(ms) if ms else None,
            step_ms_p95=statistics.quantiles(ms, n=20, method="inclusive")[-1]
            if len(ms) > 1
            else None,
            tokens_per_s=tokens_per_s,
            mfu=self._mfu(tokens_per_s) if tokens_per_s else None,
            peak_allocated_mib=allocated_mib,
            peak_reserved_mib=reserved_mib,
        )

    def _mfu(self, tokens_per_s: float) -> float:
        return mfu(
            self.config,
            self.vocab_size,
            tokens_per_s,
            device=self.core.device.type,
            dtype=self.core.precision.matmul,
            world=self.core.world,
        )


def train(spec: RunSpec, *, out: RunOutput, device: str, stop: Callable[[], bool]) -> Outcome:
    """Train the run that `spec` describes; its curve goes to `out`, its end is the outcome.

    Divergence and OOM are outcomes.
    """
    training: Training | None = None
    try:
        training = Training(spec, device=device, out=out)
        # steps of a trunk's own were untimed: what goes on from it compiles before the clock
        if training.config.timing.protocol == "warmup-restore" or spec.branch:
            training.warm_up()
        if spec.branch:
            go_on_from(training, out.trunk_file)
        step, status = training.run(stop)
    except torch.OutOfMemoryError as error:
        peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
        return Outcome(
            status="oom", reason=str(error).splitlines()[0], final=Measured(peak_allocated_mib=peak)
        )
    finally:
        if training is not None and isinstance(training.stream, Prefetcher):
            training.stream.close()
    wall = {**training.stopwatch.seconds, "train_s": sum(training.clock.own_step_ms()) / 1000}
    if spec.branch:
        wall["trunk_s"] = training.trunk_s
    reason = f"the loss was not finite or exploded at step {step}" if status == "diverged" else None
    return Outcome(
        status=status,
        reason=reason,
        final=training.final(step),
        wall=wall,
        timed=tuple(training.clock.spans),
    )
