"""The laws of an idea of one's own, asked of the arms of its experiment: what test_NAME.py runs.

Every arm that a plug-in is on in is trained for a few updates beside the baseline, on a few
thousand made-up tokens at a small width, whatever the experiment's own sizes are.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.config.plugin_errors import told_in_a_line
from harness.config.plugins import declared, switched_on
from harness.config.run import RunConfig, with_fields
from harness.config.schedule import schedule_at
from harness.corpora.corpus import Corpus, write_corpus
from harness.data.shards import write_shard
from harness.experiment.experiment import load_experiment
from harness.model.tokens import Tokens
from harness.training.core import Core
from harness.training.loaders import loaders

SEQ_LEN, VOCAB, SEPARATOR, UPDATES, SEED = 256, 257, 256, 5, 1
SMALL = {
    "model.d_model": 64,
    "model.head_dim": 16,
    "data.seq_len": SEQ_LEN,
    "data.micro_tokens": SEQ_LEN,
    "data.ranks": 1,
    "data.batch_tokens": SEQ_LEN,
    "data.val_tokens": SEQ_LEN,
    "schedule.window_tokens": SEQ_LEN,
    "system.compile": "off",
}
NEAR = 1e-5  # nats, or a logit: further apart is another number


class Trained:
    """A configuration's core after a few updates, and what it met on the way."""

    def __init__(self, config: RunConfig, corpus: Corpus) -> None:
        tokens = Tokens(vocab_size=VOCAB, separator=SEPARATOR, seq_len=SEQ_LEN)
        torch.manual_seed(SEED)
        self.core = Core(config, tokens, seed=SEED)
        self.initial = {n: p.detach().clone() for n, p in self.core.model.named_parameters()}
        train, val = loaders(config, corpus, seed=SEED, rank=0, world_size=1, device="cpu")
        self.batches = [next(train) for _ in range(UPDATES + 1)]
        (self.val,) = val
        losses = [self.core.update(i, batch) for i, batch in enumerate(self.batches[:UPDATES])]
        self.losses = torch.cat(losses)
        self.val_loss = self.core.evaluate(UPDATES, [self.val])
        self.after = {n: p.detach().clone() for n, p in self.core.model.named_parameters()}

    def differs(self, other: "Trained") -> bool:
        """In any weight after the updates, or any loss."""
        if self.after.keys() != other.after.keys() or not torch.equal(self.losses, other.losses):
            return True
        return any(not torch.equal(p, other.after[n]) for n, p in self.after.items())

    def factors(self) -> list[float]:
        """What multiplies the learning rates, over the whole run."""
        config = self.core.config
        return [schedule_at(config, step).lr_factor for step in range(config.schedule.steps)]

    def logits(self, ids: Tensor) -> Tensor:
        """As a validation has them."""
        with torch.no_grad():
            self.core.model.eval()
            logits = self.core.model.logits(ids, self.core.set_window(UPDATES))
            self.core.model.train()
        return logits

    def sees_the_future(self) -> bool:
        ids, half = self.val[0], SEQ_LEN // 2
        other = torch.cat([ids[:, :half], (ids[:, half:] + 1) % SEPARATOR], dim=1)
        apart = (self.logits(ids) - self.logits(other))[:, :half].abs().max()
        return bool(apart > NEAR)

    @cached_property
    def learning(self) -> set[str]:
        """Parameters with a gradient somewhere, after the updates."""
        core = self.core
        core.gradients(self.batches[UPDATES], core.set_step(UPDATES))
        named = core.model.named_parameters()
        return {n for n, p in named if p.grad is not None and bool(p.grad.any())}


class Subject:
    """An experiment's baseline, and its arms that a plug-in is on in, each trained once."""

    def __init__(self, experiment: Path, folder: Path) -> None:
        """folder: an empty one, for the corpus. Raises UserError where a plug-in fails."""
        arms = load_experiment(str(experiment), device="cpu").arms
        self.corpus = made_up(folder)
        self.config = with_fields(arms[0].config, SMALL)
        self.configs: dict[str, RunConfig] = {}
        for arm in arms[1:]:
            if switched_on(arm.config.plugin):
                self.configs[arm.name] = with_fields(arm.config, SMALL)
        self.baseline = Trained(self.config, self.corpus)  # before a plug-in was on in here
        with told_in_a_line():
            self.arms = {name: Trained(c, self.corpus) for name, c in self.configs.items()}


