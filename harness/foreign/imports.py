"""Logs of the public benchmark as runs of the results folder: marked as imported, never touched again, never executed."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UserError, near
from harness.experiment.keys import check_name
from harness.foreign.logs import LogError, Reading, read_log
from harness.foreign.plan import NO_CORPUS, plan_mapping, row
from harness.node.slots import find_cpus
from harness.run.digests import short_digest
from harness.run.files import now_iso
from harness.run.plan import Plan
from harness.run.results import result_text
from harness.run.spec import Outcome, RunSpec, Status
from harness.store.attempt import result_of
from harness.store.errors import ResultsError
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store

# what lies beside the logs of a record and is none; everything else in a folder is tried
NOT_LOGS = {
    *(".py", ".ipynb", ".sh", ".cu", ".cpp", ".h", ".md", ".rst", ".html", ".json", ".csv", ".yaml", ".yml", ".toml", ".cfg"),
    *(".png", ".jpg", ".jpeg", ".svg", ".gif", ".pdf", ".diff", ".patch"),
}
NOT_LOG_NAMES = ("LICENSE", "Makefile", "requirements.txt")
MANY = 32  # files: fewer are read before other processes have started
SHOWN = ("python", "torch", "cuda", "triton", "driver")


@dataclass(kw_only=True)
class Imported:
    """What an import came to. copies: file -> the file it repeats; refused: file -> why; known: runs that were there before."""

    experiment: str
    plan: Plan | None
    added: int = 0
    known: int = 0
    in_heads: int = 0  # logs whose code holds lines like measurements
    copies: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def logs_under(paths: Sequence[Path], arm: str | None) -> Iterator[tuple[str, Path]]:
    """(arm, file) of every log: a folder's own logs and each folder in it are an arm by its name, unless `arm` names it.

    Raises UserError for a path that does not exist."""
    for path in paths:
        if not os.path.lexists(path):
            raise UserError(f"{path}: no such file or folder: name a log, or a folder of logs")
        if not path.is_dir():
            yield arm or path.absolute().parent.name or "logs", path
            continue
        for folder, inner, names in os.walk(path):
            inner[:] = sorted(n for n in inner if not n.startswith((".", "__")))
            below = Path(folder).relative_to(path).parts
            for name in sorted(names):
                if not name.startswith(".") and Path(name).suffix not in NOT_LOGS and name not in NOT_LOG_NAMES:
                    yield arm or (below[0] if below else path.absolute().name), Path(folder) / name


def import_logs(
    paths: Sequence[Path],
    *,
    store: Store,
    experiment: str,
    arm: str | None = None,
    baseline: str | None = None,
    command: str = "",
) -> Imported:
    """Bring logs in as runs of an imported experiment, which is made or added to. A log that is there already is one run."""
    check_name(experiment, "--experiment")
    before = read_plan(store.root, experiment)
    if before is not None and not before.get("imported"):
        raise UserError(
            f"experiment '{experiment}' holds runs that were made here: import under another name, they are never mixed"
        )
    found = list(logs_under(paths, arm))
    for name in dict.fromkeys(a for a, _ in found):
        if not name.isprintable() or len(name) > 200:
            raise UserError(f"arm name {name!r} must be printable and shorter: name it with --arm")
    rows = {r["run_id"]: r for r in (before or {"runs": []})["runs"]}
    first: dict[str, str] = {}  # run_id -> its file
    arms = [a["name"] for a in (before or {"arms": []})["arms"]]
    known = dict.fromkeys([*arms, *(a for a, _ in found)])
    if baseline is not None and baseline not in known:
        raise UserError(f"--baseline '{baseline}' is none of the arms{near(baseline, known)}")
    out = Imported(experiment=experiment, plan=None)
    for (name, path), (reading, code, wrong) in zip(found, read_all([path for _, path in found])):
        if wrong is not None:
            out.refused[str(path)] = wrong
            continue
        spec = spec_of(reading, code)
        out.in_heads += bool(reading.dropped)
        if first.setdefault(spec.run_id, str(path)) != str(path):
            out.copies[str(path)] = first[spec.run_id]
            continue
        if spec.run_id in rows:
            out.known += 1
            continue
        write_run(store, spec, reading, code, path)
        number = sum(r["arm"] == name for r in rows.values())
        rows[spec.run_id] = row(name, spec, replicate=number, imported=True)
        out.added += 1
    arms = list(dict.fromkeys([*arms, *(r["arm"] for r in rows.values())]))
    if not arms:
        return out
    base = baseline or (before.baseline if before else None) or arms[0]
    if base not in arms:
        raise UserError(f"--baseline '{base}': none of its logs could be taken: {next(iter(out.refused.values()), '')}")
    most = max(sum(r["arm"] == a for r in rows.values()) for a in arms)
    kept = {"looks": before.looks, "looked_at": before.looked_at} if before else {}
    more = {"imported": True, "baseline": base, "seeds": list(range(most)), "base": "logs", "scale": "gpt2", **kept}
    out.plan = plan_mapping(
        name=experiment, arms=[{"name": a} for a in sorted(arms, key=lambda a: a != base)], rows=list(rows.values()),
        question=f"What do the logs imported as {experiment} say?", command=command, **more,
    )  # fmt: skip
    try:
        save_plan(store.root, out.plan)
    except OSError as error:
        raise ResultsError(store.root, error) from None
    return out


def read_all(paths: Sequence[Path]) -> Iterator[tuple[Reading, str | None, str | None]]:
    """Per file, in order: what it holds, the digest of its code, why it is refused. Many files are read on all CPUs."""
    if len(paths) < MANY or find_cpus() == 1:
        yield from map(read_one, paths)
        return
    with ProcessPoolExecutor(min(8, find_cpus())) as pool:
        yield from pool.map(read_one, paths, chunksize=8)


def read_one(path: Path) -> tuple[Reading, str | None, str | None]:
    try:
        return *read_log(path), None
    except LogError as error:
        return Reading(), None, str(error)


def spec_of(reading: Reading, code: str | None) -> RunSpec:
    """The identity of an imported run: what was measured, by which code, on what. Its number stands for the measurements."""
    facts = {k: reading.facts[k] for k in (*SHOWN, "gpus") if k in reading.facts}
    return RunSpec(
        config={"log": {"code": code, "steps": reading.n_steps}},
        seed=0,
        replicate=int(reading.digest()[:12], 16),
        budget=reading.n_steps,
        data_name=str(NO_CORPUS["name"]),
        data_fingerprint=str(NO_CORPUS["fingerprint"]),
        source_digest=code or "unknown",
        environment_digest=short_digest(facts),
        device="cuda" if "gpus" in facts else "unknown",
    )


def account(reading: Reading) -> dict[str, Any]:
    """environment.json: what the log says of the machine."""
    facts = reading.facts
    gpus = [{"name": name, "driver_version": facts.get("driver")} for name in facts.get("gpus", [])]
    versions = {k: facts[k] for k in SHOWN if k in facts}
    return {"schema": 1, "host": None, "cpu": None, "gpus": gpus, **versions, "lock": versions}


def write_run(store: Store, spec: RunSpec, reading: Reading, code: str | None, path: Path) -> None:
    """A run's folder, made beside its place and renamed, whole or not at all."""
    run, now = store.directory(spec.run_id), now_iso()
    if (run / "result.json").exists():
        return
    status: Status = "finished" if reading.exploded is None else "diverged"
    reason = None if reading.exploded is None else f"the loss was not finite or exploded at step {reading.exploded}"
    marks = {"imported": True, "self_reported": True, "budget": reading.n_steps, "log": path.name, "code": code}
    outcome = Outcome(status=status, reason=reason, final=reading.final(), marks=marks)
    beside = store.runs / f".import-{uuid.uuid4().hex[:12]}"
    try:
        beside.mkdir()
        (beside / "config.yaml").write_text(spec.to_yaml(), encoding="utf-8")
        (beside / "environment.json").write_text(json.dumps(account(reading), indent=1), encoding="utf-8")
        with (beside / "metrics.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(reading.lines())
        (beside / "log.txt").write_text(f"imported from {path.absolute()}\n", encoding="utf-8")
        end: Mapping[str, Any] = {"attempt": 1, "ended": now, "status": status, "reason": reason}
        (beside / "attempts.jsonl").write_text(json.dumps(end) + "\n", encoding="utf-8")
        result = result_of(beside, spec, outcome, started=None, ended=now, attempt=1)
        (beside / "result.json").write_text(result_text(result), encoding="utf-8")
        os.rename(beside, run)
    except OSError as error:
        if not (run / "result.json").exists():
            raise ResultsError(store.root, error) from None
