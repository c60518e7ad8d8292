"""The settings of the device's allocator: set without a warning, by whichever name this torch has."""

import pytest
import torch

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
