"""The runner beside a Ray cluster: sends what is missing as tasks, and takes in what they made.

Ray finds a node for each task, and starts it again where its node or its process is lost; claims in
the results folder see to it that a run is made once, whoever starts it again. Tasks live as long as
this call: the next one sends what it left.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from harness.corpora.corpus import data_root
from harness.errors import UserError
from harness.run.files import write_json
from harness.run.guarded import IN_FOLDER
from harness.run.plural import plural
from harness.run.spec import RESULT_STATUSES, PlannedRun
from harness.runner.executor import (
    ENDED,
    ExecutorOptions,
    RunEnded,
    RunProgress,
    Summary,
    progress_of_all,
    stop_signals,
)
from harness.runner.health import Finding, Health, tell_retired
from harness.runner.limits import POLL_S
from harness.runner.ray.files import Carrier
from harness.runner.ray.incoming import take_in
from harness.runner.ray.nodes import connect, nodes_alive
from harness.runner.ray.places import kinds_of_blocks, need_of, selector
from harness.runner.ray.send import LOST_AGAIN, Sent, send
from harness.runner.ray.task import RayAnswer, RayOrder
from harness.runner.trunks import ready_and_lost
from harness.store.store import Store

LOOK_S = 1.0  # between two looks at runs that somebody else has
END_S = 60.0  # tasks that were told to end have this long


class RayRunner:
    """One call of `ablate run --executor ray`."""

    def __init__(self, runs: Sequence[PlannedRun], store: Store, options: ExecutorOptions) -> None:
        """Raises UserError where no cluster answers."""
        for planned in runs:
            size = planned.spec.world_size
            if size % options.n_nodes:
                raise UserError(
                    f"--nodes-per-run {options.n_nodes} does not divide {size} processes: "
                    "choose a divisor"
                )
        connect(options.address)
        self.store = store
        self.options = options
        self.left = {planned.spec.run_id: planned for planned in runs}
        self.planned = dict(self.left)
        nodes = nodes_alive()
        self.needs = {name: need_of(p, options, nodes) for name, p in self.left.items()}
        self.kinds = kinds_of_blocks(runs, self.needs, nodes)
        self.sent: dict[str, Sent] = {}
        self.elsewhere: set[str] = set()  # runs that somebody else has, or may still have
        self.all_see = True  # the nodes that answered so far see the results folder
        self.n_lost: dict[str, int] = {}
        self.looked = 0.0
        self.health = Health()
        self.kept_off: set[str] = set()  # nodes that get no more of our runs
        self.summary = Summary()
        self.stop: str | None = None
        self.carrier = Carrier(store.root, options.trainer, [planned.spec for planned in runs])
        self.folder = store.root.resolve() / "experiments" / options.experiment
        self.mark = self.folder / f"ray-{uuid.uuid4().hex}.json"

    def run(self) -> Summary:
        """Work until nothing is left or a signal stops it; every run that began has an end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.mark, {}, below=IN_FOLDER)
        try:
            with stop_signals(self._stop_as):
                self._tell_what_waits()
                while self.left and self.stop is None:
                    if self.options.cancelled():
                        self._stop_as("interrupted")
                        break
                    self._send_ready()
                    self._take_answers()
        finally:
            self._end_tasks()
            self.mark.unlink(missing_ok=True)
            for sent in self.sent.values():
                sent.release()
            self.carrier.close()
        self.summary.stopped = self.stop
        return self.summary

    def _stop_as(self, status: str) -> None:
        self.stop = self.stop or status

    # ------------------------------------------------------------ sending

    def _tell_what_waits(self) -> None:
        """Say which runs no node has room for: a cluster that grows may bring one."""
        nodes = nodes_alive()
        lacking = {n for n in self.needs.values() if not any(n.fits(node) for node in nodes)}
        for need in lacking:
            print(
                f"no node of the Ray cluster has {plural(need.gpus, 'GPU')} and "
                f"{plural(need.cpus, 'CPU')}: such runs wait until one comes; Ctrl-C ends this",
                flush=True,
            )

    def _send_ready(self) -> None:
        """Send what nobody has, as far as the call may, once its trunk is there."""
        if time.monotonic() - self.looked > LOOK_S:
            self.looked = time.monotonic()
            self._look_elsewhere()
            self._free_blocks()
        unsent = []
        for run_id, planned in self.left.items():
            if run_id not in self.sent and run_id not in self.elsewhere:
                unsent.append(planned)
        ready, lost = ready_and_lost(unsent, self.left, self.summary, self.store)
        for ended in lost:
            self._settle(ended)
        free = (self.options.max_parallel or len(self.left)) - len(self.sent)
        for planned in ready[: max(0, free)]:
            self._send(planned)

    def _take_back(self, run_ids: Iterable[str], *, begun: bool = False) -> None:
        """Cancel tasks that have not begun: they are sent again as the cluster is now.

        Which have is known of nodes that see the folder alone. begun: those too, whose nodes are
        gone.
        """
        for run_id in run_ids:
            sent = self.sent.get(run_id)
            waits = self.all_see and self.store.state(run_id).status != "running"
            if sent is not None and (begun or waits):
                ray.cancel(sent.first)

    def _free_blocks(self) -> None:
        """Blocks whose class of nodes has gone, or is kept off, may use any."""
        nodes = nodes_alive()
        there = {node.kind for node in nodes}
        usable = {node.kind for node in nodes if node.name not in self.kept_off}
        for block, kind in list(self.kinds.items()):
            if kind in usable:
                continue
            del self.kinds[block]
            of_block = [name for name, planned in self.left.items() if planned.block == block]
            if of_block:
                of_kind = kind or "its kind"
                print(f"block {block}: no node of {of_kind} is left; any may make it", flush=True)
            self._take_back(of_block, begun=kind not in there)

    def _send(self, planned: PlannedRun) -> None:
        run_id = planned.spec.run_id
        labels = selector(self.kinds.get(planned.block), self.kept_off, nodes_alive())
        self.sent[run_id] = send(self._order(planned), self.needs[run_id], labels, run_id)

    def _order(self, planned: PlannedRun) -> RayOrder:
        root, spec = self.store.root.resolve(), planned.spec
        return RayOrder(
            results=str(root),
            mark=str(self.mark.relative_to(root)),
            data=str(data_root().resolve()),
            spec=spec.to_mapping(),
            command=self.options.command,
            trainer=self.options.trainer,
            freight=self.carrier.freight(spec),
            limits=self.options.limits,
            warm=self.options.warm,
            n_per_node=spec.world_size // self.options.n_nodes,
            n_nodes=self.options.n_nodes,
        )

    # ------------------------------------------------------------ taking in

    def _take_answers(self) -> None:
        """Note what has ended, within a moment."""
        if not self.sent:
            time.sleep(POLL_S)
            return
        of: dict[Any, str] = {}
        for run_id, sent in self.sent.items():
            of |= dict.fromkeys([sent.first, *sent.further], run_id)
        over, _ = ray.wait(list(of), num_returns=1, timeout=POLL_S)
        for reference in over:
            run_id = of[reference]
            if reference == self.sent[run_id].first:
                self._take_answer(run_id, self.sent[run_id])
            else:
                self._take_further(run_id, self.sent[run_id], reference)

    def _take_further(self, run_id: str, sent: Sent, reference: Any) -> None:
        """A further node ended before the first: lost with its node, or it has told the meeting."""
        left = tuple(other for other in sent.further if other != reference)
        self.sent[run_id] = replace(sent, further=left)
        try:
            ray.get(reference)
        except RayError as error:
            ray.cancel(sent.first)
            ray.wait([sent.first], timeout=END_S)
            self._lost(run_id, sent, error)

    def _take_answer(self, run_id: str, sent: Sent) -> None:
        try:
            answer: RayAnswer = ray.get(sent.first)
        except TaskCancelledError:
            self._give_up(run_id, sent)
        except RayTaskError as error:  # our own code failed there, or it is not installed
            raise UserError(
                f"a task on the Ray cluster failed ({_said(error)}): its nodes need this package "
                "and what it needs, as here"
            ) from None
        except RayError as error:
            self._lost(run_id, sent, error)
        else:
            self._take(run_id, sent, answer)

    def _take(self, run_id: str, sent: Sent, answer: RayAnswer) -> None:
        self._give_up(run_id, sent)
        event = answer.event
        if event.status == "taken":
            self.elsewhere.add(run_id)
            return
        if event.status not in RESULT_STATUSES and answer.lost_peer:
            reason = event.reason or "a process on another of its nodes was killed"
            if self._may_try_again(run_id):
                return
            self._settle(RunEnded(run=self.planned[run_id], status="failed", reason=reason))
            return
        if answer.files is not None:
            self.all_see = False
            event = take_in(self.store, run_id, event, answer.files, node=answer.node)
        ended = RunEnded(
            run=self.planned[run_id],
            status=event.status,
            reason=event.reason,
            val_loss=event.val_loss,
        )
        if event.status not in ENDED:  # it was preempted: its node goes, and Ray knows another
            self.left.pop(run_id)
            self.left[run_id] = self.planned[run_id]
            return
        finding = self._judge(run_id, event.status, answer)
        if run_id not in finding.again:
            self._settle(ended)
        for name in finding.again:
            self.left.setdefault(name, self.planned[name])

    def _judge(self, run_id: str, status: str, answer: RayAnswer) -> Finding:
        """What a run's end says of its node."""
        if self.options.n_nodes > 1:  # which of several nodes is not known
            return Finding()
        need, others = self.needs[run_id], []
        if status == "failed":
            here = {*self.kept_off, answer.node}
            others = [n for n in nodes_alive() if need.fits(n) and n.name not in here]
        finding = self.health.ended(
            run_id,
            (answer.node,),
            status=status,
            seconds=answer.seconds,
            can_spare=bool(others),
        )
        if finding.kept_out or finding.freed:
            self.kept_off.update(finding.kept_out or ())
            self.kept_off.difference_update(finding.freed or ())
            self._take_back(self.sent)  # what waits may wait for that node
        if finding.retired is not None:
            place = f"node {', '.join(finding.retired)}"
            tell_retired(finding, place, self.summary.reasons, self.folder)
        return finding

    def _lost(self, run_id: str, sent: Sent, error: RayError) -> None:
        """A node or a process was lost, more often than Ray starts again by itself."""
        self._give_up(run_id, sent)
        if self.store.is_done(run_id):
            self.elsewhere.add(run_id)  # it was quicker
        elif sent.group is None or not self._may_try_again(run_id):
            reason = f"its node or its process was lost {LOST_AGAIN + 1} times: {_said(error)}"
            self.store.note_lost(run_id, status="failed", reason=reason)
            self._settle(RunEnded(run=self.planned[run_id], status="failed", reason=reason))

    def _may_try_again(self, run_id: str) -> bool:
        self.n_lost[run_id] = self.n_lost.get(run_id, 0) + 1
        return self.n_lost[run_id] <= LOST_AGAIN

    def _give_up(self, run_id: str, sent: Sent) -> None:
        """A run's tasks are over."""
        del self.sent[run_id]
        sent.release()

    def _look_elsewhere(self) -> None:
        """Runs that somebody else has: note those that ended, take back those that nobody has."""
        for run_id in list(self.elsewhere):
            state = self.store.state(run_id)
            if state.status == "running":
                continue
            self.elsewhere.discard(run_id)
            if state.status in ENDED:
                self._settle(
                    RunEnded(
                        run=self.left[run_id],
                        status=state.status,
                        reason=state.reason,
                        val_loss=state.val_loss,
                    )
                )

    def _settle(self, ended: RunEnded) -> None:
        self.left.pop(ended.run.spec.run_id, None)
        self.summary.note(ended)
        self.options.on_end(ended)

    # ------------------------------------------------------------ the end

    def _end_tasks(self) -> None:
        """End what is still at work: each run notes that it was interrupted."""
        references = []
        for sent in self.sent.values():
            references += [sent.first, *sent.further]
        for reference in references:
            ray.cancel(reference)
        if references:
            ray.wait(references, num_returns=len(references), timeout=END_S)

    def at_once(self) -> int:
        """How many runs the cluster has room for, for all that is known of it now."""
        need = next(iter(self.needs.values()))
        n_slots = sum(need.room(node) for node in nodes_alive())
        most = self.options.max_parallel or len(self.left)
        return max(1, min(n_slots // self.options.n_nodes, most, len(self.left)))

    def progress(self) -> list[RunProgress]:
        """The runs in progress, each with where it is, on nodes that see the results folder."""
        return progress_of_all(self.store, list(self.left.values()))


def _said(error: BaseException) -> str:
    """What Ray said last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
