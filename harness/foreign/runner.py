"""Foreign scripts as runs that any executor makes: claimed, watched, tried again where they may be.

Whoever makes a run has the kept copy of the script by its digest; the user's file is not looked at.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.errors import UserError
from harness.foreign.clean_copy import copy_of, environment_of
from harness.foreign.command import ForeignTrainer
from harness.foreign.trainer import train
from harness.foreign.warm_up import compiles, discarded_store, warm_mark
from harness.node.slots import Node, Slot, find_gpus
from harness.node.stalls import Stalls
from harness.provenance import interpreters
from harness.provenance.code import Code, read_code
from harness.run.disturbed import stood_still
from harness.run.foreign import TrainerLimits
from harness.run.guarded import KEPT, copy_file
from harness.run.read import read_json
from harness.run.spec import Outcome, PlannedRun, RunSpec
from harness.runner.execute import Execution
from harness.runner.executor import ExecutorOptions, Summary
from harness.runner.kernels import TurnToCompile
from harness.runner.limits import POLL_S
from harness.runner.local import Runner
from harness.runner.messages import WorkerEvent
from harness.runner.process import Group
from harness.runner.trainers import RunMaker
from harness.store.attempt import TakenOverError, claim
from harness.store.store import FAILED, Store

TAKEN = WorkerEvent(status="taken")


def new_session() -> str:
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True, kw_only=True)
class ScriptTrainer:
    """The scripts of one call, whatever they are: each run says what it starts."""

    limits: TrainerLimits = field(default_factory=TrainerLimits)
    warm_up: bool = False  # a script that compiles has a discarded run first, once per node
    session: str = field(default_factory=new_session)  # times of its runs may be compared

    @property
    def modules(self) -> Sequence[str]:
        return (__name__,)

    def maker(
        self, spec: RunSpec, slot: Slot, *, group: Group | None = None, forks: bool = False
    ) -> "ScriptMaker":
        return ScriptMaker(slot, self)

    def corpora(self, spec: RunSpec) -> Sequence[str]:
        return ()

    def kept(self, spec: RunSpec) -> Sequence[str]:
        return f"code/{spec.source_digest}.zip", f"environments/{spec.environment_digest}.json"

    def data(self, spec: RunSpec) -> Sequence[str]:
        return tuple(ForeignTrainer.of_run(spec).data.values())


class ScriptMaker:
    """Starts scripts on a slot, one after the other; between two of them there is nothing."""

    def __init__(self, slot: Slot, trainer: ScriptTrainer) -> None:
        self.slot, self.trainer = slot, trainer

    def make(self, run: Execution) -> WorkerEvent:
        """A run to its end, tried again as often as its limits allow."""
        code = kept_code(run.store, run.spec)
        check_versions(run.store, run.spec)
        if self.trainer.warm_up and compiles(code):
            self._warm_up(run, code)
        n_failed = 0
        while True:
            outcome = self._attempt(run, code)
            if outcome is None:
                return TAKEN
            n_failed += outcome.status in FAILED
            if outcome.status not in FAILED or n_failed > self.trainer.limits.retries:
                val_loss = outcome.final.val_loss
                return WorkerEvent(status=outcome.status, reason=outcome.reason, val_loss=val_loss)

    def _attempt(self, run: Execution, code: Code) -> Outcome | None:
        """None if the run is somebody else's, or done."""
        token = f"{run.job}/{uuid.uuid4().hex[:12]}/{self.trainer.session}"
        out = claim(run.store, run.spec, token=token)
        if out is None:
            return None

        def stop() -> str | None:
            return run.stop() or ("interrupted" if out.lost else None)

        try:
            out.describe(environment_of(run.spec, copy_of(out)))
            try:
                with Stalls() as stalls:
                    outcome = train(
                        run.spec,
                        out=out,
                        code=code,
                        slot=self.slot,
                        stop=stop,
                        limits=self.trainer.limits,
                        moved=run.moved,
                    )
                still_s = stalls.seconds(None)
                if still_s:
                    outcome = replace(outcome, disturbed=(stood_still(still_s),))
            except OSError as error:
                outcome = Outcome(status="failed", reason=f"its clean copy cannot be made: {error}")
            outcome = out.checked(outcome)
            if not out.finish(outcome):
                return None
        except TakenOverError:
            return None
        finally:
            out.release()
        return outcome

    def _warm_up(self, run: Execution, code: Code) -> None:
        """One run that nothing keeps, where none was made; of a failure its own runs tell why."""

        def look() -> bool:
            time.sleep(POLL_S)
            return run.stop() is None

        script, mark = ForeignTrainer.of_run(run.spec).script, warm_mark(run.spec)
        turn = TurnToCompile(mark)
        try:
            turn.wait(look)
            if mark.exists() or run.stop() is not None:
                return
            print(f"{script}: a warm-up run, for its kernels: it is discarded", flush=True)
            with discarded_store() as store:
                outcome = self._attempt(replace(run, store=store), code)
            if outcome is not None and outcome.status in FAILED:
                print(f"{script}: its warm-up run failed: {outcome.reason}", flush=True)
            if run.stop() is None:
                mark.touch()
        finally:
            turn.release()

    def start(self) -> None:
        raise UserError("a foreign trainer's run has one node: leave --nodes-per-run out")

    def is_like(self, other: RunMaker) -> bool:
        return False

    def alive(self) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to end."""

    def kill(self) -> None:
        """There is nothing to end."""


def kept_code(store: Store, spec: RunSpec) -> Code:
    """A run's code, by its digest; raises UserError where that is gone or another."""
    script = ForeignTrainer.of_run(spec).script
    digest = spec.source_digest
    return read_code(store.root / "code" / f"{digest}.zip", script, digest=digest)


def check_versions(store: Store, spec: RunSpec) -> None:
    """Raises UserError where the run would meet other versions here than it was planned for."""
    lock = interpreters.lock_of(ForeignTrainer.of_run(spec).environment)
    if lock.digest != spec.environment_digest:
        planned = read_json(store.root / "environments" / f"{spec.environment_digest}.json") or {}
        differs = interpreters.difference(planned, lock.versions)
        raise UserError(
            f"its environment is another one here ({differs}): install the same versions"
        )


def run_again(planned: PlannedRun, store: Store, again: Store) -> Summary:
    """A run of `store` once more in another folder, from the code that it ran."""
    spec = planned.spec
    trainer = ScriptTrainer()
    kept_code(store, spec)  # is what its name says
    for name in trainer.kept(spec):
        source, place = store.root / name, again.root / name
        if source.is_file() and not place.exists():
            place.parent.mkdir(exist_ok=True)
            copy_file(source, place, below=KEPT)
    check_gpus(spec)
    node = Node.here(spec.device, max_parallel=1)
    return Runner([planned], again, node, ExecutorOptions(trainer=trainer)).run()


def check_gpus(spec: RunSpec) -> None:
    """Raises UserError where this node has too few for one run."""
    if spec.device != "cuda":
        return
    shown = len(find_gpus())
    if spec.world_size > shown:
        raise UserError(
            f"a run needs {spec.world_size} GPUs, this node shows {shown}: "
            "ask for fewer, 0 for a CPU run"
        )
