"""Synthetic results directories in the store's format, for tests of reports/: what a runner would have left behind.

Losses follow a smooth cooldown to a final value (baseline + the arm's effect + the block's and the run's noise), so that
every number on a page has a known cause.  All randomness comes from one seeded generator: the same call writes the same bytes.
"""

import datetime
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.report_arms import LADDER, Arm

START = datetime.datetime(2026, 1, 5, 8, 0, tzinfo=datetime.UTC)
N_STEPS, BATCH_TOKENS = 300, 4096
WALL = {
    "import_s": 1.9,
    "data_s": 0.2,
    "build_s": 0.1,
    "compile_s": 0.0,
    "warmup_s": 0.4,
    "validate_s": 1.1,
}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: Any, n: int = 16) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:n]


def run_config(name: str, arm: Arm, seed: int, role: str, budget: int, code: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model": {
            "n_layer": 2,
            "model_dim": 64,
            "untied_head": False,
            "embed_norm": False,
            "zero_head": False,
        },
        "optim": {"muon_lr": 0.02, "split": "two_way"},
        "schedule": {"steps": budget, "cooldown": 0.4},
        "data": {"name": "stdlib", "seq_len": 512},
        "precision": {"mode": "fp32"},
        "system": {"attention": "default"},
        "timing": {"protocol": "warmup-restore"},
        "plugin": {"corpus_of": name},
    }
    for dotted, value in arm.fields:
        section, _, field = dotted.partition(".")
        config[section][field] = value
    return {
        "config": config,
        "seed": seed,
        "replicate": 0,
        "budget": budget,
        "role": role,
        "data": {"name": "stdlib", "fingerprint": "f" * 64},
        "world_size": 1,
        "device": "cpu",
        "source": {"digest": code},
        "environment": {"digest": "e" * 16},
    }


def curve(
    rng: np.random.Generator,
    *,
    final: float,
    n_points: int,
    budget: int,
    step_s: float,
    diverges: bool,
    single_steps: bool,
) -> list[dict]:
    """Validation rows from 5.55 nats at step 0 down to `final`; a diverging run turns up at two thirds and ends as null."""
    rows: list[dict] = []
    of_steps = np.random.default_rng(budget)  # its own, so that nothing else depends on it
    for i, part in enumerate(np.linspace(0.0, 1.0, n_points)):
        shape = 0.75 * np.exp(-9.0 * part) + 0.25 * (1.0 - part)
        loss = (
            final + (5.55 - final) * shape + (rng.normal(0, 0.002) if 0 < i < n_points - 1 else 0.0)
        )
        value = float(loss)
        if diverges and part > 0.66:
            value = float("nan") if i == n_points - 1 else float(loss + 3.0 * (part - 0.66) / 0.34)
        step = round(budget * part)
        since = step - (rows[-1]["step"] if rows else 0)
        times = 1e3 * step_s * (1 + np.abs(of_steps.normal(0, 0.03, since if single_steps else 0)))
        rows.append(
            {
                "kind": "val",
                "step": step,
                "val_loss": None if np.isnan(value) else value,
                "train_time_s": step * step_s,
            }
            | ({"step_times_ms": [round(t, 2) for t in times.tolist()]} if single_steps else {})
        )
    return rows


