"""One run: its story, and again from its record."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.options import EXIT_FAILED, EXIT_STOPPED, RESULTS, Json, Results
from harness.cli.progress import wall_words
from harness.cli.table import print_json, print_table, text
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.store.store import Store

Run = Annotated[str, typer.Argument(metavar="RUN", help="a run's name, or its beginning")]


def open_run(run: str, results: Path) -> "tuple[Store, str]":
    from harness.store.store import Store

    store = Store(results)
    return store, store.find(run)


def experiments_of(results: Path, run_id: str) -> list[dict[str, Any]]:
    """Which experiments a run belongs to, as which arm, with their plug-ins."""
    from harness.store.plans import read_plan

    plans = [read_plan(results, p.parent.name) for p in sorted(results.glob("experiments/*/experiment.json"))]
    return [
        {"name": plan["name"], "arm": row["arm"], "plugins": plan.get("plugins", [])}
        for plan in plans
        if plan
        for row in plan["runs"]
        if run_id in (row["run_id"], *row["older"])
    ]


@app.command()
def log(run: Run, results: Results = RESULTS, json: Json = False) -> None:
    """One run's story: what it was, where and how it was made, every attempt, its result, its log."""
    from harness.provenance.redact import redact
    from harness.run.read import read_config, read_json, read_lines
    from harness.run.results import read_result

    store, run_id = open_run(run, results)
    place = store.directory(run_id)
    told: dict[str, Any] = {
        "run": run_id,
        "experiments": [{"name": e["name"], "arm": e["arm"]} for e in experiments_of(results, run_id)],
        "config": read_config(place) if (place / "config.yaml").exists() else {},
        "environment": read_json(place / "environment.json") or {},
        "attempts": read_lines(place / "attempts.jsonl"),
        "state": store.state(run_id)["status"],
        "result": read_result(place),
        "log": redact((place / "log.txt").read_text(encoding="utf-8", errors="replace")) if (place / "log.txt").exists() else "",
    }
    if json:
        print_json(told)
        return
    for name, value in facts(told):
        print(f"{name:12} {value}")
    print()
    print_table(
        [{"attempt": n, **row} for n, row in attempts(told["attempts"]).items()],
        ["attempt", "started", "ended", "host", "status", "reason"],
    )
    print(f"\n{told['log']}", end="")


