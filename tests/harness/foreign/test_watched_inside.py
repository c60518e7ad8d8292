"""What runs inside somebody else's process, in forks of this one: the guard that leaves nothing behind, the watch of two steps."""

import importlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from harness.foreign import guard, smoke_hook
from harness.foreign.smoke_hook import Finder, Watch
from tests.fake_matrix import DEADLINE_S, wait_for


def forked(run: Callable[[], Any]) -> int:
    """The exit code of a fork that runs this and nothing else."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 98
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# ---------------------------------------------------------------- the guard

LEAVES = '{python} -c \'import os, time; os.setsid(); open("{pid}", "w").write(str(os.getpid())); time.sleep({s})\' &'


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_the_guard_ends_as_its_command_and_nothing_of_it_goes_on(
    command: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    left = LEAVES.format(python=sys.executable, pid=pid, s=DEADLINE_S)
    script = f"{left} while [ ! -s {pid} ]; do sleep 0.01; done; {command}"
    monkeypatch.setattr(sys, "argv", ["guard", "sh", "-c", script])
    read, write = os.pipe()  # standard input that stays open

    def run() -> None:
        os.dup2(read, 0)
        guard.main()

    assert forked(run) == code
    assert ended(int(pid.read_text()))
    os.close(read)
    os.close(write)


def test_the_guard_ends_all_where_its_owner_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    monkeypatch.setattr(sys, "argv", ["guard", "sh", "-c", f"echo $$ > {pid}; sleep {DEADLINE_S}"])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.dup2(read, 0)
        try:
            guard.main()
        finally:
            os._exit(99)
    os.close(read)
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    os.kill(child, signal.SIGHUP)  # which is its owner's to decide about
    os.close(write)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1  # and not 0, of a command that went on to its end
    assert ended(int(pid.read_text()))


def test_a_command_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["guard", "/no/such/program"])
    assert forked(guard.main) == 127
    assert capfd.readouterr().err == "/no/such/program: No such file or directory\n"


def test_who_kills_all_that_came_of_it_waits_until_there_is_none() -> None:
    def run() -> None:
        begun = [
            subprocess.Popen(["sleep", str(DEADLINE_S)], start_new_session=n > 0) for n in range(3)
        ]
        guard.kill_all()
        assert all(ended(process.pid) for process in begun)
        assert psutil.Process().children() == []
        guard.kill_all()  # nothing is left

    assert forked(run) == 0


def test_what_begins_after_a_look_is_killed_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    children = psutil.Process.children
    looks: list[bool] = []

    def seen(process: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
        looks.append(recursive)
        return children(process, recursive=recursive) if len(looks) > 1 else []

    def run() -> None:
        begun = subprocess.Popen(["sleep", "infinity"])
        monkeypatch.setattr(psutil.Process, "children", seen)
        guard.kill_all()
        assert ended(begun.pid)

    assert forked(run) == 0


# ---------------------------------------------------------------- the watch


@pytest.fixture(scope="module")
def imported() -> None:
    """What torch imports at the first step of an optimizer it imports here, once, and not in every fork."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.5).step()


def told(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines()]


def train(place: Path, optimizer: str, n_steps: int) -> Callable[[], None]:
    """A script: w from (3, 4) along the gradient of w·(1, 2) at a rate of 0.5, and what it would never reach."""

    def run() -> None:
        watch = Watch(torch, str(place))
        watch.install()
        module = torch.nn.Linear(2, 1, bias=False)
        weight = module.weight
        with torch.no_grad():
            weight.copy_(torch.tensor([[3.0, 4.0]]))
        sgd = torch.optim.SGD(module.parameters(), lr=0.5)
        for _ in range(n_steps):
            loss = module(torch.tensor([1.0, 2.0])).sum()
            loss.backward()
            if optimizer == "torch":
                sgd.step()
            else:
                with torch.no_grad():
                    weight -= 0.5 * weight.grad
            module.zero_grad()
        sys.exit(7)

    return run


@pytest.mark.usefixtures("imported")
def test_a_script_that_sets_no_seed_draws_the_same_again(tmp_path: Path) -> None:
    drawn = []
    for name in ("one", "two"):
        place = tmp_path / name

        def run(place: Path = place) -> None:
            torch.seed()
            Watch(torch, str(tmp_path / "told")).install()
            place.write_text(repr(torch.rand(3).tolist()))

        assert forked(run) == 0
        drawn.append(place.read_text())
    assert drawn[0] == drawn[1]


@pytest.mark.usefixtures("imported")
def test_two_steps_are_told_by_their_losses_and_norms_and_the_third_pass_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    place = tmp_path / "told"
    assert forked(train(place, "torch", 9)) == 0  # the process has ended, not the script
    norm = math.sqrt(5)  # of the gradient (1, 2)
    assert told(place) == [
        {"torch": torch.__version__},
        {"step": 0, "loss": 11.0},
        {"step": 1, "loss": 8.5},
        {"step": 2, "loss": 6.0},
        {"norms": pytest.approx([norm, norm]), "steps": 2},
    ]


