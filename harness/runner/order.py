"""One run on one worker, to its end: a new worker where one died, smaller micro-batches where memory ran out."""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.errors import UserError
from harness.provenance.redact import redact
from harness.run.read import read_json
from harness.run.spec import RunSpec
from harness.runner.executor import Limits
from harness.runner.process import Event, WorkerProcess
from harness.store.store import Store

POLL_S = 0.2
STOPPED = {"failed": "a process on another of its nodes ended"}
START_S = 600.0  # a worker may take this long to import, to find its GPUs and its peers


def split_finer(spec: RunSpec) -> RunSpec | None:
    """The run with half the tokens in a forward pass and twice the passes in an update: the same mathematics.

    None where it would be another: passes that are summed instead of averaged, rows that cannot be halved, validation tokens
    that would no longer be the same ones.
    """
    data = spec.config["data"]
    micro, seq = data["micro_tokens"], data["seq_len"]
    same_val = data["val_tokens"] % micro == 0
    if spec.config["system"]["accumulate"] != "mean" or micro % (2 * seq) or not same_val:
        return None
    return replace(spec, config={**spec.config, "data": {**data, "micro_tokens": micro // 2}})


def execute(
    worker: WorkerProcess,
    spec: RunSpec,
    store: Store,
    *,
    command: str,
    cache: Path | None = None,
    limits: Limits = Limits(),
    stop: Callable[[], str | None] = lambda: None,
    first_step: Callable[[], None] = lambda: None,
    name: str = "",
) -> Event:
    """How the run ended: status and reason; "taken" if somebody else has it. Raises UserError where nothing can go on.

    stop: the status that the run is to end with at once, None to go on. first_step is called when the run makes one.
    name: of the job that does it, if one does.
    """
    order: Event = {"results": str(store.root.resolve()), "spec": spec.to_mapping(), "command": command}
    order["cache"] = None if cache is None else str(cache.resolve())
    deaths, retries, trained = 0, 0, spec
    while True:
        token = f"{name}/{uuid.uuid4().hex}"
        finer = {} if trained is spec else {"micro_tokens": trained.config["data"]["micro_tokens"]}
        worker.send({**order, **finer, "token": token})
        event = _redacted(_answer(worker, spec, store, token, limits, stop, first_step))
        if event["status"] == "broken":
            raise UserError(event["reason"])
        again = False
        if event["status"] == "died":
            left = _redacted(_left_by_rank(store, spec, token))
            if left.get("status") == "oom":
                event = {**left, "note": True}
            else:  # a rank's exception may only be the echo of another rank's death
                deaths += 1
                again = deaths <= limits.deaths
                event = {"status": "failed", "reason": left.get("reason", event["reason"]), "note": True, "died": True}
        if event["status"] == "oom" and retries < limits.oom_retries and (smaller := split_finer(trained)) is not None:
            retries, trained, again = retries + 1, smaller, True
        if event.get("note"):
            store.note_end(spec.run_id, token=token, status=event["status"], reason=event["reason"])
        if not again:
            return event


def _redacted(event: Event) -> Event:
    """An event whose reason may hold anything that a process last said, without what is secret: a job's output shows it."""
    return {**event, "reason": redact(event["reason"])} if event.get("reason") else event


def _attempt(store: Store, spec: RunSpec, token: str) -> Path | None:
    """The folder of the attempt that was ordered with this token, once it was begun."""
    for owner in (store.directory(spec.run_id) / "attempts").glob("*/owner.json"):
        if (read_json(owner) or {}).get("token") == token:
            return owner.parent
    return None


def _left_by_rank(store: Store, spec: RunSpec, token: str) -> Event:
    """What a further rank of a group told of its end: status and reason; empty if nothing."""
    attempt = _attempt(store, spec, token)
    paths = [] if attempt is None else sorted(attempt.glob("rank*.json"))
    return next((event for path in paths if (event := read_json(path))), {})


def _answer(
    worker: WorkerProcess,
    spec: RunSpec,
    store: Store,
    token: str,
    limits: Limits,
    stop: Callable[[], str | None],
    first_step: Callable[[], None],
) -> Event:
    """The worker's answer, its death, or the end that the runner gives it: stopped, too long, silent."""
    began = moved = time.monotonic()
    seen, at_work = None, False
    while (event := worker.event(POLL_S)) is None:
        now = time.monotonic()
        if not at_work and _attempt(store, spec, token) is not None:
            at_work, began, moved = True, now, now  # the worker's start is no part of the run
        silence_s = limits.silence_s if at_work else max(limits.silence_s, START_S)
        if now - moved > min(1.0, silence_s / 4) and (shown := store.progress(spec.run_id)) != seen:
            if seen is None:
                first_step()
            seen, moved = shown, now
        end = None
        if (status := stop()) is not None:
            end = {"status": status, "reason": STOPPED.get(status, "stopped by a signal")}
        elif at_work and limits.wall_s is not None and now - began > limits.wall_s:
            end = {"status": "timeout", "reason": f"it ran longer than its wall limit of {limits.wall_s:g} s"}
        elif now - moved > silence_s:
            end = {"status": "timeout", "reason": f"it made no step for {silence_s:g} s"}
        if end is not None:
            worker.kill()
            return {**end, "note": True}
    return event
