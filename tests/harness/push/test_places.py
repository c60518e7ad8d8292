"""Places where runs are sent: what is there is whole, what is there stays, what cannot be reached is one line."""

import fcntl
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli.push import bring_in
from harness.errors import UserError
from harness.push.alone import alone
from harness.push.errors import PushError
from harness.push.folder import FolderPlace
from harness.push.place import Destination, is_elsewhere, opened, place_of
from harness.push.remote import RemotePlace
from harness.push.send import LAST_TRIES, Sender
from harness.push.ssh import SshFiles
from harness.push.url import UrlFiles
from harness.run.guarded import RefusedFileError
from harness.run.ledger import add_rows
from harness.run.results import read_result
from harness.store.merge import Merged, what_is_wrong
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store
from tests.fake_matrix import Matrix
from tests.harness.run.test_ledger import a_look

REFUSED = {
    "": "is no place to send runs to",
    "--push": "is no place to send runs to",
    "nosuch://bucket/x": "nosuch",
    "ssh://host:port/x": "the port is no number",
    "ho st:x": "'ho st' is no name of a host",
    "-oProxyCommand=x:y": "is no name of a host",
    "host:a;b": "'a;b' is no folder",
    "host:": "'' is no folder",
}


FINISHED: dict[int, Path] = {}  # seeds -> a results folder, of which tests take copies


@pytest.fixture(scope="module", autouse=True)
def _finished(tmp_path_factory: pytest.TempPathFactory) -> None:
    for n_seeds in (1, 3):
        matrix = Matrix(tmp_path_factory.mktemp("finished"), n_seeds=n_seeds)
        assert matrix.run()[0] == 0
        FINISHED[n_seeds] = matrix.results


def made(root: Path, n_seeds: int = 3) -> Store:
    """A results folder with two finished runs a seed."""
    shutil.copytree(FINISHED[n_seeds], root)
    return Store(root)


def of(store: Store) -> set[str]:
    return {path.name for path in store.runs.iterdir() if not path.name.startswith(".")}


def url() -> str:
    return f"memory://{uuid.uuid4().hex}/runs of mine"


