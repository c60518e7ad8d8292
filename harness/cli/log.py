"""One run: its story."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Json, Results
from harness.cli.progress import wall_words
from harness.cli.table import print_json, print_table, text

if TYPE_CHECKING:
    from harness.store.store import Store

Run = Annotated[str, typer.Argument(metavar="RUN", help="a run's name, or its beginning")]


def open_run(run: str, results: Path) -> "tuple[Store, str]":
    from harness.store.store import Store

    store = Store(results)
    return store, store.find(run)


@dataclass(frozen=True, kw_only=True)
class Membership:
    """One place of a run in an experiment."""

    experiment: str
    arm: str
    plugins: tuple[str, ...]


def experiments_of(results: Path, run_id: str) -> list[Membership]:
    """Which experiments a run belongs to, as which arm, with their plug-ins."""
    from harness.store.plans import read_plan

    places = []
    for path in sorted(results.glob("experiments/*/experiment.json")):
        plan = read_plan(results, path.parent.name)
        if plan is None:
            continue
        for planned in plan.runs:
            if run_id in (planned.run_id, *planned.older):
                place = Membership(experiment=plan.name, arm=planned.arm, plugins=plan.plugins)
                places.append(place)
    return places


@app.command()
def log(run: Run, results: Results = RESULTS, json: Json = False) -> None:
    """One run's story: what it was, how it was made, every attempt, its result, its log."""
    from harness.provenance.redact import redact
    from harness.run.read import read_config, read_json, read_lines
    from harness.run.results import read_result

    store, run_id = open_run(run, results)
    place = store.directory(run_id)
    config, log_text = {}, ""
    if (place / "config.yaml").exists():
        config = read_config(place)
    if (place / "log.txt").exists():
        log_text = redact((place / "log.txt").read_text(encoding="utf-8", errors="replace"))
    memberships = experiments_of(results, run_id)
    story: dict[str, Any] = {
        "run": run_id,
        "experiments": [{"name": m.experiment, "arm": m.arm} for m in memberships],
        "config": config,
        "environment": read_json(place / "environment.json") or {},
        "attempts": read_lines(place / "attempts.jsonl"),
        "state": store.state(run_id)["status"],
        "result": read_result(place),
        "log": log_text,
    }
    if json:
        print_json(story)
        return
    for name, value in facts(story):
        print(f"{name:12} {value}")
    print()
    rows = [{"attempt": n, **row} for n, row in attempts(story["attempts"]).items()]
    print_table(rows, ["attempt", "started", "ended", "host", "status", "reason"])
    print(f"\n{story['log']}", end="")


def attempts(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Start and end of each attempt as one row."""
    out: dict[Any, dict[str, Any]] = {}
    for row in rows:
        out.setdefault(row.get("attempt"), {}).update(row)
    return out


MEASURES = ("val_loss", "steps", "train_time_s", "step_ms", "peak_allocated_mib")


def facts(story: dict[str, Any]) -> list[tuple[str, str]]:
    """The head of the story: name and words; what is not known is left out."""
    config, environment = story["config"], story["environment"]
    result = story["result"] or {}
    measured = {name: result.get(name) for name in MEASURES if result.get(name) is not None}
    lines = {
        "run": state_words(story["run"], story["state"], result),
        "part of": ", ".join(f"{e['name']} as {e['arm']}" for e in story["experiments"]),
        "result": values_words(measured),
        "toggles": "; ".join(config.get("toggles") or []),
        "substituted": "; ".join(config.get("substituted") or []),
        "run of": run_words(config),
        "data": data_words(config),
        "code": code_words(config, environment.get("git") or {}),
        "machine": machine_words(environment),
        "gpus": gpu_words(environment.get("gpus") or []),
        "gpu state": values_words(result.get("gpu") or {}),
        "versions": versions_words(environment),
        "command": environment.get("command") or "",
        "wall time": wall_words([result["wall"]]) if result.get("wall") else "",
    }
    return [(name, line) for name, line in lines.items() if line]


def state_words(run_id: str, state: str, result: Mapping[str, Any]) -> str:
    if result.get("reason"):
        return f"{run_id}: {state} ({result['reason']})"
    return f"{run_id}: {state}"


def values_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {text(value)}" for name, value in values.items())


def run_words(config: Mapping[str, Any]) -> str:
    if not config:
        return ""
    return (
        f"seed {config['seed']}, {config.get('budget') or 'its own'} steps,"
        f" role {config['role']}, {config['world_size']} x {config['device']}"
    )


def data_words(config: Mapping[str, Any]) -> str:
    data = config.get("data")
    if not data:
        return ""
    return f"{data['name']}, fingerprint {data['fingerprint'][:16]}"


def code_words(config: Mapping[str, Any], git: Mapping[str, Any]) -> str:
    if not config.get("source"):
        return ""
    commit = f"commit {git.get('commit') or 'unknown'}"
    if git.get("dirty"):
        diff = f"code/{git.get('diff_sha256')}.diff"
        commit += f", with changes that were not committed ({diff})"
    return f"{commit}; as it ran: code/{config['source']['digest']}.zip"


def machine_words(environment: Mapping[str, Any]) -> str:
    parts = [environment.get(name) for name in ("host", "cpu", "system")]
    return ", ".join(str(part) for part in parts if part)


def gpu_words(gpus: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{g.get('name')}, driver {g.get('driver_version')}" for g in gpus)


def versions_words(environment: Mapping[str, Any]) -> str:
    versions = environment.get("lock") or {}
    return ", ".join(f"{package} {version}" for package, version in versions.items())
