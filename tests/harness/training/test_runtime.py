"""What is set up for a device: its allocator, by whichever name this torch has, and whether training is compiled."""

import pytest
import torch
import torch.distributed as dist

from harness.config.presets import preset_values, to_config
from harness.errors import UserError
from harness.training.core import compiles
from harness.training.runtime import join_group, set_allocator


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
    with pytest.raises(UserError, match="the run wants 8 processes, but its group has 4: start it"):
        join_group(8, device)
