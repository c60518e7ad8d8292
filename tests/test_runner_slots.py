"""Slots: no device twice, nothing left over that would fit, and what this node shows."""

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.slots import find_gpus, make_slots

counts = st.integers(1, 16)


@given(n_gpus=counts, per_run=counts, most=st.none() | counts)
def test_gpu_slots_are_disjoint_and_as_many_as_fit(n_gpus: int, per_run: int, most: int | None) -> None:
    gpus = [str(i) for i in range(n_gpus)]
    if per_run > n_gpus:
        with pytest.raises(UserError, match=f"this node shows {n_gpus} GPUs"):
            make_slots("cuda", gpus_per_run=per_run, gpus=gpus)
        return
    slots = make_slots("cuda", gpus_per_run=per_run, max_parallel=most, gpus=gpus)
    used = [g for s in slots for g in s.gpus]
    assert len(used) == len(set(used)) == per_run * len(slots)
    assert set(used) <= set(gpus)
    assert len(slots) == min(n_gpus // per_run, most or n_gpus)


@given(n_cpus=counts, per_run=counts, most=st.none() | counts)
def test_cpu_slots_use_no_more_threads_than_there_are_cpus(n_cpus: int, per_run: int, most: int | None) -> None:
    slots = make_slots("cpu", gpus_per_run=per_run, max_parallel=most, n_cpus=n_cpus)
    assert 1 <= len(slots) <= (most or n_cpus)
    assert all(s.gpus == () and s.threads >= 1 for s in slots)
    assert sum(s.threads * per_run for s in slots) <= max(n_cpus, per_run)


@pytest.mark.parametrize(
    ("visible", "listed", "found"),
    [
        (None, 3, ["0", "1", "2"]),
        ("1,2", 3, ["1", "2"]),
        ("", 3, []),
        ("-1", 3, []),
        ("0,-1,1", 3, ["0"]),
        ("GPU-aa,MIG-bb", 2, ["GPU-aa", "MIG-bb"]),
        ("0", 0, []),
    ],
)
def test_what_is_visible_is_what_is_found(
    visible: str | None, listed: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def smi(*_: Any, **__: Any) -> Any:
        lines = "".join(f"GPU {i}: NVIDIA H100 (UUID: GPU-{i})\n" for i in range(listed))
        return subprocess.CompletedProcess([], 0 if listed else 9, stdout=lines)

    monkeypatch.setattr(subprocess, "run", smi)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpus() == found
