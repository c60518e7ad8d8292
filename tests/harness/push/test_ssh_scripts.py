"""What the shell of another machine is told, by a shell of this one: an `ssh` and an `rsync` of a few lines stand for the real ones."""

import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.push import ssh
from harness.push.errors import PushError
from harness.push.ssh import SshFiles

SSH = """#!/bin/sh
echo "$@" >>{log}
while [ "$1" != box ]; do shift; done
exec sh -c "$2"
"""
RSYNC = """#!/bin/sh
if [ "$1" = --version ]; then exit 0; fi
echo "$@" >>{log}
for argument; do from=$place; place=$argument; done
from=${{from#box:}}; place=${{place#box:}}
tr '\\0' '\\n' | {{ while read -r name || [ -n "$name" ]; do
  mkdir -p "$place$(dirname "$name")" && cp "$from$name" "$place$name" || exit 1
done; }}
"""


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder on the other machine."""
    programs = tmp_path / "programs"
    programs.mkdir()
    ssh = program(programs, "its-ssh", SSH.format(log=tmp_path / "asked"))
    program(programs, "rsync", RSYNC.format(log=tmp_path / "copied"))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("RSYNC_RSH", f"{ssh} -i 'a key'")
    return tmp_path / "there"


def files_of(there: Path, port: int | None = None) -> SshFiles:
    return SshFiles("box", str(there), port)


def run_here(runs: Path, run_id: str, text: str = "here") -> dict[str, list[str]]:
    """A run of two files: what is sent of it."""
    (runs / run_id).mkdir(parents=True)
    for name in ("result.json", "log.txt"):
        (runs / run_id / name).write_text(text)
    return {run_id: ["result.json", "log.txt"]}


def test_the_command_that_rsync_would_use_is_asked_without_questions(
    there: Path, tmp_path: Path
) -> None:
    files = files_of(there, port=2222)
    files.open()
    assert sorted(path.name for path in there.iterdir()) == [
        *("code", "environments", "experiments", "runs")
    ]
    assert [*(there / "runs").iterdir()] == [], "what was written to try it is gone"
    asked = shlex.split((tmp_path / "asked").read_text().splitlines()[0])
    assert asked[:2] == ["-i", "a"]
    assert "BatchMode=yes" in asked
    assert asked[asked.index("-p") + 1] == "2222"
    assert files.name == f"box:2222:{there}"


def test_files_are_found_fetched_and_sent_by_their_names(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits_s: dict[str, float | None] = {}

    def run(command: list[str], *, timeout: float | None, **how: Any) -> Any:
        limits_s[Path(command[0]).name] = timeout
        return subprocess.run(command, timeout=timeout, **how)

    monkeypatch.setattr(ssh, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": run}))
    files = files_of(there)
    files.open()
    here = tmp_path / "here"
    run_here(here / "experiments", "a")
    files.put(here, ["experiments/a/log.txt"])
    files.put(here, [])
    (there / "experiments" / "folder.txt").mkdir()
    assert files.fitting("experiments/*/*.txt", "experiments/*.txt", "runs/*/x") == [
        "experiments/a/log.txt"
    ]
    files.get(["experiments/a/log.txt"], tmp_path / "back")
    files.get([], tmp_path / "back")
    assert (tmp_path / "back/experiments/a/log.txt").read_text() == "here"
    copied = (tmp_path / "copied").read_text().splitlines()
    assert len(copied) == 2 and all(" --timeout=60 " in words for words in copied)
    assert limits_s == {"its-ssh": 300, "rsync": None}, "what is large takes long"


def test_a_run_is_put_in_its_place_unless_one_with_a_result_is_there(
    there: Path, tmp_path: Path
) -> None:
    files = files_of(there)
    files.open()
    run_here(there / "runs", "old", "there")
    here = tmp_path / "runs"
    batch = {**run_here(here, "old"), **run_here(here, "new")}
    assert files.put_runs(here, batch) == []
    assert (there / "runs/old/result.json").read_text() == "there"
    assert (there / "runs/new/result.json").read_text() == "here"
    assert sorted(path.name for path in (there / "runs").iterdir()) == ["new", "old"]


def test_a_run_that_ended_without_a_result_there_is_set_aside_and_one_at_work_is_named(
    there: Path, tmp_path: Path
) -> None:
    files = files_of(there)
    files.open()
    for run_id, name in (("dead", "log.txt"), ("busy", "attempts/1/owner.json")):
        path = there / "runs" / run_id / name
        path.parent.mkdir(parents=True)
        path.write_text("there")
    here = tmp_path / "runs"
    batch = {**run_here(here, "busy"), **run_here(here, "dead")}
    assert files.put_runs(here, batch) == ["busy"]
    assert not (there / "runs/busy/result.json").exists()
    assert (there / "runs/dead/log.txt").read_text() == "here"
    [aside] = (there / "aside").iterdir()
    assert aside.name.startswith("dead-")
    assert (aside / "log.txt").read_text() == "there"


def test_a_damaged_run_is_moved_out_of_the_way(there: Path) -> None:
    files = files_of(there)
    files.open()
    run_here(there / "runs", "bad")
    files.set_aside("bad")
    assert [*(there / "runs").iterdir()] == []
    assert [path.name.rpartition("-")[0] for path in (there / "aside").iterdir()] == ["bad"]


COMPLAINTS = {  # program -> its text, what is told
    "ssh, its last line": ("echo motd >&2; echo no route to box >&2; exit 255", "no route to box"),
    "ssh that says nothing": ("exit 255", "it says nothing"),
    "no rsync there": ("echo 'sh: rsync: not found' >&2; exit 127", "rsync is not installed there"),
    "no program there": ("echo 'sh: cd: not found' >&2; exit 127", "sh: cd: not found"),
}


@pytest.mark.parametrize("what", COMPLAINTS)
def test_what_goes_wrong_there_is_one_line(
    what: str, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, told = COMPLAINTS[what]
    ssh = program(tmp_path, "bad-ssh", f"#!/bin/sh\n{script}\n")
    monkeypatch.setenv("RSYNC_RSH", str(ssh))
    with pytest.raises(PushError) as error:
        files_of(there).open()
    assert str(error.value) == f"{ssh}: {told}"


def test_the_first_line_of_rsync_says_what_was_wrong(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(there)
    program(
        tmp_path / "programs", "rsync", "#!/bin/sh\necho disk full >&2\necho code 11 >&2\nexit 11"
    )
    with pytest.raises(PushError, match=r"^rsync: disk full$"):
        files.put(tmp_path, ["x"])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(PushError, match=r"^rsync is not installed here$"):
        files.open()


def test_a_connection_is_shared_and_made_again_where_it_is_lost(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    lives: list[int | None] = [None]

    def popen(command: list[str], **_: Any) -> Any:
        started.append(command)
        return SimpleNamespace(poll=lambda: lives[0])

    files = files_of(there)
    files.open()
    shell = list(files.shell)
    faked = SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    monkeypatch.setattr(ssh, "subprocess", faked)
    monkeypatch.setattr(ssh.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "shared"))
    gone: list[str] = []
    monkeypatch.setattr(ssh.atexit, "register", lambda act, folder, **_: gone.append(folder))
    here = tmp_path / "runs"
    files.put_runs(here, run_here(here, "a"))
    assert started == [], "nobody asked for one"
    for _ in range(2):
        files.connect()
    own = [*shell, "-S", f"{tmp_path}/shared/ssh"]
    assert files.shell == own and started == [[*own, "-M", "box", "cat"]]
    assert gone == [str(tmp_path / "shared")], "its folder goes with this process"
    lives[0] = 255
    files.put_runs(here, run_here(here, "b"))
    assert files.shell == own and len(started) == 2 and started[0] == started[1]


def test_a_machine_that_does_not_answer_in_time_is_one_line(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = program(tmp_path, "hangs", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("RSYNC_RSH", str(hangs))
    monkeypatch.setattr(ssh, "ANSWERS_WITHIN_S", 0.05)
    with pytest.raises(PushError) as error:
        files_of(there).fitting("*")
    assert str(error.value) == f"{hangs} did not end within 0.05 s"
