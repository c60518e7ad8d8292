"""Training on more than the next token, by stages; validation stays as it is."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.run import with_fields
from harness.config.schedule import first_of_a_kind
from harness.config.validate import check_config
from harness.model.loss import prefix_table, weighted_cross_entropy
from harness.training.core import Core
from tests.small_presets import SEQ_LEN, TOKENS, batch, small


def by_hand(
    z_BTV: Tensor, y_BT: Tensor, weights: Sequence[float], prefixes: dict[int, int], weight: float
) -> float:
    """Position by position, token by token."""  # fmt: skip
    total, p = 0.0, z_BTV.detach().double().log_softmax(-1)
    for b, t in itertools.product(*map(range, y_BT.shape)):
        for k, w in enumerate(weights):
            if t + k < y_BT.shape[1]:
                total -= w * float(p[b, t, y_BT[b, t + k]])
        if int(y_BT[b, t]) in prefixes:
            total -= weight * float(p[b, t, prefixes[int(y_BT[b, t])]])
    return total / y_BT.numel()


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.5), (0.7, 0.5, 0.25)])
def test_the_loss_on_several_tokens_is_a_weighted_sum_that_ends_with_the_row(
    weights: tuple[float, ...],
) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 7, 11, generator=generator)
    y = torch.randint(0, 11, (2, 7), generator=generator)
    prefixes = {3: 1, 5: 3, 8: 0}
    table = torch.tensor([prefixes.get(i, -1) for i in range(11)])
    of = torch.tensor(weights)
    assert float(weighted_cross_entropy(z, y, of)) == pytest.approx(by_hand(z, y, weights, {}, 0))
    with_prefixes = weighted_cross_entropy(z, y, of, (table, torch.tensor(0.3)))
    assert float(with_prefixes) == pytest.approx(by_hand(z, y, weights, prefixes, 0.3))


def test_a_token_s_prefix_is_the_longest_other_token_that_it_begins_with() -> None:
    texts = [b"a", b"ab", b"b", b"abcd", b"bc", b"abc", b"cd", None]
    assert prefix_table(texts) == [-1, 0, -1, 5, 2, 1, -1, -1]


def trained_on(**fields: Any) -> Core:
    """Record 18's network in fp32 with these losses, the fields of its schedule and of its loss."""
    config = with_fields(
        small("r18", "fp32"), {name.replace("__", "."): v for name, v in fields.items()}
    )
    check_config(config)
    texts = [bytes([97 + i % 8] * (1 + i // 8)) for i in range(TOKENS.separator)]
    return Core(config, replace(TOKENS, texts=[*texts, None]), seed=0)


MORE = {"schedule__steps": 6, "schedule__stages": 3, "loss__next_tokens": (1.0, 0.5, 0.25)}


def test_what_is_trained_on_goes_by_the_stages_and_validation_is_the_next_token_alone() -> None:
    plain, more = trained_on(schedule__steps=6), trained_on(**MORE, loss__prefix_weight=0.25)
    x, y = batch(3)
    prefixes = {i: i - 8 for i in range(8, TOKENS.separator)}
    for step, weights, prefix in [
        (0, (1.0, 0.5, 0.25), 0.25),
        (1, (1.0, 0.5, 0.125), 0.25),
        (3, (1.0, 0.25), 0.125),
        (4, (1.0,), 0.0),
    ]:
        loss = more.gradients([(x, y)], more.set_step(step))
        logits = plain.model.logits(x[0], plain.set_window(step))
        by = by_hand(logits, y[0], weights, prefixes, prefix)
        assert float(loss) == pytest.approx(by, abs=1e-5)
        assert torch.equal(
            more.evaluate(step, [(x[0], y[0])]), plain.evaluate(step, [(x[0], y[0])])
        )
    assert torch.equal(loss, plain.gradients([(x, y)], plain.set_step(4)))


@pytest.mark.parametrize(
    ("fields", "weights", "prefix"),
    [(MORE, (1.0, 0.5, 0.25), 0.0), ({"loss__prefix_weight": 0.25}, (1.0,), 0.25)],
)
def test_further_tokens_and_prefixes_are_trained_on_one_without_the_other(
    fields: dict[str, Any], weights: tuple[float, ...], prefix: float
) -> None:
    more, (x, y) = trained_on(**fields), batch(3)
    loss = more.gradients([(x, y)], more.set_step(0))
    logits = more.model.logits(x[0], more.set_window(0))
    prefixes = {i: i - 8 for i in range(8, TOKENS.separator)}
    by = by_hand(logits, y[0], weights, prefixes, prefix)
    assert float(loss) == pytest.approx(by, abs=1e-5)


def test_the_sum_over_a_pass_s_tokens_has_as_much_larger_a_gradient() -> None:
    mean, summed = trained_on(), trained_on(loss__reduction="sum_per_rank")
    losses = [made.gradients([batch(0)], made.set_step(0)) for made in (mean, summed)]
    assert torch.equal(*losses)
    for p, q in zip(mean.parameters, summed.parameters, strict=True):
        assert p.grad is not None and q.grad is not None
        torch.testing.assert_close(p.grad * SEQ_LEN, q.grad)


def test_a_factor_on_the_loss_is_one_on_its_gradient_alone() -> None:
    plain, doubled = trained_on(), trained_on(loss__scale=2.0)
    losses = [made.gradients([batch(0)], made.set_step(0)) for made in (plain, doubled)]
    assert torch.equal(*losses)
    for p, q in zip(plain.parameters, doubled.parameters, strict=True):
        assert p.grad is not None and q.grad is not None
        assert torch.equal(2 * p.grad, q.grad)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
def test_a_stage_s_losses_compile_to_one_graph() -> None:
    made = trained_on(**MORE, loss__prefix_weight=0.25)
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    made.forward = torch.compile(made.objective, backend=count, fullgraph=True, dynamic=False)
    eager = trained_on(**MORE, loss__prefix_weight=0.25)
    for step in range(6):
        losses = [m.gradients([batch(step)], m.set_step(step)) for m in (made, eager)]
        torch.testing.assert_close(*losses)
    assert len(graphs) == 3 == len(first_of_a_kind(made.config))
