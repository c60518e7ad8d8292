"""Locks of GPUs where they cannot be had: a runner goes on as without, and holds nothing that it does not have."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from harness.node import device_locks
from harness.node.device_locks import DeviceLocks


def n_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def refuses(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("why", ["no place", "no locks of the file system", "no locks at all"])
def test_without_locks_every_device_is_the_runners_own(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "locks"
    if why == "no place":
        folder.write_text("in the way of a folder")
    elif why == "no locks at all":
        monkeypatch.setattr(device_locks, "fcntl", None)
    else:
        monkeypatch.setattr(device_locks.fcntl, "flock", refuses)
    before = n_open()
    for _ in range(2):
        locks = DeviceLocks({}, folder)
        assert locks.busy == ()
        assert locks.take(["0", "1"], 2) == ("0", "1")
        assert not locks.others_have(["0", "1"])
        assert (locks.held, locks.busy) == ({}, ())
    assert n_open() == before


def test_a_lock_that_another_process_makes_in_this_moment_is_the_same_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = DeviceLocks({}, tmp_path), DeviceLocks({}, tmp_path)
    assert theirs.take(["0"], 1) == ("0",)
    really, looked = os.open, []

    def late(path: Any, flags: int, *mode: int) -> int:
        looked.append(str(path))
        if looked.count(str(path)) == 1:  # it was not there yet
            raise FileNotFoundError(path)
        return really(path, flags, *mode)

    monkeypatch.setattr(os, "open", late)
    before = n_open()
    assert ours.take(["0"], 1) is None and ours.busy == ("0",)
    assert n_open() == before
    theirs.release(["0"])
    assert ours.take(["0"], 1) == ("0",)


def test_the_folder_of_the_locks_is_made_for_every_user_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_LOCKS", str(tmp_path / "not" / "yet"))
    folder = device_locks.lock_folder()
    assert folder == tmp_path / "not" / "yet"
    locks = DeviceLocks({"0": "MIG-a/1"})
    umask = os.umask(0o077)  # of a user who lets nobody in
    try:
        assert locks.take(["0"], 1) == ("0",)
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o7777 for path in folder.iterdir()} == {0o644}
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert sorted(os.listdir(folder)) == ["MIG-a-1.lock", "turn.lock"]
    monkeypatch.setenv("ABLATE_LOCKS", "")
    monkeypatch.setattr(device_locks.tempfile, "gettempdir", lambda: "/shared")
    assert device_locks.lock_folder() == Path("/shared/ablate-devices")


def test_who_gets_too_few_of_several_keeps_those_and_of_one_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["0", "1", "2", "3"]
    theirs, ours = DeviceLocks({}, tmp_path), DeviceLocks({}, tmp_path)
    assert theirs.take(["1", "2", "3"], 3) == ("1", "2", "3")
    assert not theirs.others_have(names) and ours.others_have(names)
    assert not ours.others_have(["0"]) and ours.held == {}
    assert ours.take(["1"], 1) is None and ours.held == {}
    assert ours.take(names, 2) is None
    assert set(ours.held) == {"0", "turn"} and ours.busy == ("1", "2", "3")
    said = "GPU 1 is in use by another runner on this node: runs wait for it\n"
    assert capsys.readouterr().out == said
    third = DeviceLocks({}, tmp_path)
    for _ in range(2):  # what is said is said once
        assert third.take(["0"], 1) is None and (third.held, third.busy) == ({}, ())
    said = "another runner on this node waits for several GPUs: runs wait for it\n"
    assert capsys.readouterr().out == said
    theirs.release(["2", "3"])
    assert ours.take(["3", "2", "1", "0"], 2) == ("3", "0")
    assert set(ours.held) == {"0", "3"} and ours.busy == ()
    assert ours.others_have(["0", "3", "1"]) and not ours.others_have(["0", "3", "2"])
    fourth = DeviceLocks({}, tmp_path)
    assert fourth.take(["0", "3"], 1) is None and fourth.busy == ("0", "3")
    said = "GPU 0, 3 is in use by another runner on this node: runs wait for it\n"
    assert capsys.readouterr().out == said
    assert ours.take(["2", "0"], 1) == ("0",), "what it has already comes first"


def test_that_a_runner_waits_is_seen_at_once_where_its_output_goes_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = DeviceLocks({}, tmp_path), DeviceLocks({}, tmp_path)
    assert theirs.take(["0"], 1) == ("0",)
    file = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(file))
    assert ours.take(["0"], 1) is None
    assert file.getvalue() == b"GPU 0 is in use by another runner on this node: runs wait for it\n"
