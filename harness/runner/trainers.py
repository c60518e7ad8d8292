"""Who makes runs: all that an executor knows of a trainer; and ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.node.slots import Slot
from harness.run.spec import RunSpec
from harness.runner.execute import Execution, execute
from harness.runner.messages import WorkerEvent
from harness.runner.process import Group, Worker


class RunMaker(Protocol):
    """Makes one run after the other on its devices."""

    slot: Slot

    def make(self, run: Execution) -> WorkerEvent:
        """A run to its end; "taken" if somebody else has it.

        Raises UserError if nothing can go on here.
        """
        ...

    def start(self) -> object:
        """On a further node of a run: join its first one."""
        ...

    def is_like(self, other: "RunMaker") -> bool:
        """Whether it would make a run as the other one would."""
        ...

    def alive(self) -> bool:
        """Whether it waits for another run, and holds memory meanwhile."""
        ...

    def close(self) -> None: ...

    def kill(self) -> None: ...


class RunTrainer(Protocol):
    """Somebody who makes runs; it is sent to the nodes that make them."""

    @property
    def modules(self) -> Sequence[str]:
        """What a node imports before it makes a run."""
        ...

    def maker(
        self, spec: RunSpec, slot: Slot, *, group: Group | None = None, forks: bool = False
    ) -> RunMaker:
        """Of such runs on these devices; nothing is started yet.

        group: the processes, where they lie on several nodes. forks: no run finds anything warm.
        """
        ...

    def corpora(self, spec: RunSpec) -> Sequence[str]:
        """The names of those that a run reads."""
        ...

    def kept(self, spec: RunSpec) -> Sequence[str]:
        """The files of the results folder that a run reads, relative to it."""
        ...

    def data(self, spec: RunSpec) -> Sequence[str]:
        """The other files and folders that a run reads."""
        ...


class OwnMaker(Worker):
    """A worker of ours with its process."""

    def make(self, run: Execution) -> WorkerEvent:
        return execute(self, run)

    def is_like(self, other: RunMaker) -> bool:
        return isinstance(other, OwnMaker) and self._facts() == other._facts()

    def _facts(self) -> tuple[object, ...]:
        return self.slot, self.trainer, self.device, self.group, self.runs_in, self.forks


@dataclass(frozen=True, kw_only=True)
class OwnTrainer:
    """Ours: worker processes that take run after run."""

    function: str = "harness.training.train:train"

    @property
    def modules(self) -> Sequence[str]:
        return "torch", "numpy", self.function.partition(":")[0]

    def maker(
        self, spec: RunSpec, slot: Slot, *, group: Group | None = None, forks: bool = False
    ) -> OwnMaker:
        return OwnMaker(
            slot,
            self.function,
            device=spec.device,
            group=group,
            runs_in=spec.runs_in,
            forks=forks,
        )

    def corpora(self, spec: RunSpec) -> Sequence[str]:
        heldout = spec.config["data"]["heldout"]
        return [spec.data_name, heldout] if heldout else [spec.data_name]

    def kept(self, spec: RunSpec) -> Sequence[str]:
        return ()

    def data(self, spec: RunSpec) -> Sequence[str]:
        return ()