@pytest.fixture(params=["folder", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    name = {
        "folder": str(tmp_path / "there"),
        "file": f"file://{tmp_path}/a%20folder",
        "memory": url(),
    }[request.param]
    return opened(name, tmp_path / "results")


def sent(store: Store, place: Destination) -> tuple[Sender, list[str]]:
    """A sender that has looked once, and what it said."""
    lines: list[str] = []
    sender = Sender(store.root, place, "there", lines.append)
    sender.look()
    return sender, lines


def test_what_was_sent_comes_back_whole(place: Destination, tmp_path: Path) -> None:
    here = made(tmp_path / "here")
    assert place.runs() == set()
    sender, lines = sent(here, place)
    assert (sender.finish(), sender.n_sent, lines) == (0, 6, [])
    assert place.runs() == of(here)
    back = Store.create(tmp_path / "back")
    brought = place.bring(back)
    assert set(brought.copied) == of(here) == of(back)
    assert brought.problems == []
    assert [what_is_wrong(back.directory(run_id)) for run_id in of(back)] == [None] * 6
    assert read_plan(back.root, "fake") == read_plan(here.root, "fake")
    for kind in ("code", "environments"):
        assert {path.name for path in (here.root / kind).iterdir()} == {
            path.name for path in (back.root / kind).iterdir()
        }
    assert place.bring(back).copied == []
    assert list((back.root / "cache").glob("brought-*")) == []


def test_a_run_that_is_there_is_not_replaced(place: Destination, tmp_path: Path) -> None:
    first, other = made(tmp_path / "first", n_seeds=1), made(tmp_path / "other")
    run_id = min(of(first))
    rows = (first.directory(run_id) / "attempts.jsonl").read_text()
    assert rows != (other.directory(run_id) / "attempts.jsonl").read_text()
    sent(first, place)
    sender, lines = sent(other, place)
    assert (sender.finish(), sender.n_sent, lines) == (0, 4, [])
    back = Store.create(tmp_path / "back")
    place.bring(back)
    assert (back.directory(run_id) / "attempts.jsonl").read_text() == rows


def test_what_is_here_is_not_brought_again_whatever_became_of_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = made(tmp_path / "here"), opened(url(), tmp_path / "results")
    sent(here, there)
    assert isinstance(there, RemotePlace)
    fetched: list[str] = []
    get = there.files.get

    def noted(names: Sequence[str], into: Path) -> None:
        fetched.extend(names)
        get(names, into)

    monkeypatch.setattr(there.files, "get", noted)
    back = Store.create(tmp_path / "back")
    there.bring(back)
    runs = {name.split("/")[1] for name in fetched if name.startswith("runs/")}
    assert runs == of(here)
    fetched.clear()
    gone = min(of(back))
    shutil.rmtree(back.directory(gone))
    assert there.bring(back).copied == [gone]
    assert {name.split("/")[1] for name in fetched if name.startswith("runs/")} == {gone}
    assert not any(name.startswith("code/") for name in fetched)


def test_plans_of_two_boxes_are_joined(place: Destination, tmp_path: Path) -> None:
    for name, n_seeds in (("few", 1), ("more", 3), ("again", 1)):
        sent(made(tmp_path / name, n_seeds=n_seeds), place)
    back = Store.create(tmp_path / "back")
    place.bring(back)
    plan = read_plan(back.root, "fake")
    assert plan is not None
    assert (plan.seeds, len(plan.runs)) == ((0, 1, 2), 6)


def test_a_plan_that_asks_something_else_is_told_and_the_runs_arrive(
    place: Destination, tmp_path: Path
) -> None:
    sent(made(tmp_path / "first", n_seeds=1), place)
    other = made(tmp_path / "other")
    plan = read_plan(other.root, "fake")
    assert plan is not None
    save_plan(other.root, replace(plan, margin=0.5))
    sender, lines = sent(other, place)
    assert sender.finish() == 0
    assert len(place.runs()) == 6
    [line] = lines
    assert "experiment 'fake' in" in line
    assert "has another margin" in line


def test_a_run_that_is_not_sound_stays_where_it_is(place: Destination, tmp_path: Path) -> None:
    here = made(tmp_path / "here")
    bad = min(of(here))
    with (here.directory(bad) / "metrics.jsonl").open("a") as file:
        file.write("{}\n")
    sender, lines = sent(here, place)
    sender.look()
    assert place.runs() == of(here) - {bad}
    assert sender.finish() == 1
    [line] = lines
    assert f"{bad}" in line
    assert "metrics.jsonl is not the file that the run wrote" in line


def test_a_run_that_was_spoilt_there_is_replaced_by_a_box_that_makes_it_again(
    place: Destination, tmp_path: Path
) -> None:
    here, back = made(tmp_path / "here"), Store.create(tmp_path / "back")
    sent(here, place)
    spoilt = min(of(here))
    spoil(place, spoilt)
    brought = place.bring(back, mend=True)
    assert set(brought.copied) == of(here) - {spoilt}
    [line] = brought.problems
    assert "metrics.jsonl is not the file that the run wrote" in line
    assert sent(here, place)[0].n_sent == 1
    assert place.bring(back).copied == [spoilt]


def test_a_box_that_begins_brings_in_what_is_sound_and_lets_the_rest_be_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, name = made(tmp_path / "here"), url()
    place = opened(name, tmp_path / "results")
    sent(here, place)
    spoilt = min(of(here))
    spoil(place, spoilt)
    bring_in(name, tmp_path / "looks", pull=False)
    assert capsys.readouterr().out == "" and not (tmp_path / "looks").exists()
    bring_in(name, tmp_path / "back", pull=True)
    said = capsys.readouterr().out
    assert said.startswith(f"{name}: {len(of(here)) - 1} runs brought in\nleft where it is: ")
    assert place.runs() == of(Store(tmp_path / "back")) == of(here) - {spoilt}


def spoil(place: Destination, run_id: str) -> None:
    """Add to a file of a run that lies there."""
    if isinstance(place, RemotePlace):
        assert isinstance(place.files, UrlFiles)
        files = place.files
        path = f"{files.root}/runs/{run_id}/metrics.jsonl"
        files.system.pipe_file(path, files.system.cat_file(path) + b"{}\n")
    else:
        assert isinstance(place, FolderPlace)
        with (place.store.directory(run_id) / "metrics.jsonl").open("a") as file:
            file.write("{}\n")


def test_a_run_half_sent_to_a_folder_is_no_run_and_comes_whole_later(tmp_path: Path) -> None:
    here, there = made(tmp_path / "here"), FolderPlace(tmp_path / "there")
    there.open()
    run_id = min(of(here))
    half = there.store.directory(run_id)
    half.mkdir()
    shutil.copy(here.directory(run_id) / "config.yaml", half)
    assert there.runs() == set()
    assert sent(here, there)[0].finish() == 0
    assert there.runs() == of(here)
    assert what_is_wrong(half) is None


def test_the_result_reaches_a_bucket_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, files = made(tmp_path / "here", n_seeds=1), UrlFiles(url())
    there, run_id = RemotePlace(files), min(of(here))
    there.open()
    send = files.send
    names: list[str] = []

    def send_until_result(file: Path, place: str) -> None:
        names.append(file.name)
        if file.name == "result.json":
            raise PushError("no network")
        send(file, place)

    monkeypatch.setattr(files, "send", send_until_result)
    with pytest.raises(PushError, match="no network"):
        there.send(here, [run_id])
    assert names[-1] == "result.json"
    assert there.runs() == set()
    monkeypatch.undo()
    there.send(here, [run_id])
    assert there.runs() == {run_id}


class Unreliable(FolderPlace):
    """A folder that cannot be written for some tries."""

    n_fails = 3

    def send(self, store: Store, run_ids: Sequence[str]) -> Merged:
        if self.n_fails:
            self.n_fails -= 1
            raise PushError("no route to it")
        return super().send(store, run_ids)


def test_what_fails_is_tried_again_ever_later_and_said_once(tmp_path: Path) -> None:
    here, there = made(tmp_path / "here"), Unreliable(tmp_path / "there")
    there.open()
    lines: list[str] = []
    clock = [0.0]
    sender = Sender(here.root, there, "there", lines.append, clock=lambda: clock[0])
    tries = []
    for _ in range(40):
        before = there.n_fails
        sender.look()
        if there.n_fails < before:
            tries.append(clock[0])
        clock[0] += 0.5
    assert tries == [0.0, 2.0, 6.0]
    assert there.runs() == of(here)
    assert lines == ["there: no route to it: runs go on, sending is tried again"]


def test_a_place_that_stays_away_is_tried_once_a_minute_at_least_and_forgiven_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Store.create(tmp_path / "here"), FolderPlace(tmp_path / "there")
    clock, tries, n_fails = [0.0], list[float](), [7]

    def runs() -> set[str]:
        tries.append(clock[0])
        if n_fails[0]:
            n_fails[0] -= 1
            raise PushError("no route to it")
        return set()

    monkeypatch.setattr(there, "runs", runs)
    there.open()
    sender = Sender(here.root, there, "there", lambda line: None, clock=lambda: clock[0])
    for second in range(200):
        clock[0] = float(second)
        sender.look()
    assert tries == [0.0, 2.0, 6.0, 14.0, 30.0, 62.0, 122.0, 182.0]
    assert sender.n_failures == 0


def test_many_runs_go_in_messages_of_twenty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Store.create(tmp_path / "here"), FolderPlace(tmp_path / "there")
    there.open()
    for n in range(41):
        (here.runs / f"run{n:02}").mkdir()
        (here.runs / f"run{n:02}" / "result.json").touch()
    messages: list[list[str]] = []

    def send(store: Store, run_ids: Sequence[str]) -> Merged:
        messages.append([*run_ids])
        return Merged(copied=[*run_ids[1:]], here=[*run_ids[:1]])

    monkeypatch.setattr(there, "send", send)
    sender = Sender(here.root, there, "there", lambda line: None)
    sender.look()
    assert [len(message) for message in messages] == [20, 20, 1]
    assert [name for message in messages for name in message] == sorted(of(here))
    assert (sender.n_sent, sender.finish()) == (38, 0), "three were there, by somebody else"


def test_what_is_left_at_the_end_is_counted(tmp_path: Path) -> None:
    here, there = made(tmp_path / "here"), Unreliable(tmp_path / "there")
    there.open()
    there.n_fails = LAST_TRIES
    waits: list[float] = []
    sender = Sender(here.root, there, "there", lambda line: None)
    assert sender.finish(waits.append) == 6
    assert (sender.error, waits) == ("no route to it", [1.0, 2.0])
    assert sender.finish(waits.append) == 0
    assert waits == [1.0, 2.0]


def test_what_is_sent_at_the_end_is_sent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans too, over which another box may have written."""
    here, there = made(tmp_path / "here"), FolderPlace(tmp_path / "there")
    there.open()
    asked: list[str] = []
    send_plans = there.send_plans

    def noted(store: Store) -> Merged:
        asked.append("plans")
        return send_plans(store)

    monkeypatch.setattr(there, "send_plans", noted)
    sender = Sender(here.root, there, "there", lambda line: None)
    sender.look()
    sender.look()
    assert asked == ["plans"]
    assert sender.finish(lambda s: None) == 0
    assert asked == ["plans"] * 2


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_place_is_refused_in_one_line(
    name: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=REFUSED[name]) as error:
        place_of(name)
    assert "\n" not in str(error.value)
    if "not known" not in str(error.value):  # which are a library's words
        kept_line(str(error.value))


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: Not a directory: name a folder"):
        opened(f"{tmp_path}/file", tmp_path / "results")
    with pytest.raises(UserError, match="this is the results folder itself"):
        opened(f"{tmp_path}/x/../results", tmp_path / "results")


def test_names_of_places() -> None:
    assert not is_elsewhere("/a/b:c")
    assert not is_elsewhere("./a:b")
    assert is_elsewhere("box:results")
    for name, host, folder, port in (
        ("me@box:results", "me@box", "results", None),
        ("box:~/results", "box", "results", None),
        ("box:~/", "box", ".", None),
        ("ssh://me@box:22022/srv/runs", "me@box", "/srv/runs", 22022),
    ):
        place = place_of(name)
        assert isinstance(place, RemotePlace)
        assert isinstance(place.files, SshFiles)
        assert (place.files.host, place.files.folder) == (host, folder)
        assert ("-p" in place.files.shell) == (port is not None)


def test_a_loss_is_the_same_there_as_here(tmp_path: Path) -> None:
    here, there = made(tmp_path / "here"), FolderPlace(tmp_path / "there")
    there.open()
    sent(here, there)
    for run_id in of(here):
        ours, theirs = read_result(here.directory(run_id)), read_result(there.store.runs / run_id)
        assert ours is not None
        assert theirs is not None
        assert ours.content == theirs.content


class Box:
    """A folder elsewhere that takes everything, but for runs at which somebody works."""

    name = "box"

    def __init__(self, *busy: str) -> None:
        self.busy, self.taken = busy, list[str]()

    def open(self) -> None: ...

    connect = open

    def fitting(self, *patterns: str) -> list[str]:
        return []

    def get(self, names: Sequence[str], into: Path) -> None: ...

    def put(self, root: Path, names: Sequence[str]) -> None:
        assert all((root / name).is_file() for name in names)
        self.taken += names

    def put_runs(self, runs: Path, files: Mapping[str, Sequence[str]]) -> list[str]:
        return [run_id for run_id in files if run_id in self.busy]

    def set_aside(self, run_id: str) -> None: ...


def test_a_run_at_which_somebody_works_there_is_told_and_what_was_looked_at_goes_along(
    tmp_path: Path,
) -> None:
    store = made(tmp_path / "here", 1)
    one, other = sorted(of(store))
    box = Box(one)
    sent = RemotePlace(box).send(store, [one, other])
    assert sent.copied == [other]
    assert sent.problems == [f"{one}: somebody makes this run there: not replaced"]
    box.taken.clear()
    add_rows(store.root, [a_look().to_json()])
    RemotePlace(box).send_plans(store)
    assert "experiments/fake/experiment.json" in box.taken
    assert box.taken[-1] == "ledger.jsonl"


def test_code_that_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    store, box = made(tmp_path / "here", 1), Box()
    place = RemotePlace(box)
    one, other = sorted(of(store))
    place.send(store, [one])
    assert {name.split("/")[0] for name in box.taken} == {"code", "environments"}
    box.taken.clear()
    place.send(store, [other])
    assert box.taken == []


def test_what_lies_there_under_no_name_of_ours_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere, a file that is hidden, one of a run that is here."""
    there = {
        "runs/*/result.json": ["runs/new/result.json", "runs/here/result.json", "runs/-x/a.json"],
        "experiments/*/experiment.json": ["experiments/x/experiment.json", "experiments/../a.json"],
        "runs/*/*": ["runs/new/log.txt", "runs/new/.part", "runs/here/log.txt", "runs/-x/log.txt"],
    }
    box, came = Box(), list[str]()
    monkeypatch.setattr(box, "fitting", lambda *asked: [n for a in asked for n in there.get(a, ())])
    monkeypatch.setattr(box, "get", lambda names, into: came.extend(names))
    back = Store.create(tmp_path / "back")
    back.directory("here").mkdir()
    (back.directory("here") / "result.json").touch()
    place = RemotePlace(box)
    assert place.runs() == {"new", "here"}
    place.bring(back)
    assert came == ["experiments/x/experiment.json", "runs/new/log.txt"]


def test_one_process_at_a_time_is_between_a_folder_and_a_place(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    with alone(store, "box"), alone(store, "another"):
        locks = sorted((tmp_path / "cache").glob("push-*.lock"))
        for lock in locks:
            with lock.open("ab") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert len(locks) == 2
    with locks[0].open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_comes_is_not_put_through_a_link(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "here")
    (store.root / "cache").symlink_to(tmp_path)
    place = RemotePlace(Box())
    for act in (place.bring, place.send_plans):
        with pytest.raises(RefusedFileError, match="links in a results folder are not followed"):
            act(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (TypeError("no org\x1b"), r"TypeError: no org\x1b"),
        (ImportError("no client"), "no client"),
        (ValueError("no such kind"), "no such kind"),
    ],
)
def test_a_url_that_a_client_does_not_take_is_one_line_with_what_it_raised(
    raised: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(url: str) -> None:
        raise raised

    client = SimpleNamespace(core=SimpleNamespace(url_to_fs=refuses))
    monkeypatch.setattr("harness.push.url.fsspec", client)
    with pytest.raises(UserError) as error:
        UrlFiles("github://bucket")
    assert str(error.value) == f"github://bucket: {told}"


def test_where_the_library_of_urls_is_missing_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.push.url.fsspec", None)
    with pytest.raises(UserError, match=r"^s3://bucket: fsspec is not installed: pip install '"):
        UrlFiles("s3://bucket")


@pytest.mark.parametrize(("said", "told"), [("no\x1b key\nat all", r"no\x1b key"), ("", "")])
def test_what_a_client_raises_is_one_line(
    said: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = UrlFiles(url())

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(files, "system", SimpleNamespace(invalidate_cache=fails))
    with pytest.raises(PushError) as error:
        RemotePlace(files).runs()
    assert str(error.value) == f"RuntimeError: {told}"


def test_no_file_of_a_run_with_a_result_in_a_bucket_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, files = made(tmp_path / "here", 1), UrlFiles(url())
    there, (one, other) = RemotePlace(files), sorted(of(here))
    there.open()
    there.send(here, [one])
    sent_to: list[str] = []
    send = files.send
    monkeypatch.setattr(files, "send", lambda file, to: sent_to.append(to) or send(file, to))
    assert there.send(here, [one, other]).copied == [one, other]
    assert {to.split("/runs/")[1].split("/")[0] for to in sent_to if "/runs/" in to} == {other}


def test_a_link_in_the_place_of_a_folder_of_runs_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "there/runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PushError, match="links in a results folder are not followed"):
        FolderPlace(tmp_path / "there").runs()
