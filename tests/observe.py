"""What a configuration makes, taken apart by what a toggle may affect (model.config.AFFECTS): the eyes of the law tests.

One tiny training run of each configuration through harness.training.train, with the CUDA calls and torch.compile recorded instead
of made, and the process group of two played by one process.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

import harness.model.mask
import harness.training.core
import harness.training.loaders
import harness.training.train
from harness.config.run import RunConfig, plain
from harness.config.schedule import longest_sequence, schedule_at
from harness.corpora.corpus import TOKENIZER_FILE, HeldOut, write_corpus
from harness.data.shards import write_shard
from harness.model.attention import KERNELS
from harness.model.config import AFFECTS
from harness.model.gpt import GPT
from harness.model.tokens import Tokens
from harness.optim.exchange import EXCHANGES, Ranks
from harness.optim.muon import Muon
from harness.run.metrics import MetricRow
from harness.run.spec import RunSpec, is_exclusive
from harness.training.core import Core
from harness.training.output import Silent

SEPARATOR, VOCAB = 256, 257
TEXTS = [
    bytes([97 + i % 8] * (1 + i // 8)) for i in range(SEPARATOR)
]  # tokens that begin with others
RUNS_ON_CPU = ("sdpa", "math", "dense")


def digest(value: Tensor) -> str:
    array = value.detach().contiguous().view(-1).view(torch.uint8).numpy()
    return f"{tuple(value.shape)} {value.dtype} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


# ---------------------------------------------------------------- a corpus


def make_corpora(folder: Path) -> Mapping[str, Any]:
    """Two corpora of a Markov chain's text; shard lengths at which the three shard-switch rules differ."""
    corpora = {}
    for seed, name in enumerate(("stdlib", "other")):
        random = np.random.default_rng(seed)
        tokens = (random.integers(0, 64, 11_000) + 3 * np.arange(11_000)) % 97
        tokens[random.integers(0, 11_000, 60)] = SEPARATOR
        shards, start = [], 0
        (folder / name).mkdir()
        for i, length in enumerate((2049, 2048, 2050, 2049)):
            shards.append(folder / name / f"train{i}.bin")
            write_shard(shards[-1], tokens[start : start + length].astype(np.uint16))
            start += length
        vocabulary = {text.decode(): i for i, text in enumerate(TEXTS)}
        (folder / name / TOKENIZER_FILE).write_text(json.dumps({"model": {"vocab": vocabulary}}))
        val = folder / name / "val.bin"
        write_shard(val, tokens[start : start + 2049].astype(np.uint16))
        corpora[name] = write_corpus(
            folder / name,
            {"train": shards, "val": [val]},
            vocab_size=VOCAB,
            separator=SEPARATOR,
            unit="nats per token",
            source="made for the tests",
        )
    return corpora


# ---------------------------------------------------------------- a run, watched


class Spy(Core):
    """A core that notes the dtypes inside its network, and the gradients of its last update."""

    last: "Spy"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Spy.last = self
        self.seen: dict[str, Any] = {}  # module -> dtype of its output
        self.grads: dict[str, Tensor | None] = {}
        stand_in(self.model)
        for name, module in self.model.named_modules():
            module.register_forward_hook(lambda m, i, o, name=name: self.note(name, o))

    def note(self, name: str, output: Any) -> None:
        self.seen[name] = next((str(t.dtype) for t in _tensors(output)), None)
        self.grad_mode = torch.is_grad_enabled()

    def evaluate(self, *args: Any) -> Tensor:
        trained, self.seen = self.seen, {}
        try:
            return super().evaluate(*args)
        finally:
            self.validated, self.seen = (self.seen, self.grad_mode), trained

    def step(self) -> None:
        self.grads = {
            n: None if p.grad is None else p.grad.clone() for n, p in self.model.named_parameters()
        }
        super().step()