def attempts(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Start and end of each attempt as one row."""
    out: dict[Any, dict[str, Any]] = {}
    for row in rows:
        out[row.get("attempt")] = {**out.get(row.get("attempt"), {}), **row}
    return out


def facts(told: dict[str, Any]) -> list[tuple[str, str]]:
    """The head of the story: name and words; what is not known is left out."""
    c, e, r = told["config"], told["environment"], told["result"] or {}
    git, gpus = e.get("git") or {}, e.get("gpus") or []
    commit = f"commit {git.get('commit') or 'unknown'}" + (
        f", with changes that were not committed (code/{git.get('diff_sha256')}.diff)" if git.get("dirty") else ""
    )
    steps = f"{c.get('budget') or 'its own'} steps"
    measured = [(k, r.get(k)) for k in ("val_loss", "steps", "train_time_s", "step_ms", "peak_allocated_mib")]
    known = [
        ("run", f"{told['run']}: {told['state']}" + (f" ({r['reason']})" if r.get("reason") else "")),
        ("part of", ", ".join(f"{x['name']} as {x['arm']}" for x in told["experiments"])),
        ("result", ", ".join(f"{k} {text(v)}" for k, v in measured if v is not None)),
        ("toggles", "; ".join(c.get("toggles") or [])),
        ("substituted", "; ".join(c.get("substituted") or [])),
        ("run of", f"seed {c['seed']}, {steps}, role {c['role']}, {c['world_size']} x {c['device']}" if c else ""),
        ("data", f"{c['data']['name']}, fingerprint {c['data']['fingerprint'][:16]}" if c.get("data") else ""),
        ("code", f"{commit}; as it ran: code/{c['source']['digest']}.zip" if c.get("source") else ""),
        ("machine", ", ".join(map(str, filter(None, (e.get("host"), e.get("cpu"), e.get("system"))))) if e else ""),
        ("gpus", "; ".join(f"{g.get('name')}, driver {g.get('driver_version')}" for g in gpus)),
        ("gpu state", ", ".join(f"{k} {text(v)}" for k, v in (r.get("gpu") or {}).items())),
        ("versions", ", ".join(f"{k} {v}" for k, v in (e.get("lock") or {}).items())),
        ("command", e.get("command") or ""),
        ("wall time", wall_words([r["wall"]]) if r.get("wall") else ""),
    ]
    return [(name, words) for name, words in known if words]


@app.command()
def rerun(
    run: Run,
    replace: Annotated[bool, typer.Option("--replace", help="put the new result in the place of the old one")] = False,
    results: Results = RESULTS,
) -> None:
    """Repeat a run from its record. A result stays what it is: its repetition goes to RESULTS/reruns and is compared with it."""
    from harness.config import plugins
    from harness.foreign.runner import run_again
    from harness.node.slots import Node
    from harness.provenance.interpreters import lock_of
    from harness.provenance.redact import redact
    from harness.provenance.source import changed_files, source_of
    from harness.run.read import read_config
    from harness.run.results import read_result
    from harness.run.spec import PlannedRun, RunSpec
    from harness.runner.executor import ExecutorOptions
    from harness.runner.local import Runner

    store, run_id = open_run(run, results)
    before = read_result(store.directory(run_id))
    spec = RunSpec.from_mapping(read_config(store.directory(run_id)))
    belongs = experiments_of(results, run_id)
    plugins.use(Path(p) for e in belongs[:1] for p in e["plugins"])
    source = source_of(plugins.paths())
    trainer = spec.config.get("trainer")  # a foreign one; its code is kept whole
    if "log" in spec.config:
        raise UserError(f"run {run_id} was imported from a log: there is nothing that could run again")
    if trainer is None and source.digest != spec.source_digest:
        changed = ", ".join(changed_files(spec.source_files, source.files))
        raise UserError(
            f"run {run_id} was made by other code ({changed}): bring that code back (it is in {results}/code/"
            f"{spec.source_digest}.zip), or run its experiment again with the present code"
        )
    if lock_of(trainer["environment"] if trainer else spec.runs_in).digest != spec.environment_digest:
        raise UserError(
            f"run {run_id} was made with other versions: install those of {results}/environments/{spec.environment_digest}.json"
        )
    again = again_in(store, run_id, aside=before is not None, replace=replace)
    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    planned = PlannedRun(arm=belongs[0]["arm"] if belongs else run_id, block=0, order=0, spec=spec)
    print(f"{planned.arm}, seed {spec.seed}: {spec.budget or 'its own'} steps, in {again.directory(run_id)}", flush=True)
    options = ExecutorOptions(command=command)
    own = Runner([planned], again, Node.here(spec.device), options) if trainer is None else None
    summary = own.run() if own else run_again(planned, store, again)
    if summary.stopped:
        raise typer.Exit(EXIT_STOPPED[summary.stopped])
    after = read_result(again.directory(run_id))
    if after is None:
        print(f"{summary.statuses[run_id]}: {summary.reasons.get(run_id)} ({again.directory(run_id) / 'log.txt'})")
        raise typer.Exit(EXIT_FAILED)
    print(f"{after['status']}: val_loss {text(after['val_loss'], 6)}" + compared(before, after))


def again_in(store: "Store", run_id: str, *, aside: bool, replace: bool) -> "Store":
    """The store in which a run is done again: its own if it has no result or that is to be replaced, else reruns/."""
    from harness.store.store import Store

    if not aside:
        return store
    again = store if replace else Store.create(store.root / "reruns")
    if again.directory(run_id).is_dir():
        if again.hold(run_id) is None:
            raise UserError(
                f"run {run_id} is being repeated in this moment: look at it with `ablate status --results {again.root}`"
            )
        again.set_aside(run_id)
    return again


def compared(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """How a repetition compares with the result on record."""
    if before is None:
        return ""
    if before["val_loss"] == after["val_loss"]:
        return ", bit for bit as before"
    if None in (before["val_loss"], after["val_loss"]):
        return f", before: {before['status']}"
    return f", before: {text(before['val_loss'], 6)}, difference {after['val_loss'] - before['val_loss']:+.2e}"
