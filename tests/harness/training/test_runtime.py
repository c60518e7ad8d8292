"""What is set up for a device: its allocator, by whichever name this torch has, and whether training is compiled."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from harness.config.presets import preset_values, to_config
from harness.errors import UserError
from harness.training import runtime
from harness.training.core import compiles
from harness.training.runtime import join_group, set_allocator, set_runtime


@pytest.mark.filterwarnings("error")
def test_the_allocator_is_set_without_a_warning() -> None:
    if not hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        pytest.skip("this torch does not tell its allocator's settings")
    for wish in ("True", "False"):
        set_allocator(f"expandable_segments:{wish}")
        assert torch._C._accelerator_getAllocatorSettings() == f"expandable_segments:{wish}"


def test_a_torch_without_the_newer_name_is_asked_by_the_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.delattr(torch._C, "_accelerator_setAllocatorSettings", raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_set_allocator_settings", asked.append)
    set_allocator("expandable_segments:True")
    assert asked == ["expandable_segments:True"]


def test_what_is_compiled_is_what_was_asked_for_or_else_what_cuda_trains() -> None:
    compiled = {}
    for wish in ("on", "off", "auto"):
        config = to_config(preset_values("r08")[0] | {"system.compile": wish})
        compiled[wish] = [compiles(config, device) for device in ("cpu", "cuda")]
    assert compiled == {"on": [True, True], "off": [False, False], "auto": [False, True]}


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_a_process_joins_the_group_of_its_device_once(
    monkeypatch: pytest.MonkeyPatch, device: str, backend: str
) -> None:
    joined: list[object] = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(dist, "is_initialized", lambda: backend in joined)
    monkeypatch.setattr(dist, "init_process_group", joined.append)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    monkeypatch.setattr(dist, "get_rank", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", joined.append)
    assert join_group(1, device) == 0 and joined == []
    assert join_group(4, device) == join_group(4, device) == 2
    assert joined == ([3, "nccl"] if device == "cuda" else ["gloo"])
    with pytest.raises(UserError) as refused:
        join_group(8, device)
    wants = "the run wants 8 processes, but its group has 4"
    assert str(refused.value) == f"{wants}: start it with torchrun"


@pytest.mark.parametrize("warm", [True, False])
def test_a_gpu_begins_every_run_without_what_the_last_one_left(
    warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    made = torch.ones
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: happened.append(name))
    monkeypatch.setattr(runtime, "set_allocator", happened.append)

    def ones(n: int, *, device: str, requires_grad: bool) -> torch.Tensor:
        assert (n, device) == (1, "cuda")
        number = made(n, requires_grad=requires_grad)
        number.register_hook(lambda gradient: happened.append(f"a pass of {float(gradient)}"))
        return number

    monkeypatch.setattr(torch, "ones", ones)
    fields = {"system.compile": "off", "system.cuda_warm_start": warm}
    config = to_config(preset_values("r08")[0] | fields | {"system.expandable_segments": False})
    set_runtime(config, "cuda", seed=1)
    assert happened == [
        *("empty_cache", "expandable_segments:False", "reset_peak_memory_stats"),
        *["a pass of 1.0"] * warm,
    ]


def test_a_run_that_is_compiled_sets_the_compiler_back_and_one_that_is_not_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    inductor = SimpleNamespace()
    monkeypatch.setattr(torch._dynamo, "reset", lambda: happened.append("reset"))
    monkeypatch.setattr(torch._inductor, "config", inductor)
    monkeypatch.setattr(torch.compiler, "set_stance", happened.append)
    for wish, tuned in (("off", True), ("on", True), ("on", False)):
        fields = {"system.compile": wish, "system.coordinate_descent": tuned}
        set_runtime(to_config(preset_values("r08")[0] | fields), "cpu", seed=5)
        drawn = torch.rand(1)
        assert drawn == torch.rand(1, generator=torch.Generator().manual_seed(5))
        if wish == "off":
            assert (happened, vars(inductor)) == ([], {})
        else:
            assert (happened, inductor.coordinate_descent_tuning) == (["reset", "default"], tuned)
            assert {*inductor.unsafe_marked_cacheable_functions.values()} == {"1"}
            happened.clear()