@pytest.mark.usefixtures("imported")
def test_steps_of_an_optimizer_that_is_not_torchs_end_where_gradients_are_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    place = tmp_path / "told"
    assert forked(train(place, "own", 9)) == 0
    assert [line.get("loss") for line in told(place)] == [None, 11.0, 8.5, 6.0, None]
    assert told(place)[-1] == {"norms": [], "steps": 2}
    one = tmp_path / "one step"
    assert forked(train(one, "own", 1)) == 7
    assert [line.get("step") for line in told(one)] == [None, 0]
    other = tmp_path / "another rank"
    monkeypatch.setenv("RANK", "1")
    assert forked(train(other, "torch", 9)) == 0
    assert not other.exists()


@pytest.mark.usefixtures("imported")
def test_gradients_of_all_optimizers_make_one_norm_and_losses_that_come_together_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)

    def run() -> None:
        Watch(torch, str(tmp_path / "told")).install()
        one, two, unused, three = (torch.nn.Parameter(torch.ones(())) for _ in range(4))
        groups: list[dict[str, Any]] = [{"params": [one, unused]}, {"params": [two]}]
        optimizers = [torch.optim.SGD(groups, lr=0.5), torch.optim.SGD([three], lr=0.5)]
        for _ in range(9):
            torch.autograd.backward([2 * one + 3 * two, 6 * three])
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        sys.exit(7)

    assert forked(run) == 0
    _, end = told(tmp_path / "told")
    assert end == {"norms": pytest.approx([7.0, 7.0]), "steps": 2}


class Loader:
    def __init__(self) -> None:
        self.loaded: list[Any] = []

    def exec_module(self, module: Any) -> None:
        self.loaded.append(module)


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> Finder:
    made = Finder("a place")
    monkeypatch.setattr(sys, "meta_path", [made])
    return made


def test_torch_is_imported_as_ever_and_watched_then(
    finder: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, watched = Loader(), []

    class Watched:
        def __init__(self, module: Any, place: str) -> None:
            watched.append((module, place))

        def install(self) -> None:
            if watched[-1][0] == "faulty":
                raise RuntimeError("no hooks")

        def write(self, **said: Any) -> None:
            watched.append(said)

    def find_spec(name: str) -> Any:
        assert finder.find_spec(name) is None  # not again for its own question
        return SimpleNamespace(loader=loader)

    monkeypatch.setattr(smoke_hook, "Watch", Watched)
    monkeypatch.setattr(smoke_hook.importlib.util, "find_spec", find_spec)
    assert finder.find_spec("torch.nn") is None and finder.find_spec("json") is None
    spec = finder.find_spec("torch")
    assert sys.meta_path == [] and spec.loader is loader
    spec.loader.exec_module("module")
    spec.loader.exec_module("faulty")
    assert loader.loaded == ["module", "faulty"]
    assert watched == [
        *(("module", "a place"), ("faulty", "a place"), {"fault": "RuntimeError('no hooks')"}),
    ]


def test_where_there_is_no_torch_nothing_is_watched(
    finder: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spec in (None, SimpleNamespace(loader=None)):
        monkeypatch.setattr(smoke_hook.importlib.util, "find_spec", lambda name, spec=spec: spec)
        assert finder.find_spec("torch") is None
        assert sys.meta_path == [finder] and finder.looking is False


@pytest.mark.parametrize("place", ["", "somewhere"])
def test_it_gives_way_to_a_sitecustomize_of_the_environments_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(Path(smoke_hook.__file__).parent)
    before = [finder for finder in sys.meta_path]
    monkeypatch.setenv("ABLATE_SMOKE", place)
    monkeypatch.setattr(sys, "meta_path", [*before])
    monkeypatch.setattr(sys, "path", [here, str(tmp_path), *sys.path])
    monkeypatch.setitem(sys.modules, "sitecustomize", smoke_hook)
    (tmp_path / "sitecustomize.py").write_text("theirs = True\n")
    importlib.invalidate_caches()
    smoke_hook.start()
    assert sys.modules["sitecustomize"].theirs is True
    assert here not in sys.path and str(tmp_path) in sys.path
    added = [finder for finder in sys.meta_path if finder not in before]
    assert [type(finder) for finder in added] == ([Finder] if place else [])
    assert not added or (sys.meta_path[0] is added[0] and added[0].place == place)


def test_without_another_sitecustomize_it_stays_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setenv("ABLATE_SMOKE", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(smoke_hook.importlib, "import_module", nothing)
    monkeypatch.setitem(sys.modules, "sitecustomize", smoke_hook)
    smoke_hook.start()
    assert sys.modules["sitecustomize"] is smoke_hook
    monkeypatch.delitem(sys.modules, "sitecustomize")
    smoke_hook.start()
    assert "sitecustomize" not in sys.modules
