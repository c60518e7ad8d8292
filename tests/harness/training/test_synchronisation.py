"""A step never asks the device for a number, and issues no operator for each matrix where one does for all of a shape."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.config.run import with_fields
from harness.corpora.index import open_corpus
from harness.data.loader import BatchMemory
from harness.data.prefetcher import Prefetcher
from harness.training import loaders
from tests.small_presets import batch, core, disturb, small

ASKS = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "unique",
    "_unique2",
    "allclose",
}


class Calls(TorchDispatchMode):
    """The names of the operators that are called, but for questions to tensors that live on the host on every device."""

    def __init__(self, *host: torch.Tensor) -> None:
        super().__init__()
        self.names, self.host = list[str](), {t.data_ptr() for t in host}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not (
            function is torch.ops.aten._local_scalar_dense.default
            and args[0].data_ptr() in self.host
        ):
            self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def calls_of_an_update(name: str, n_layer: int) -> tuple[list[str], list[str]]:
    """The operators of a second update, when every state is there: of the gradients, of the optimizers."""
    made = core(small(name, n_layer=n_layer))
    disturb(made.model)
    made.update(0, [batch(0)])
    window = made.set_step(1)
    with Calls() as passes:
        made.gradients([batch(1)], window)
    counts = [
        state["step"] for o in made.optimizers for state in o.state.values() if "step" in state
    ]  # Adam's own
    with Calls(*counts) as step:
        made.step()
    return passes.names, step.names


@pytest.mark.parametrize("name", ["r03", "r08", "r11", "r18"])
def test_an_update_waits_for_no_number(name: str) -> None:
    passes, step = calls_of_an_update(name, 6)
    assert ASKS & {*passes, *step} == set()


def test_the_products_of_newton_schulz_do_not_grow_with_the_layers() -> None:
    products = {"mm", "bmm", "addmm", "baddbmm", "matmul", "baddbmm_", "addmm_"}
    few, many = (
        [n for n in calls_of_an_update("r18", layers)[1] if n in products] for layers in (6, 12)
    )
    assert len(few) == len(many) > 0


def test_asking_for_a_number_is_seen() -> None:
    with Calls() as calls:
        float(torch.ones(1).sum())
    assert ASKS & set(calls.names)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_gpus_batches_are_read_ahead_and_into_pinned_memory_where_that_is_asked_for(
    device: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def memory(*, input_dtype: str, pinned: bool) -> BatchMemory:
        asked.append(pinned)
        return BatchMemory(input_dtype=input_dtype, pinned=False)

    monkeypatch.setattr(loaders, "BatchMemory", memory)
    config = with_fields(small("r08"), {"data.pinned": pinned})
    where: dict[str, Any] = {"seed": 0, "rank": 0, "world_size": 1, "device": device}
    train, _ = loaders.loaders(config, open_corpus("stdlib"), **where)
    assert asked == [pinned and device == "cuda"] * 2
    assert isinstance(train, Prefetcher) == (device == "cuda")
    if isinstance(train, Prefetcher):
        train.close()
