"""One run, as its files tell it."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Json, Results
from harness.cli.progress import wall_words
from harness.cli.table import print_json, print_table, text
from harness.errors import visible
from harness.run.document import Content, Document

if TYPE_CHECKING:
    from harness.run.results import Result
    from harness.store.store import Store

SHOWN_MIB = 8  # of the beginning of a log, and of its end
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


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """One run as its files tell it."""

    run: str
    experiments: Sequence[Membership]
    config: Document  # config.yaml, empty where there is none
    environment: Document  # environment.json
    attempts: Sequence[Document]  # rows of attempts.jsonl
    state: str
    result: "Result | None"
    log: str  # log.txt

    def to_json(self) -> Content:
        return {
            "run": self.run,
            "experiments": [{"name": m.experiment, "arm": m.arm} for m in self.experiments],
            "config": self.config,
            "environment": self.environment,
            "attempts": self.attempts,
            "state": self.state,
            "result": self.result and self.result.to_json(),
            "log": self.log,
        }


def experiments_of(results: Path, run_id: str) -> list[Membership]:
    """Which experiments a run belongs to, as which arm, with their plug-ins."""
    from harness.store.plans import readable_plans

    places = []
    for _, plan, _ in readable_plans(results):
        if plan is None:
            continue
        for planned in plan.runs:
            if run_id in (planned.run_id, *planned.older):
                place = Membership(experiment=plan.name, arm=planned.arm, plugins=plan.plugins)
                places.append(place)
    return places


def ends_of_log(path: Path) -> str:
    """A log, or where it is very long its beginning and its end."""
    from harness.run.guarded import MIB, ends_of

    head, n_left_out, tail = ends_of(path, SHOWN_MIB * MIB)
    gap = f"\n... {n_left_out} bytes are left out here ...\n".encode() if n_left_out else b""
    return (head + gap + tail).decode("utf-8", "replace")


@app.command()
def log(run: Run, results: Results = RESULTS, json: Json = False) -> None:
    """One run's story: what it was, how it was made, every attempt, its result, its log."""
    from harness.provenance.redact import redact
    from harness.run.attempts import by_attempt, read_attempts
    from harness.run.environment import read_environment
    from harness.run.read import read_config, read_lines
    from harness.run.results import examine, read_result

    store, run_id = open_run(run, results)
    place = store.directory(run_id)
    result, wrong = examine(place, run_id)
    if result is not None and wrong:
        print(f"not all of this is what the run wrote: {visible(wrong)}", file=sys.stderr)
    config: Document = {}
    environment: Document = {}
    log_text = ""
    with suppress(OSError, ValueError):
        config = read_config(place)
    with suppress(ValueError):
        environment = read_environment(place / "environment.json")
    with suppress(FileNotFoundError):
        log_text = redact(ends_of_log(place / "log.txt"))
    memberships = experiments_of(results, run_id)
    details = RunDetails(
        run=run_id,
        experiments=memberships,
        config=config,
        environment=environment,
        attempts=read_lines(place / "attempts.jsonl"),
        state=store.state(run_id).status,
        result=read_result(place),
        log=log_text,
    )
    if json:
        print_json(details.to_json())
        return
    for name, value in facts(details):
        print(f"{name:12} {visible(value)}")
    print()
    rows = [asdict(row) for row in by_attempt(read_attempts(place))]
    print_table(rows, ["attempt", "started", "ended", "host", "status", "reason"])
    print(f"\n{visible(details.log)}", end="")


MEASURES = ("val_loss", "steps", "train_time_s", "step_ms", "peak_allocated_mib")


def facts(details: RunDetails) -> list[tuple[str, str]]:
    """The head of what is printed: name and words; what is not known is left out."""
    config, environment = details.config, details.environment
    measured, of_gpus, wall = {}, None, None
    if details.result is not None:
        values = {name: getattr(details.result, name) for name in MEASURES}
        measured = {name: value for name, value in values.items() if value is not None}
        of_gpus, wall = details.result.gpu, details.result.wall
    lines = {
        "run": state_words(details),
        "part of": ", ".join(f"{m.experiment} as {m.arm}" for m in details.experiments),
        "result": values_words(measured),
        "toggles": "; ".join(config.get("toggles") or []),
        "substituted": "; ".join(config.get("substituted") or []),
        "run of": run_words(config),
        "data": data_words(config),
        "code": code_words(config, environment.get("git") or {}),
        "machine": machine_words(environment),
        "gpus": gpu_words(environment.get("gpus") or []),
        "gpu state": values_words(of_gpus or {}),
        "versions": versions_words(environment),
        "command": environment.get("command") or "",
        "wall time": wall_words([wall]) if wall else "",
    }
    return [(name, line) for name, line in lines.items() if line]


def state_words(details: RunDetails) -> str:
    line = f"{details.run}: {details.state}"
    if details.result is not None and details.result.reason:
        line += f" ({details.result.reason})"
    return line


def values_words(values: Document) -> str:
    return ", ".join(f"{name} {text(value)}" for name, value in values.items())


def run_words(config: Document) -> str:
    if not config:
        return ""
    return (
        f"seed {config['seed']}, {config.get('budget') or 'its own'} steps,"
        f" role {config['role']}, {config['world_size']} x {config['device']}"
    )


def data_words(config: Document) -> str:
    data = config.get("data")
    if not data:
        return ""
    return f"{data['name']}, fingerprint {data['fingerprint'][:16]}"


def code_words(config: Document, git: Document) -> str:
    if not config.get("source"):
        return ""
    commit = f"commit {git.get('commit') or 'unknown'}"
    if git.get("dirty"):
        commit += f", {uncommitted_words(git)}"
    return f"{commit}; as it ran: code/{config['source']['digest']}.zip"


def uncommitted_words(git: Document) -> str:
    """What of the folder was in no commit."""
    parts = []
    if git.get("diff_sha256"):
        parts.append(f"with changes that were not committed (code/{git['diff_sha256']}.diff)")
    if git.get("untracked"):
        parts.append(f"with {git['untracked']} untracked files")
    return ", ".join(parts) or "with changes that were not committed"


def machine_words(environment: Document) -> str:
    parts = [environment.get(name) for name in ("host", "cpu", "system")]
    return ", ".join(str(part) for part in parts if part)


def gpu_words(gpus: Sequence[Document]) -> str:
    return "; ".join(f"{g.get('name')}, driver {g.get('driver_version')}" for g in gpus)


def versions_words(environment: Document) -> str:
    versions = environment.get("lock") or {}
    return ", ".join(f"{package} {version}" for package, version in versions.items())
