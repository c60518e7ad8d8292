"""Cross-entropy part by part: the plain form's losses and gradients, in less memory."""

import subprocess
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.model.loss import chunked_cross_entropy
from harness.training.core import Core
from tests.small_presets import SEQ_LEN, TOKENS, batch, core, disturb, small

ROOT = Path(__file__).resolve().parents[2]
ROWS = 96  # of 256 tokens: the last part is shorter
BOUND = {
    "fp32": (2e-7, 1e-5),
    "record": (1e-6, 2.0**-6),
}  # of the loss; of a gradient's norm, through all layers


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def losses_and_gradients(name: str, mode: str, **fields: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Of one pass, with the loss of a validation behind it."""
    made = core(small(name, mode, **fields))
    disturb(made.model)
    x, y = batch(0)
    loss = made.gradients([(x, y)], made.set_step(0))
    gradients = {n: p.grad.double() for n, p in made.model.named_parameters() if p.grad is not None}
    return torch.cat([loss, made.evaluate(0, [(x[0], y[0])])]), gradients


@pytest.mark.parametrize("mode", BOUND)
@pytest.mark.parametrize("name", ["r02", "r09", "r18"])  # tied; capped; in another policy
def test_parts_give_the_losses_and_gradients_of_the_whole(name: str, mode: str) -> None:
    of_loss, of_gradient = BOUND[mode]
    (whole, expected), (parts, found) = (
        losses_and_gradients(name, mode, loss_rows=rows) for rows in (None, ROWS)
    )
    assert torch.allclose(parts, whole, rtol=of_loss, atol=0)
    assert found.keys() == expected.keys()
    for parameter, g in expected.items():
        if mode == "record" and g.numel() < 10:
            continue  # a mixing scalar's is a sum that all but cancels: in bf16 there is little left of it either way
        assert (found[parameter] - g).norm() <= of_gradient * g.norm(), parameter


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_the_gradient_is_that_of_the_library(softcap: float | None) -> None:
    """In fp64, where logits alone are rounded to fp32, of a loss with a factor, as a micro-step's has."""
    torch.manual_seed(0)
    x, head = (torch.randn(n, 5, dtype=torch.float64, requires_grad=True) for n in (7, 11))
    y = torch.randint(0, 11, (7,))
    z = x @ head.T
    whole = F.cross_entropy(
        (z if softcap is None else softcap * torch.tanh(z / softcap)).float(), y
    )
    parts = chunked_cross_entropy(x, head, y, softcap=softcap, rows=3)
    expected, found = (torch.autograd.grad(0.3 * loss, (x, head)) for loss in (whole, parts))
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)


class Live(TorchDispatchMode):
    """Bytes of the tensors that operators made and that still live, and their peak; those of `network` are not counted."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known = {
            t.untyped_storage()._cdata for t in (*network.parameters(), *network.buffers())
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for t in made if isinstance(made, tuple | list) else (made,):
            if isinstance(t, Tensor) and (key := t.untyped_storage()._cdata) not in self.known:
                self.known.add(key)
                self.now += t.untyped_storage().nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(t.untyped_storage(), self._gone, key, t.untyped_storage().nbytes())
        return made

    def _gone(self, key: int, n: int) -> None:
        self.known.discard(key)
        self.now -= n


RECORDS_VOCAB = 50304


def peaks(rows: int | None) -> tuple[int, int]:
    """Bytes that a training and a validation pass of 256 tokens make, in a vocabulary of the records' size."""
    made = Core(
        small("r08", "fp32", loss_rows=rows), replace(TOKENS, vocab_size=RECORDS_VOCAB), seed=0
    )
    x, y = batch(0)
    with Live(made.model) as training:
        made.gradients([(x, y)], made.set_step(0))
    with Live(made.model) as validation:
        made.evaluate(0, [(x[0], y[0])])
    return training.peak, validation.peak


def test_logits_are_never_there_all_at_once() -> None:
    logits, tables = (
        4 * SEQ_LEN * RECORDS_VOCAB,
        2 * 4 * 32 * RECORDS_VOCAB,
    )  # the tables' gradients are left by a pass
    whole, parts = peaks(None), peaks(16)
    assert whole[0] > 2 * logits + tables
    assert parts[0] < 0.5 * logits + 1.5 * tables
    assert whole[1] > 2 * logits
    assert parts[1] < 0.5 * logits


def test_a_validation_needs_no_more_memory_when_it_is_longer() -> None:
    made, (x, y) = core(small("r08", "fp32")), batch(0)
    seen = []
    for n in (2, 2, 12):
        with Live(made.model) as live:
            made.evaluate(0, ((x[0].clone(), y[0].clone()) for _ in range(n)))
        seen.append(live.peak)
    assert seen[2] - seen[1] <= 12 * 8  # one number of each micro-batch


VALIDATION = """
import torch
from harness.bench.steps import resolve
from harness.training.core import Core
from harness.model.tokens import Tokens
torch.set_num_threads(1)
config, _ = resolve("r08", scale="tiny", device="cpu", settings={"model.n_layer": 2, "precision.val_grad": True})
core, shape = Core(config, Tokens(vocab_size=257, separator=256, seq_len=512), seed=0), (4, 512)
for n in (20, 20, 400):
    core.evaluate(0, ((torch.randint(0, 256, shape), torch.randint(0, 256, shape)) for _ in range(n)))
    print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")))
"""


@pytest.mark.slow
def test_a_long_validation_does_not_hold_its_memory_apart() -> None:
    """What the process has, holes included, which the bytes in use do not show; its graph is kept for a while, as in record 8."""
    _, before, after = map(
        int,
        subprocess.check_output([sys.executable, "-c", VALIDATION], text=True, cwd=ROOT).split(),
    )
    assert after < before + 60_000  # KiB; a loss left after each pass costs several times as much


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own
def test_a_compiler_can_trace_it_whole() -> None:
    x, head, y = (
        torch.randn(8, 4, requires_grad=True),
        torch.randn(6, 4, requires_grad=True),
        torch.randint(0, 6, (8,)),
    )

    def loss(x: Tensor, head: Tensor, y: Tensor) -> Tensor:
        return chunked_cross_entropy(x, head, y, softcap=2.0, rows=3)

    eager = torch.autograd.grad(loss(x, head, y), (x, head))
    traced = torch.autograd.grad(
        torch.compile(loss, backend="aot_eager", fullgraph=True)(x, head, y), (x, head)
    )
    for a, b in zip(eager, traced, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)