def flex_by_hand(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, scale: float | None = None
) -> Tensor:
    """What FlexAttention computes from a block mask's lists and mask function, by SDPA: it has no backward pass on a CPU."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=dense_of(mask, q.shape[2]), scale=scale
    )


STAND_INS = {"flex": flex_by_hand, "flash": KERNELS["sdpa"], "cudnn": KERNELS["sdpa"]}


def kernel_of(attention: Any) -> str:
    return next(name for name, kernel in KERNELS.items() if kernel is attention.kernel)


def stand_in(network: GPT) -> None:
    """Replace the kernels that need CUDA."""
    for block in network.blocks:
        if block.attn is not None and kernel_of(block.attn) in STAND_INS:
            block.attn.kernel = STAND_INS[kernel_of(block.attn)]


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []


class Rows(Silent):
    """A run's writer that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.saved: list[str] = []

    def metric(self, row: MetricRow) -> None:
        self.rows.append(row.to_json())

    def save(self, name: str, write: Callable[..., Any]) -> None:
        self.saved.append(name)


def train(config: RunConfig, corpora: Mapping[str, Any]) -> dict[str, Any]:
    """One run on the CPU, compilation recorded instead of made."""
    spec = RunSpec(config=plain(config), seed=0, budget=config.schedule.steps, data_name="x",
                   data_fingerprint=corpora[config.data.corpus].fingerprint,
                   heldout_fingerprint="e" * 64, source_digest="", environment_digest="")  # fmt: skip
    out, made, stances, restarts, warmed, cached = Rows(), [], [], [], [], []

    def heldout(name: str, corpus: Any) -> HeldOut:
        return HeldOut(
            name=name,
            shards=tuple(corpora[name].val),
            n_tokens=2049,
            bytes_per_token=None,
            fingerprint="e" * 64,
        )

    restart = harness.training.train.Clock.restart
    with ExitStack() as stack:
        for target, name, value in (
            (harness.training.train, "Core", Spy),
            (harness.training.train, "open_corpus", corpora.__getitem__),
            (harness.training.train, "open_heldout", heldout),
            (
                harness.training.train,
                "cache_locally",
                lambda corpus: (cached.append(corpus.name), corpus)[1],
            ),
            (harness.training.train, "UNTIMED_STEPS", 2),
            (harness.training.train, "GUARDED_STEPS", 2),
            (harness.training.train.Training, "warm_up", lambda self: warmed.append(True)),
            (
                harness.training.train.Clock,
                "restart",
                lambda self: (restarts.append(len(self.marks)), restart(self)),
            ),
            (torch, "compile", lambda f, **kw: (made.append(sorted(kw)), f)[1]),
            (torch.compiler, "set_stance", lambda *a, **kw: stances.append((a, kw))),
        ):
            stack.enter_context(patch.object(target, name, value))
        outcome = harness.training.train.train(spec, out=out, device="cpu", stop=lambda: False)
    validated = [(r["kind"], r["step"]) for r in out.rows if r["kind"] in ("val", "heldout")]
    core = Spy.last
    parts = {name: dtype for name, dtype in core.seen.items() if name}  # not the whole network
    validating = {name: dtype for name, dtype in core.validated[0].items() if name}
    return {
        "status": outcome.status,
        "losses": [r["train_loss"] for r in out.rows if r["kind"] == "train"],
        "weights": [digest(p) for p in core.model.parameters()],
        "precision": core.seen,
        "validation": (validated, validating == parts, core.validated[1]),
        "runtime": (made, stances, out.saved, cached),
        "clock": (warmed, restarts, outcome.final.steps),
        "grads": core.grads,
    }


# ---------------------------------------------------------------- what is built


def build(config: RunConfig) -> Core:
    tokens = Tokens(
        vocab_size=VOCAB,
        separator=SEPARATOR,
        seq_len=longest_sequence(config),
        texts=[*TEXTS, None],
    )
    return Core(config, tokens, seed=0)


def parameters(network: GPT) -> dict[str, Any]:
    return {n: (tuple(p.shape), str(p.dtype), p.role) for n, p in network.named_parameters()}  # type: ignore[attr-defined]


