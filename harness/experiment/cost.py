"""What a matrix will cost before it starts: from its own finished runs where there are any, else from FLOPs and the card."""

import subprocess
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.errors import UserError
from harness.node.slots import Node
from harness.run.digests import digest_of_config
from harness.run.results import read_result
from harness.run.spec import PlannedRun, RunSpec, is_exclusive

# dense bf16 FLOP/s of a card, from its maker's data sheet; the first name found in the device's own counts
CARDS = {
    "B200": 2.25e15,
    "H200": 9.9e14,
    "H100": 9.9e14,
    "GH200": 9.9e14,
    "A100": 3.1e14,
    "L40": 1.8e14,
    "4090": 1.65e14,
    "A10": 1.25e14,
}
ASSUMED = "H100"  # where no card can be asked: on a login node
SHARE = 0.35  # of a card's FLOP/s that a small GPT's training makes
CPU_FLOPS = 2e10  # of one processor in such training: small matrices in fp32
GPT2_VOCABULARY = 50257


@cache
def card() -> str:
    """The name of this machine's first GPU, or the assumed one."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ASSUMED
    said = done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else ""
    return next((name for name in CARDS if name in said), ASSUMED)


def by_flops(spec: RunSpec) -> float:
    """Seconds of a run, training and validation, from what it computes and what its devices can."""
    from harness.config.run import from_plain
    from harness.training.flops import flops_per_token

    config = from_plain(spec.config)
    d = config.data
    flops = flops_per_token(config, 257 if d.corpus == "stdlib" else GPT2_VOCABULARY)
    n_validations = spec.budget // d.val_every + 1
    total = (
        flops.model + flops.optimizer
    ) * spec.budget * d.batch_tokens + flops.model / 3 * n_validations * d.val_tokens
    return total / (
        spec.world_size * (CARDS[card()] * SHARE if spec.device == "cuda" else CPU_FLOPS)
    )


def measured(
    planned: Sequence[PlannedRun], done: Collection[str], results: Path
) -> Mapping[str, list[float]]:
    """Seconds of the plan's finished runs, without their worker's imports: by configuration and size."""
    seconds: dict[str, list[float]] = {}
    for p in planned:
        result = read_result(results / "runs" / p.spec.run_id) if p.spec.run_id in done else None
        if result and (wall := result.get("wall") or {}).get("total_s"):
            seconds.setdefault(_kind(p.spec), []).append(
                wall["total_s"] - wall.get("import_s", 0.0)
            )
    return seconds


def _kind(spec: RunSpec) -> str:
    return f"{digest_of_config(spec.config)} {spec.world_size}"


def estimate(planned: Sequence[PlannedRun], done: Collection[str], results: Path) -> dict[str, Any]:
    """Runs and tokens still to do; hours of one slot, GPU-hours (None on a CPU), wall hours on this machine, and from what."""
    missing = [p for p in planned if p.spec.run_id not in done]
    tokens = sum(p.spec.budget * p.spec.config["data"]["batch_tokens"] for p in missing)
    known = measured(planned, done, results)
    of_kind = {_kind(p.spec): p.spec for p in planned}
    # how much slower, or faster, than the estimate the measured kinds were: unmeasured ones are taken to be so too
    scale = fmean(fmean(s) / by_flops(of_kind[k]) for k, s in known.items()) if known else 1.0
    seconds = {
        k: fmean(known[k]) if k in known else scale * by_flops(spec) for k, spec in of_kind.items()
    }
    slot = gpu = wall = 0.0
    if missing:
        node = Node.here(missing[0].spec.device)
        for p in missing:
            run_s, exclusive = seconds[_kind(p.spec)], is_exclusive(p.spec)
            slot += run_s
            gpu += run_s * (
                max(len(node.gpus), p.spec.world_size) if exclusive else p.spec.world_size
            )
            wall += run_s / node.at_once(p.spec.world_size, exclusive=exclusive)
    n_known = sum(map(len, known.values()))
    on_gpus = bool(planned) and planned[0].spec.device == "cuda"
    source = (
        f"{n_known} finished runs"
        if known
        else f"FLOPs on {'an ' + card() if on_gpus else 'this CPU'}, to a factor of two or three"
    )
    words = f"to do: {len(missing)} runs, {tokens / 1e6:.1f}M training tokens"
    if missing:
        amount = f"{gpu / 3600:.2f} GPU-hours" if on_gpus else f"{slot / 3600:.2f} h of one slot"
        words += f", about {amount}, {wall / 3600:.2f} h on this machine (from {source})"
    return {
        "runs": len(missing),
        "tokens": tokens,
        "slot_hours": slot / 3600,
        "gpu_hours": gpu / 3600 if on_gpus else None,
        "wall_hours": wall / 3600,
        "source": source,
        "words": words,
    }


def estimate_foreign(
    planned: Sequence[PlannedRun], results: Path, *, wall_limit_s: float | None
) -> dict[str, Any]:
    """What runs of foreign trainers still cost at most: the mean of their finished ones, else their wall limit; no hours
    where neither is known."""
    found = [(p, read_result(results / "runs" / p.spec.run_id)) for p in planned]
    walls = [r["wall"]["total_s"] for _, r in found if r and (r.get("wall") or {}).get("total_s")]
    n_missing = sum(r is None for _, r in found)
    run_s = fmean(walls) if walls else wall_limit_s
    hours = None if run_s is None and n_missing else n_missing * (run_s or 0.0) / 3600
    n_gpus = planned[0].spec.config["trainer"]["gpus"] if planned else 0
    gpu_hours = hours * n_gpus if hours is not None and n_gpus else None
    source = (
        f"{len(walls)} finished runs" if walls else None if run_s is None else "their wall limit"
    )
    words = f"to do: {n_missing} runs"
    if hours is None:
        words += ", of a cost that is not known before one of them is done"
    elif n_missing:
        amount = (
            f"{gpu_hours:.2f} GPU-hours" if gpu_hours is not None else f"{hours:.2f} h of one slot"
        )
        words += f", {'about' if walls else 'at most'} {amount} (from {source})"
    return {
        "runs": n_missing,
        "slot_hours": hours,
        "gpu_hours": gpu_hours,
        "source": source,
        "words": words,
    }


def hours_of(cost: Mapping[str, Any]) -> float | None:
    """GPU-hours, on a CPU hours of one slot; None where they are not known."""
    return cost["gpu_hours"] if cost["gpu_hours"] is not None else cost["slot_hours"]


def with_price(cost: Mapping[str, Any], price: float | None) -> dict[str, Any]:
    """The cost with its price: of a GPU-hour, on a CPU of an hour of one slot. `hours` of a cost go before its own."""
    hours = cost.get("hours", hours_of(cost))
    total, words = hours * price if hours is not None and price is not None else None, cost["words"]
    if price is not None:
        words += (
            f"; price {total:.2f} at {price:g} per hour"
            if total is not None
            else "; price not known before a run is done"
        )
    return {**cost, "hours": hours, "price_per_hour": price, "price": total, "words": words}


def spent(planned: Sequence[PlannedRun], results: Path) -> float:
    """What the finished runs of a plan took: GPU-hours, on a CPU hours of one slot."""
    hours = 0.0
    for p in planned:
        wall = (read_result(results / "runs" / p.spec.run_id) or {}).get("wall") or {}
        hours += (
            wall.get("total_s", 0.0) / 3600 * (p.spec.world_size if p.spec.device == "cuda" else 1)
        )
    return hours


def check_limit(cost: Mapping[str, Any], most: float | None, *, already: float = 0.0) -> None:
    """Raises UserError where a matrix would cost more GPU-hours than the user allows (on a CPU: hours of one slot).

    already: what an earlier part of it took in this call."""
    if most is None:
        return
    hours = hours_of(cost)
    if hours is None:
        raise UserError(
            "--max-gpu-hours: nothing is known of what these trainers cost before a run is done: add --wall-limit S"
        )
    if hours > most - already:
        unit = "GPU-hours" if cost["gpu_hours"] is not None else "hours of one slot"
        before = f" after {already:.3g}" if already else ""
        raise UserError(
            f"{cost['runs']} runs need about {hours:.3g} {unit}{before} (from {cost['source']}), more than --max-gpu-hours "
            f"{most:g}: {'none of them' if already else 'nothing'} was started; take fewer --seeds or steps, or allow more"
        )
