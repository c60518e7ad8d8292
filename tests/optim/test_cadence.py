"""Adam that waits, scalars that rest, and a token table that parts from the head."""

import math
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from harness.optim.build import build_optimizers
from harness.optim.cadence import act
from harness.optim.config import OptimConfig
from harness.optim.schedule import adam_acts, changed_within, last_tied_step
from harness.optim.tying import Tie


def made(**fields: Any) -> tuple[dict[str, Parameter], list[torch.optim.Optimizer]]:
    """A table, a head, a matrix, and scalars of which one has settings of its own."""
    params = {name: Parameter(torch.ones(4, 4)) for name in ("embed", "head", "hidden")}
    params |= {name: Parameter(torch.ones(2)) for name in ("scalar", "xsa")}
    params["xsa"].part = "xsa"  # type: ignore[attr-defined]
    roles = {name: [(name, params[name])] for name in ("embed", "head", "hidden")}
    roles["scalar"] = [(name, params[name]) for name in ("scalar", "xsa")]
    config = OptimConfig(matrix_optimizer="muon", **fields)
    return params, build_optimizers(roles, config, dtype=torch.float32, device_type="cpu")


def give(params: dict[str, Parameter], size: float) -> None:
    """A gradient, added to what is there, as a backward pass does."""
    for p in params.values():
        gradient = size * torch.arange(1.0, p.numel() + 1).view_as(p)
        p.grad = gradient if p.grad is None else p.grad + gradient


def moved(params: dict[str, Parameter], before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, p in params.items() if not torch.equal(p, before[name])}


def values(params: dict[str, Parameter]) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in params.items()}


@pytest.mark.parametrize("form", ["library", "uncorrected"])
def test_adam_waits_and_takes_the_sum(form: str) -> None:
    fields = {"adam_eps_form": form, "adam_eps": 1.0}
    params, optimizers = made(adam_every=2, **fields)
    before = values(params)
    give(params, 1.0)
    act(optimizers, adam=False)
    assert moved(params, before) == {"hidden"}
    assert params["hidden"].grad is None
    give(params, 2.0)
    act(optimizers, adam=True)
    assert moved(params, before) == params.keys()
    once, at_once = made(**fields)
    give(once, 3.0)
    act(at_once)
    for name in params.keys() - {"hidden"}:
        assert torch.equal(params[name], once[name])
        assert params[name].grad is None


def test_a_rule_of_somebody_elses_never_waits() -> None:
    p = Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    act([torch.optim.SGD([{"params": [p], "names": ["p"], "role": "scalar"}], lr=1.0)], adam=False)
    assert torch.equal(p, torch.zeros(2))


def test_scalars_rest_but_those_with_settings_of_their_own() -> None:
    params, optimizers = made(xsa_beta1=0.5)
    give(params, 1.0)
    act(optimizers)
    before = values(params)
    state = next(o.state[params["scalar"]] for o in optimizers if params["scalar"] in o.state)
    memory = {name: value.clone() for name, value in state.items()}
    give(params, 1.0)
    act(optimizers, scalars_rest=True)
    assert moved(params, before) == params.keys() - {"scalar"}
    assert params["scalar"].grad is None
    assert all(torch.equal(state[name], value) for name, value in memory.items())
    together, optimizers = made()
    before = values(together)
    give(together, 1.0)
    act(optimizers, scalars_rest=True)
    assert moved(together, before) == together.keys() - {"scalar", "xsa"}


@pytest.mark.parametrize("objects", ["split", "single"])
def test_a_table_that_parts_goes_on_from_the_heads_memory(objects: str) -> None:
    params, optimizers = made(adam_objects=objects, adam_beta1=0.5)
    tie = Tie(params["head"], params["embed"])
    for size in (1.0, -2.0):
        give(params, size)
        act(optimizers, tie=tie, tied=True)
        assert torch.equal(tie.head, tie.table)
        assert not any(tie.table in o.state for o in optimizers)
    before = values(params)
    tie.table.grad = torch.ones(4, 4)  # the head has none: it stays
    act(optimizers, tie=tie)
    assert moved(params, before) == {"embed"}
    of_head, of_table = (
        next(o.state[p] for o in optimizers if p in o.state) for p in (tie.head, tie.table)
    )
    assert (int(of_head["step"]), int(of_table["step"])) == (2, 3)
    torch.testing.assert_close(of_table["exp_avg"], 0.5 * of_head["exp_avg"] + 0.5)


def test_when_adam_acts_and_when_it_is_parted() -> None:
    assert [adam_acts(step, every=2) for step in range(4)] == [False, True, False, True]
    assert all(adam_acts(step, every=1) for step in range(4))
    for steps in (1800, 1840, 1880, 1735, 1560):  # two thirds, made odd
        assert last_tied_step(steps, until=2 / 3, every=2) == math.ceil(2 * steps / 3) | 1
    assert last_tied_step(90, until=2 / 3, every=1) == 60
    assert last_tied_step(90, until=1.0, every=1) == 90  # no update is after it


def test_a_change_of_stage_is_near_for_so_many_updates() -> None:
    near = [changed_within(t, updates=3, changes=lambda at: at in (2, 4)) for t in range(9)]
    assert near == [False, False, True, True, True, True, True, False, False]
    assert not any(changed_within(t, updates=0, changes=lambda at: True) for t in range(3))
