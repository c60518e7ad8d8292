"""One run of a log in the results folder: its identity and its files."""

import json
import os
import uuid
from pathlib import Path

from harness.foreign.log_facts import LogFacts
from harness.foreign.log_files import FoundFile, ReadLog
from harness.foreign.log_lines import VERSIONS
from harness.foreign.plan import UNKNOWN_CORPUS
from harness.run.attempts import AttemptRow
from harness.run.digests import short_digest
from harness.run.document import Content
from harness.run.files import now_iso
from harness.run.measured import ImportMarks
from harness.run.results import result_text
from harness.run.spec import Outcome, RunSpec, Status
from harness.store.attempt import result_of
from harness.store.errors import ResultsError
from harness.store.store import Store


def spec_of_log(log: ReadLog) -> RunSpec:
    """The identity of an imported run: what was measured, by which code, on what.

    Its number stands for the measurements."""
    reading = log.reading
    facts: Content = dict(reading.facts.versions)
    if reading.facts.gpus:
        facts["gpus"] = reading.facts.gpus
    return RunSpec(
        config={"log": {"code": log.code, "steps": reading.n_steps}},
        seed=0,
        replicate=int(reading.digest()[:12], 16),
        budget=reading.n_steps,
        data_name=UNKNOWN_CORPUS.name,
        data_fingerprint=UNKNOWN_CORPUS.fingerprint,
        source_digest=log.code or "unknown",
        environment_digest=short_digest(facts),
        device="cuda" if reading.facts.gpus else "unknown",
    )


def environment_of_log(facts: LogFacts) -> Content:
    """environment.json: what the log says of the machine."""
    driver = facts.versions.get("driver")
    versions = {name: facts.versions[name] for name in VERSIONS if name in facts.versions}
    gpus = []
    for name in facts.gpus:
        gpus.append({"name": name, "driver_version": driver, "memory_mib": facts.gpu_memory_mib})
    return {
        "schema": 1,
        "host": None,
        "cpu": None,
        "gpus": gpus or None,  # unknown is not none
        **versions,
        "lock": versions,
    }


def origin(log: ReadLog, file: FoundFile) -> str:
    """The path as it was given, and which run of the file."""
    if log.number is None:
        return str(file.path)
    return f"{file.path} (run {log.number})"


def seed_of(log: ReadLog, file: FoundFile) -> int | None:
    """The seed that a log prints, or that its path names; None where neither does."""
    if log.reading.facts.seed is not None:
        return log.reading.facts.seed
    return file.place.seed


def write_run(store: Store, spec: RunSpec, log: ReadLog, file: FoundFile) -> None:
    """A run's folder, made beside its place and renamed, whole or not at all."""
    run = store.directory(spec.run_id)
    if (run / "result.json").exists():
        return
    beside = store.runs / f".import-{uuid.uuid4().hex[:12]}"
    try:
        _write_files(beside, spec, log, file)
        os.rename(beside, run)
    except OSError as error:
        if not (run / "result.json").exists():
            raise ResultsError(store.root, error) from None


def _write_files(folder: Path, spec: RunSpec, log: ReadLog, log_file: FoundFile) -> None:
    """Everything that a run's folder holds, its result last."""
    ended = now_iso()
    outcome = _outcome(log, log_file)
    environment = json.dumps(environment_of_log(log.reading.facts), indent=1)
    attempt = AttemptRow(attempt=1, ended=ended, status=outcome.status, reason=outcome.reason)
    folder.mkdir()
    (folder / "config.yaml").write_text(spec.to_yaml(), encoding="utf-8")
    (folder / "environment.json").write_text(environment, encoding="utf-8")
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(log.reading.lines())
    (folder / "log.txt").write_text(f"imported from {origin(log, log_file)}\n", encoding="utf-8")
    (folder / "attempts.jsonl").write_text(json.dumps(attempt.to_json()) + "\n", encoding="utf-8")
    result = result_of(folder, spec, outcome, started=None, ended=ended, attempt=1)
    (folder / "result.json").write_text(result_text(result), encoding="utf-8")


def _outcome(log: ReadLog, file: FoundFile) -> Outcome:
    reading = log.reading
    status: Status = "finished"
    reason = None
    if reading.exploded is not None:
        status = "diverged"
        reason = f"the loss was not finite or exploded at step {reading.exploded}"
    marks = ImportMarks(
        budget=reading.n_steps,
        log=origin(log, file),
        code=log.code,
        program=log.program,
        recipe=log.recipe,
        seed_of_log=seed_of(log, file),
    )
    return Outcome(status=status, reason=reason, final=reading.final(), marks=marks)
