"""What a matrix will cost before it starts: from runs measured on this kind of machine, else in tokens alone."""

from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.plan import PlannedRun
from harness.records import read_result


def estimate(planned: Sequence[PlannedRun], done: Collection[str], results: Path) -> dict[str, Any]:
    """Runs and tokens still to do; hours of one slot from the measured wall time of this plan's finished runs, else None."""
    missing = [p for p in planned if p.spec.run_id not in done]
    tokens = sum(p.spec.budget * p.spec.config["data"]["batch_tokens"] for p in missing)
    measured = [
        r["wall"]["total_s"] / (p.spec.budget * p.spec.config["data"]["batch_tokens"])
        for p in planned
        if p.spec.run_id in done and (r := read_result(results / "runs" / p.spec.run_id)) and r["wall"].get("total_s")
    ]
    hours = fmean(measured) * tokens / 3600 if measured else None
    gpu_hours = hours * planned[0].spec.world_size if hours is not None and planned[0].spec.device == "cuda" else None
    words = f"to do: {len(missing)} runs, {tokens / 1e6:.1f}M training tokens"
    words += (
        f", about {hours:.2f} h of one slot (from {len(measured)} finished runs)"
        if hours is not None
        else "; time not known before a run is done"
    )
    return {"runs": len(missing), "tokens": tokens, "slot_hours": hours, "gpu_hours": gpu_hours, "words": words}