def groups(core: Core) -> list[Any]:
    """Optimizers as (class, settings, groups as (role, settings)); the names of parameters are no part of it."""
    out = []
    for o in core.optimizers:
        settings = [
            {k: v for k, v in g.items() if k not in ("params", "names", "momentum")}
            for g in o.param_groups
        ]
        own = {k: v for k, v in vars(o).items() if k in ("require_grad",)}
        out.append((type(o).__name__, own, settings))
    return out


def schedule(core: Core) -> list[Any]:
    """Batch, growth of the scores, factor on the rates, momentum, window and losses' weights of every update, and the last validation's window."""
    out = []
    for step in range(core.config.schedule.steps):
        window = core.set_step(step)
        every = [g for o in core.optimizers for g in o.param_groups]
        batch, growth = schedule_at(core.config, step).growth, core.model.rotary.growth
        out.append((batch, None if growth is None else float(growth), {round(g["lr"] / g["base_lr"], 12) for g in every}, {g["momentum"] for g in every if "momentum" in g},
                    None if window is None else window.tolist(), [w.tolist() for w in core.loss_weights]))  # fmt: skip
    last = core.set_window(core.config.schedule.steps)
    return [*out, None if last is None else last.tolist()]


def documents(T: int, every: int = 200) -> Tensor:
    """(1, T) token ids with a separator every so often."""
    ids = torch.arange(T) % 97
    ids[every::every] = SEPARATOR
    return ids[None]


def dense_of(block: BlockMask, T: int) -> Tensor:
    """(T, T): what FlexAttention lets through, from its lists of blocks and its mask function, written out."""
    size = block.BLOCK_SIZE[0]
    q, k = torch.arange(T)[:, None], torch.arange(T)[None, :]
    zero = torch.zeros((), dtype=torch.int32)
    exact = block.mask_mod(zero, zero, q, k)
    seen = torch.zeros(T, T, dtype=torch.bool)

    def fill(counts: Tensor, indices: Tensor, whole: bool) -> None:
        for i in range(T // size):
            for j in indices[0, 0, i, : counts[0, 0, i]].tolist():
                tile = (slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size))
                assert not seen[tile].any(), "a block listed twice"
                seen[tile] = True if whole else exact[tile]

    fill(block.kv_num_blocks, block.kv_indices, False)
    if block.full_kv_num_blocks is not None:
        fill(block.full_kv_num_blocks, block.full_kv_indices, True)  # type: ignore[arg-type]
    return seen


def masks(core: Core) -> tuple[Any, Any]:
    """(which keys are seen in the first and the last step, what the kernel is handed)."""
    T, out, lists = core.config.data.seq_len, [], []
    traced = Mock(wraps=harness.model.mask.create_block_mask)
    for step in (0, core.config.schedule.steps):
        with patch.object(harness.model.mask, "create_block_mask", traced):
            of_layers = core.model.masks(documents(T), core.set_window(step))
        for mask in dict.fromkeys(of_layers):
            if isinstance(mask, BlockMask):
                lists.append(
                    [
                        None if t is None else digest(t)
                        for t in (mask.kv_num_blocks, mask.full_kv_num_blocks)
                    ]
                )
                mask = dense_of(mask, T)
            # what is added to the scores: nothing where a key is seen
            if mask is not None and mask.is_floating_point():
                mask = mask == 0
            out.append(digest(torch.ones(T, T, dtype=torch.bool).tril() if mask is None else mask))
    kernels = {kernel_of(block.attn) for block in core.model.blocks if block.attn is not None}
    return out, (kernels, lists, traced.call_count)


# ---------------------------------------------------------------- two processes played by one


class Replica(nn.Module):
    """What Core asks of DistributedDataParallel, noted."""

    def __init__(self, module: nn.Module, **settings: Any) -> None:
        super().__init__()
        self.module, self.settings, self.quiet, self.quietly = module, settings, False, []

    def forward(self, *args: Any) -> Tensor:
        self.quietly.append(self.quiet)
        return self.module(*args)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.quiet = True
        yield
        self.quiet = False


