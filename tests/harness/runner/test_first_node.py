"""Groups on several nodes meet at a port that nobody else can take, here two nodes on one machine."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from harness.node.slots import Slot
from harness.run.read import read_json
from harness.runner import first_node
from harness.runner.process import Group, Invitation, Worker
from tests.fake_matrix import wait_for

ONE = Slot(held=(), gpus=(), size=1)
TRAINER = "tests.fake_trainer:train"


@contextmanager
def started(group: Group) -> Iterator[Worker]:
    worker = Worker(ONE, TRAINER, group=group)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def can_bind(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def is_ready(worker: Worker) -> bool:
    assert worker.process is not None
    event = worker.process.event(0.2)
    assert event is None, event
    return worker.process.ready


@pytest.mark.slow
def test_the_port_is_bound_from_before_it_is_told_and_the_nodes_meet_there(tmp_path: Path) -> None:
    file = tmp_path / "meeting.json"
    first = Group(n_nodes=2, invites=Invitation(file=file, address="127.0.0.1"))
    with started(first) as leader:
        wait_for(lambda: file.exists() or not leader.alive())
        told = read_json(file)["at"]
        assert not can_bind(told)  # the others are not here yet
        with started(Group(n_nodes=2, node=1, joins=told)):
            wait_for(lambda: is_ready(leader))


@pytest.mark.slow
def test_groups_at_once_have_a_port_each(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.json" for n in range(3)]
    with ExitStack() as groups:
        for file in files:
            invitation = Invitation(file=file, address="127.0.0.1")
            groups.enter_context(started(Group(n_nodes=2, invites=invitation)))
        wait_for(lambda: all(file.exists() for file in files))
        places = {read_json(file)["at"] for file in files}
    assert len(places) == len(files)
    assert not any(place.endswith(":0") for place in places)


WORKER = "-m harness.runner.worker m:f"
TORCHRUN = "-m torch.distributed.run"
INVITES = Invitation(file=Path("at.json"), address="10.0.0.1")


@pytest.mark.parametrize(
    ("group", "forks", "said"),
    [
        (Group(), False, WORKER),
        (Group(), True, f"{WORKER} forks"),
        (
            *(Group(n_per_node=2), True),
            f"{TORCHRUN} --standalone --nproc-per-node 2 {WORKER} 2 cpu",
        ),
        (
            *(Group(n_per_node=4, n_nodes=3, invites=INVITES), False),
            "-m harness.runner.first_node at.json 10.0.0.1 --nnodes 3 --node-rank 0 "
            f"--nproc-per-node 4 {WORKER} 12 cpu",
        ),
        (
            *(Group(n_nodes=2, node=1, joins="10.0.0.1:4321"), False),
            f"{TORCHRUN} --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 4321 "
            f"--nproc-per-node 1 {WORKER} 2 cpu",
        ),
    ],
)
def test_a_group_of_one_process_needs_no_torchrun_and_others_meet_by_it(
    group: Group, forks: bool, said: str
) -> None:
    assert group.arguments("m:f", "cpu", forks=forks) == said.split()


def test_the_first_of_several_nodes_is_their_number_zero() -> None:
    invitation = Invitation(file=Path("at.json"), address="10.0.0.1")
    group = Group(n_per_node=4, n_nodes=2, invites=invitation)
    arguments = group.arguments(TRAINER, "cuda")
    assert arguments[arguments.index("--node-rank") + 1] == "0"
    assert arguments[-3:] == [TRAINER, "8", "cuda"] and group.size == 8


def test_a_further_node_is_told_no_port_to_bind() -> None:
    arguments = Group(n_nodes=2, node=1, joins="10.0.0.1:4321").arguments(TRAINER, "cpu")
    assert arguments[:2] == ["-m", "torch.distributed.run"]
    assert arguments[arguments.index("--master-port") + 1] == "4321"
    assert arguments[arguments.index("--node-rank") + 1] == "1"


def test_the_first_node_tells_the_port_that_it_holds_and_starts_its_group_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meeting.json"
    started_with: list[str] = []

    def torchrun(arguments: list[str]) -> None:
        assert read_json(file) is not None, "the others know where before it waits for them"
        started_with.extend(arguments)

    monkeypatch.setattr(sys, "argv", ["first_node", str(file), "127.0.0.1", "--nnodes", "2"])
    monkeypatch.setattr(first_node, "torchrun", torchrun)
    held = []
    listen = first_node.listen
    monkeypatch.setattr(
        first_node, "listen", lambda address: held.append(listen(address)) or held[0]
    )
    first_node.main()
    at = f"127.0.0.1:{held[0].port}"
    assert read_json(file) == {"at": at} and not can_bind(at)
    assert held[0].port > 1023, "of the system's choice"
    port = ["--master-addr", "127.0.0.1", "--master-port", str(held[0].port)]
    assert started_with == [*port, "--nnodes", "2"]
    TCPStore("127.0.0.1", held[0].port, is_master=True, multi_tenant=True, wait_for_workers=False)