def made_up(folder: Path) -> Corpus:
    """A corpus of documents of random tokens, of 5 to 99 each."""
    draw = np.random.default_rng(SEED)
    documents = []
    for n in draw.integers(4, 99, 200):
        documents.append([SEPARATOR, *draw.integers(0, SEPARATOR, n)])
    tokens = np.concatenate(documents).astype(np.uint16)
    shards = {role: [folder / f"{role}.bin"] for role in ("train", "val")}
    for (path,) in shards.values():
        write_shard(path, tokens)
    facts: Any = {"vocab_size": VOCAB, "separator": SEPARATOR, "unit": "nats per token"}
    return write_corpus(folder, shards, **facts, source="made up")


def hold(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def off_is_the_preset(subject: Subject) -> None:
    """With every field at its default it is the preset, bit for bit, after other arms, too."""
    defaults = {name: field.default for name, field in declared().items()}
    off = Trained(with_fields(subject.config, defaults), subject.corpus)
    hold(
        not off.differs(subject.baseline),
        "switched off, the plug-in still changes training: does it change a class, or a module?",
    )


def validation_is_plain_cross_entropy(subject: Subject) -> None:
    """Of the network's logits, whatever is trained on."""
    for name, arm in subject.arms.items():
        x, y = arm.val
        plain = F.cross_entropy(arm.logits(x).flatten(0, 1), y.flatten())
        apart = float((arm.val_loss - plain).abs().max())
        hold(apart <= NEAR, f"arm {name}: val_loss is {apart:.2g} off plain cross-entropy")


def an_arm_differs_from_the_baseline(subject: Subject) -> None:
    """In what it trains on, its weights after a few updates, or its learning rates."""
    hold(bool(subject.arms), "no arm of the experiment sets a field of the plug-in")
    for name, arm in subject.arms.items():
        changed = arm.differs(subject.baseline) or arm.factors() != subject.baseline.factors()
        hold(changed, f"arm {name} trains as the baseline does: is the hook's result used?")


def the_same_seed_is_the_same_run(subject: Subject) -> None:
    """Bit for bit: whatever is drawn is drawn from the run's seed."""
    for name, config in subject.configs.items():
        again = Trained(config, subject.corpus)
        hold(
            not again.differs(subject.arms[name]),
            f"arm {name} differs from itself: draw from the seed, or from torch's own generator",
        )


def no_weight_that_was_there_begins_elsewhere(subject: Subject) -> None:
    """Weights are drawn by seed and name."""
    before = subject.baseline.initial
    for name, arm in subject.arms.items():
        for weight, p in arm.initial.items():
            moved = weight in before and not torch.equal(p, before[weight])
            hold(not moved, f"arm {name} begins with another {weight}: keep its name and shape")


def no_position_sees_the_future(subject: Subject) -> None:
    """The logits of the first half are the same whatever stands in the second."""
    for name, arm in subject.arms.items():
        hold(not arm.sees_the_future(), f"arm {name}: a position sees what comes after it")


def every_parameter_learns(subject: Subject) -> None:
    """Those that are new, and those that learn in the baseline."""
    idle = subject.baseline.after.keys() - subject.baseline.learning
    for name, arm in subject.arms.items():
        still = sorted(arm.after.keys() - arm.learning - idle)
        hold(not still, f"arm {name}: {', '.join(still[:3])} has no gradient: is it used?")


LAWS: Mapping[str, Callable[[Subject], None]] = {
    law.__name__: law
    for law in (
        off_is_the_preset,
        validation_is_plain_cross_entropy,
        an_arm_differs_from_the_baseline,
        the_same_seed_is_the_same_run,
        no_weight_that_was_there_begins_elsewhere,
        no_position_sees_the_future,
        every_parameter_learns,
    )
}