def comm(config: RunConfig) -> Any:
    """DDP's settings, on which micro-steps it is quiet, and who exchanges the matrices' updates, for two processes."""
    with (
        patch.object(harness.training.core.dist, "is_initialized", lambda: True),
        patch.object(harness.training.core.dist, "get_world_size", lambda: 2),
        patch.object(Ranks, "current", classmethod(lambda cls: cls(0, 2))),
        patch.object(harness.training.core, "DistributedDataParallel", Replica),
        patch.object(torch, "compile", lambda f, **settings: f),
    ):
        try:
            core = build(config)
        except ValueError as error:
            return str(error)
        stand_in(core.model)
        ids = documents(config.data.seq_len).expand(2, 1, -1)
        core.gradients([(ids, ids)], core.set_step(0))
    exchange = {
        next(n for n, f in EXCHANGES.items() if f is o.exchange)
        for o in core.optimizers
        if isinstance(o, Muon)
    }
    assert isinstance(core.forward, Replica)
    return core.forward.settings, core.forward.quietly, exchange - {"redundant"}


def cuda_settings(config: RunConfig) -> list[Any]:
    """What set_runtime asks of a CUDA machine."""
    import torch._inductor.config as inductor

    asked: list[Any] = []
    ones = SimpleNamespace(backward=lambda: asked.append("backward"))
    nothing = lambda *a, **kw: None  # noqa: E731
    with (
        inductor.patch(coordinate_descent_tuning=None),
        patch.object(harness.training.runtime, "set_allocator", asked.append),
        patch.object(torch.cuda, "reset_peak_memory_stats", nothing),
        patch.object(torch, "ones", lambda *a, **kw: ones),
        patch.object(torch._dynamo, "reset", nothing),
    ):
        harness.training.runtime.set_runtime(config, "cuda", seed=0)
        asked.append(inductor.coordinate_descent_tuning)
    return asked


def placement(config: RunConfig) -> bool:
    """Whether a run of it gets its node for itself."""
    return is_exclusive(SimpleNamespace(config=plain(config), role="loss"))


# ---------------------------------------------------------------- all of it

Observation = dict[str, Any]


def observe(config: RunConfig, corpora: Mapping[str, Any]) -> Observation:
    """Aspect (a word of AFFECTS) -> a value that is equal where nothing changed. See `changed` for how they are compared."""
    core, run = build(config), train(config, corpora)
    buffers = (
        {n: digest(b) for n, b in core.model.named_buffers()},
        [digest(table) for table in core.model.rotary(16) if table is not None],
    )
    seen, kernel = masks(core)
    loaders = partial(
        harness.training.loaders.loaders,
        config,
        corpora[config.data.corpus],
        seed=0,
        rank=0,
        world_size=1,
    )
    stream, val = loaders(device="cpu")
    prefetcher, _ = loaders(device="cuda")
    prefetcher.close()
    return {
        "loss": (run["losses"], run["weights"]),
        "parameters": parameters(core.model),
        "initial": {n: digest(p) for n, p in core.model.named_parameters()},
        "buffers": buffers,
        "precision": run["precision"],
        "kernel": kernel,
        "mask": seen,
        "groups": groups(core),
        "schedule": schedule(core),
        "data": (
            [digest(t) for _ in range(12) for pair in next(stream) for t in pair],
            prefetcher.loader.memory.pinned,
        ),
        "validation": (run["validation"], [digest(t) for pair in val for t in pair]),
        "comm": comm(config),
        "runtime": (run["runtime"], cuda_settings(config)),
        "clock": run["clock"],
        "placement": placement(config),
        "grads": run["grads"],
        "status": run["status"],
    }


def changed(off: Observation, on: Observation) -> set[str]:
    """The aspects in which two configurations differ; parts that only one of them has count as "parameters" alone."""

    def differ(aspect: str, of: Any = lambda name: True) -> bool:
        both = [n for n in off[aspect] if n in on[aspect] and of(n)]
        return any(off[aspect][n] != on[aspect][n] for n in both)

    out = {a for a in AFFECTS if a in off and a not in ("initial", "precision") and off[a] != on[a]}
    same_shape = lambda n: off["parameters"][n][0] == on["parameters"][n][0]  # noqa: E731
    return out | {
        a for a, of in (("initial", same_shape), ("precision", lambda n: True)) if differ(a, of)
    }
