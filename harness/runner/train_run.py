"""What a worker does with a request: claim the run, train it, write down how it ended."""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeVar

from harness.config import plugins
from harness.config.plugin_errors import raised_by_plug_in
from harness.errors import UserError
from harness.node.gpus import Sampler
from harness.node.load import ForeignLoad
from harness.node.memory import peak_mib
from harness.node.stalls import Stalls
from harness.provenance.interpreters import EFFECT
from harness.provenance.machine import describe_environment, working_diff
from harness.provenance.redact import redact
from harness.provenance.source import snapshot
from harness.run.disturbed import Disturbance, disturbed_words, stood_still
from harness.run.measured import OwnMarks
from harness.run.spec import RESULT_STATUSES, Outcome, RunSpec
from harness.runner.messages import WorkerEvent, WorkerRequest
from harness.runner.unchanged import check_data, look_at
from harness.store.attempt import RunWriter, TakenOverError, claim
from harness.store.errors import ResultsError
from harness.store.store import Store
from harness.training.output import RunOutput

Trainer = Callable[..., Outcome]
Handed = TypeVar("Handed")
NO_MEMORY = (  # how libraries say it without a type of their own
    "can't allocate memory",
    "not enough memory",
    "out of memory",
)
KERNEL_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
LONGEST_REASON = 500  # characters
TAKEN = WorkerEvent(status="taken")


class StopRequest:
    """Whether a signal has asked this worker to stop: as the status that it means."""

    def __init__(self) -> None:
        self.status: str | None = None

    def ask(self, status: str) -> None:
        self.status = status

    def made(self) -> bool:
        return self.status is not None


@dataclass(frozen=True, kw_only=True)
class StopOrLoss:
    """As a signal asks for it, or once another process has taken the run over."""

    signal: StopRequest
    out: RunWriter

    @property
    def status(self) -> str | None:
        return self.signal.status

    def made(self) -> bool:
        return self.signal.made() or self.out.lost


AnyStop = StopRequest | StopOrLoss


class Peers(Protocol):
    """The further processes of a worker, as its first one speaks to them."""

    def share(self, value: Handed) -> Handed:
        """The first process's value, on every one."""
        ...

    def wait_after_failure(self) -> None:
        """Before a failure is told: what made it may be that another process died."""
        ...


class Alone:
    """A worker of one process has no peers."""

    def share(self, value: Handed) -> Handed:
        return value

    def wait_after_failure(self) -> None:
        pass


def load_trainer(text: str) -> Trainer:
    """The function of MODULE:FUNCTION: (spec, out=, device=, stop=) -> Outcome.

    harness.training.train.train is one.
    """
    module, _, name = text.partition(":")
    trainer: Trainer = getattr(import_module(module), name)
    return trainer


def run(spec: RunSpec, out: RunOutput, train: Trainer, stop: AnyStop) -> Outcome:
    """Train, with every end turned into an outcome.

    Raises ResultsError where the results cannot be written.
    """
    try:
        outcome = train(spec, out=out, device=spec.device, stop=stop.made)
    except ResultsError:
        raise
    except UserError as error:
        return Outcome(status="failed", reason=str(error))
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            out.log(line)
        return _outcome_of(error)
    if outcome.status == "interrupted" and stop.status is not None:
        return Outcome(status=stop.status, reason="stopped by a signal")  # type: ignore[arg-type]
    return outcome


def _outcome_of(error: Exception) -> Outcome:
    """Of what a trainer raised."""
    first_line = f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]
    reason = redact(raised_by_plug_in(error) or first_line)[:LONGEST_REASON]
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
        return Outcome(status="oom", reason=reason, peak_rss_mib=peak_mib(os.getpid()))
    return Outcome(status="failed", reason=reason)


def keep_kernels(mark: str | Path) -> None:
    """Compiled kernels go to the folder of a configuration's mark."""
    os.environ.update(dict.fromkeys(KERNEL_CACHES, str(Path(mark).parent)))


def as_requested(request: WorkerRequest) -> RunSpec:
    """The run as it is to be trained: in smaller pieces where memory ran out before."""
    spec = request.spec
    if request.cache is not None:
        request.cache.mkdir(parents=True, exist_ok=True)
        keep_kernels(request.cache)
    if request.micro_tokens is None:
        return spec
    data = {**spec.config["data"], "micro_tokens": request.micro_tokens}
    return replace(with_note(request), config={**spec.config, "data": data})


