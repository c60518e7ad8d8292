"""What is set up for a device: its allocator, by whichever name this torch has, and whether training is compiled."""

import pytest
import torch

from harness.config.presets import preset_values, to_config
from harness.training.core import compiles
from harness.training.runtime import set_allocator


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