@lru_cache(maxsize=256)
def as_yaml(text: str) -> str:
    """What JSON says, which can be a key of what is remembered."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(json.loads(text), Dumper=dumper, sort_keys=False))


def write_json(path: Path, value: Any) -> str:
    text = json.dumps(value, indent=1)
    path.write_text(text, encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()


def write_experiment(
    root: Path,
    *,
    name: str = "split",
    arms: Sequence[Arm] = LADDER,
    n_seeds: int = 5,
    planned_seeds: int | None = None,
    n_points: int = 16,
    budgets: Sequence[int] = (N_STEPS,),
    design: str = "ladder",
    confirm: bool = False,
    published: str | None = None,
    n_nodes: int = 1,
    sd: float = 0.003,
    outcome: dict[tuple[str, int], str] | None = None,
    stale: Sequence[tuple[str, int]] = (),
    target: float | None = 1.60,
    seed: int = 0,
    single_steps: bool = True,
) -> Path:
    """Write R/runs/* and R/experiments/<name>/experiment.json under root; returns root.

    `outcome` gives (arm name, seed) a status other than finished: diverged (has a result), failed, oom, timeout (attempts only)
    or pending (nothing on disk).  `stale` runs were made by an older source. Without `single_steps` metrics list no step times.
    """
    rng = np.random.default_rng(seed)
    outcome = outcome or {}
    clock = START
    planned: list[dict[str, Any]] = []
    for block in range(n_seeds):
        block_noise = rng.normal(0, sd)
        for place, i in enumerate(rng.permutation(len(arms))):
            arm = arms[int(i)]
            for budget in budgets:
                code = "c0" * 8 if (arm.name, block) in stale else "c1" * 8
                config = run_config(name, arm, block, "loss", budget, code)
                for other in arms:  # a run records every field, also those that others set
                    for dotted, _ in other.fields:
                        section, _, field = dotted.partition(".")
                        config["config"][section].setdefault(field, False)
                intent = digest(
                    {k: v for k, v in config.items() if k not in ("source", "environment")}
                )
                run_id = digest(config)
                final = (
                    1.58
                    + arm.loss_effect
                    + block_noise
                    + rng.normal(0, sd)
                    + 0.15 * (N_STEPS / budget - 1.0)
                )
                step_s = (
                    0.018
                    * arm.step_factor
                    * (1 + 0.02 * (block % n_nodes))
                    * (1 + rng.normal(0, 0.004))
                )
                status = outcome.get((arm.name, block), "finished")
                node = f"node-{block % n_nodes}"
                begun, clock = clock, clock + datetime.timedelta(seconds=budget * step_s + 5.0)
                write_run(
                    root / "runs" / run_id,
                    config,
                    intent,
                    status,
                    node,
                    begun,
                    rng,
                    final,
                    step_s,
                    n_points,
                    arm,
                    single_steps,
                )
                current = digest({**config, "source": {"digest": "c1" * 8}})
                planned.append(
                    {
                        "arm": arm.name,
                        "seed": block,
                        "replicate": 0,
                        "budget": budget,
                        "role": "loss",
                        "block": block,
                        "place": place,
                        "intent_id": intent,
                        "run_id": current,
                        "older": [run_id] if run_id != current else [],
                    }
                )
    seeds = list(range(planned_seeds or n_seeds))
    plan = {
        "schema": 1,
        "name": name,
        "question": "Which part of record 8 made it faster?",
        "base": arms[0].name,
        "scale": "tiny",
        "baseline": arms[0].name,
        "design": design,
        "arms": [
            {
                "name": a.name,
                "changes": list(a.changes),
                "fields": dict(a.fields),
                "estimand": "at-rate",
            }
            for a in arms
        ],
        "seeds": seeds,
        "seeds_rule": None,
        "budgets": list(budgets),
        "target": None
        if target is None
        else {"val_loss": target, "reason": "where the plain recipe ends"},
        "primary": "val_loss",
        "margin": 0.01,
        "confirm": confirm,
        "published": published,
        "protocol": "warmup-restore",
        "corpus": {"name": "stdlib", "fingerprint": "f" * 64, "unit": "nats per byte"},
        "command": f"ablate run experiments/{name}.yaml",
        "looks": 1,
        "runs": planned,
    }
    locked = {
        k: plan[k]
        for k in ("question", "baseline", "arms", "seeds", "primary", "margin", "budgets")
    }
    plan["locks"] = [{"locked": START.isoformat(), "digest": digest(locked, 64), "plan": locked}]
    folder = root / "experiments" / name
    folder.mkdir(parents=True)
    write_json(folder / "experiment.json", plan)
    write_json(folder / "plan.lock", plan["locks"][-1])
    return root


def write_run(
    folder: Path,
    config: dict[str, Any],
    intent: str,
    status: str,
    node: str,
    begun: datetime.datetime,
    rng: np.random.Generator,
    final: float,
    step_s: float,
    n_points: int,
    arm: Arm,
    single_steps: bool,
) -> None:
    if status == "pending":
        return
    folder.mkdir(parents=True, exist_ok=True)
    budget = config["budget"]
    document = {
        "schema": 1,
        **config,
        "source": {
            **config["source"],
            "files": {"optim/muon.py": config["source"]["digest"], "model/gpt.py": "a" * 16},
        },
        "toggles": list(arm.changes),
    }
    settings = json.dumps({"config": document.pop("config")})  # which an arm's runs have in common
    text = as_yaml(json.dumps(document)) + as_yaml(settings)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    environment = {
        "host": node,
        "cpu": "AMD EPYC 9354 32-Core Processor",
        "gpus": [],
        "driver": None,
        "python": "3.11.7",
        "torch": "2.13.0+cpu",
        "cuda": None,
        "git": {"sha": "1d3c0ffee" * 4 + "abcd", "dirty": False},
        "command": "ablate run",
        "packages": {"torch": "2.13.0", "numpy": "2.3.1"},
    }
    environment_digest = write_json(folder / "environment.json", environment)
    ended = begun + datetime.timedelta(seconds=budget * step_s + 4.0)
    reason = {
        "diverged": "val_loss is not finite at step 300",
        "failed": "worker exited with 1: RuntimeError: <boom> in optim/muon.py:88",
        "oom": "out of memory: tried to allocate 2.00 GiB",
        "timeout": "no progress for 900 s",
    }.get(status)
    attempt = {
        "started": begun.isoformat(),
        "ended": ended.isoformat(),
        "status": status,
        "reason": reason,
        "host": node,
        "pid": 4242,
        "attempt": 1,
    }
    (folder / "attempts.jsonl").write_text(json.dumps(attempt) + "\n", encoding="utf-8")
    (folder / "log.txt").write_text("step 0 val_loss 5.55\n", encoding="utf-8")
    rows = curve(rng, final=final, n_points=n_points, budget=budget, step_s=step_s, diverges=status == "diverged",
                 single_steps=single_steps)  # fmt: skip
    metrics = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(metrics, encoding="utf-8")
    if status not in ("finished", "diverged"):
        return
    train_s = budget * step_s
    wall = {**WALL, "train_s": train_s, "total_s": train_s + sum(WALL.values())}
    write_json(
        folder / "result.json",
        {
            "schema": 1,
            "run_id": folder.name,
            "intent_id": intent,
            "status": status,
            "reason": reason,
            "started": begun.isoformat(),
            "ended": ended.isoformat(),
            "val_loss": rows[-1]["val_loss"],
            "train_time_s": train_s,
            "step_ms": step_s * 1e3,
            "step_ms_median": step_s * 1e3 * 0.995,
            "step_ms_p95": step_s * 1e3 * 1.04,
            "steps": budget,
            "tokens": round(budget * BATCH_TOKENS * arm.token_factor),
            "tokens_per_s": BATCH_TOKENS * arm.token_factor / step_s,
            "mfu": None,
            "peak_allocated_mib": 210.0 + 12.0 * len(arm.changes),
            "peak_reserved_mib": None,
            "wall": wall,
            "substituted": [],
            "environment_effect": None,
            "digests": {
                "metrics.jsonl": hashlib.sha256(metrics.encode()).hexdigest(),
                "config.yaml": hashlib.sha256(text.encode()).hexdigest(),
                "environment.json": environment_digest,
            },
        },
    )