def with_note(request: WorkerRequest) -> RunSpec:
    """The run as it is recorded: its own configuration, and what was substituted in training it."""
    if request.micro_tokens is None:
        return request.spec
    planned = request.spec.config["data"]["micro_tokens"]
    note = f"data.micro_tokens={request.micro_tokens} instead of {planned}: memory ran out before"
    return replace(request.spec, substituted=(*request.spec.substituted, note))


def lead(
    request: WorkerRequest,
    train: Trainer,
    *,
    wall: Mapping[str, float],
    peers: Peers,
    stop: StopRequest,
) -> WorkerEvent:
    """One request on the first process: claim, train, finish.

    wall: seconds that the worker itself cost this run so far, by phase.
    """
    spec, trained = with_note(request), as_requested(request)
    store = Store(request.results)
    began = time.perf_counter()
    out = claim(store, spec, token=request.token)
    peers.share(None if out is None else out.attempt)
    if out is None:
        return TAKEN
    try:
        _record(store, spec, out, request.command)
        data = look_at(spec.data_name)
        asked: AnyStop = stop
        if spec.world_size == 1:  # ranks cannot stop at different steps
            asked = StopOrLoss(signal=stop, out=out)
        with (
            _into_log(out),
            Sampler(out.metric) as sampler,
            Stalls() as stalls,
            ForeignLoad() as load,
        ):
            outcome = run(trained, out, train, asked)
        outcome = out.checked(check_data(data, outcome))
        if outcome.status == "failed":
            peers.wait_after_failure()
        total_s = wall.get("import_s", 0.0) + time.perf_counter() - began
        disturbed = disturbances(stalls, load, outcome)
        of_gpus = sampler.summary()
        marks = OwnMarks(
            gpu=None if of_gpus is None else of_gpus.to_json(),
            environment_effect=os.environ.get(EFFECT),
        )
        seconds = {**wall, **outcome.wall, "total_s": total_s}
        if not out.finish(replace(outcome, wall=seconds, marks=marks, disturbed=disturbed)):
            return TAKEN
    except TakenOverError:
        return TAKEN
    finally:
        out.release()
    reason = outcome.reason
    if outcome.status in RESULT_STATUSES:
        reason = reason or disturbed_words(disturbed)
    val_loss = outcome.final.val_loss
    return WorkerEvent(status=outcome.status, reason=reason, val_loss=val_loss)


def disturbances(stalls: Stalls, load: ForeignLoad, outcome: Outcome) -> tuple[Disturbance, ...]:
    """What disturbed the time of a run that is over."""
    causes = []
    still_s = stalls.seconds(outcome.timed)
    if still_s:
        causes.append(stood_still(still_s))
    for sentence in load.words():
        causes.append(Disturbance(kind="load", words=sentence))
    return tuple(causes)


def _record(store: Store, spec: RunSpec, out: RunWriter, command: str | None) -> None:
    """Environment, versions and code of the attempt."""
    environment = describe_environment(command)
    out.describe(environment.to_json())
    lock = json.dumps(environment.lock, indent=1).encode()
    diff_sha256 = environment.git.diff_sha256
    store.keep_once("environments", spec.environment_digest, ".json", lambda: lock)
    store.keep_once("code", spec.source_digest, ".zip", _snapshot)
    if diff_sha256 is not None:
        store.keep_once("code", diff_sha256, ".diff", _working_diff)


def _snapshot() -> bytes:
    return snapshot(plugins.paths())


def _working_diff() -> bytes:
    return working_diff().encode()


@contextmanager
def _into_log(out: RunWriter) -> Iterator[None]:
    """Send what anything prints meanwhile to the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept_output, kept_errors = os.dup(1), os.dup(2)
    os.dup2(out.log_file.fileno(), 1)
    os.dup2(out.log_file.fileno(), 2)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            _put_back(kept_output, 1)
            _put_back(kept_errors, 2)


def _put_back(kept: int, number: int) -> None:
    os.dup2(kept, number)
    os.close(kept)
