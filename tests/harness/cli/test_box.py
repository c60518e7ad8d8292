"""`ablate box`: what it prints is a script, whose steps do what they say in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import box
from harness.errors import UserError
from tests.fake_matrix import EXPERIMENT, ROOT
from tests.foreign_bench import ablate

STEPS = (
    "the system",
    "the program",
    "the experiment's own files",
    "the data",
    "compiled kernels, else the first run of every configuration compiles",
    "the check",
    "the runs; the next box goes on with the same command",
    "its kernels for the next box",
)
OWN = EXPERIMENT.replace("schedule.steps: 20", "schedule.steps: 3").replace(" 4096", " 1024")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment of one's own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("ABLATE_DATA", str(ROOT / "data"))
    Path("fake.yaml").write_text(f"{OWN}seeds: 1\n")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert ablate("box", *words) == 0
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    return script


def steps_of(script: str) -> dict[str, str]:
    """Its steps by their headings."""
    steps = {}
    for part in script.split("\n\n# ")[1:]:
        heading, _, commands = part.partition("\n")
        steps[heading] = commands
    return steps


def test_the_steps_are_all_there_in_order(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git = {"rev-parse": "abc123", "remote": "https://example.org/x.git"}
    monkeypatch.setattr(box, "said_by_git", lambda *words: git.get(words[0], ""))
    words = ("fake.yaml", "--push", "ssh://me@home:2222/srv/r", "--seeds", "2")
    steps = steps_of(printed(capsys, *words, "--set", "schedule.steps=5"))
    assert tuple(steps) == STEPS
    assert steps["the program"].splitlines() == [
        "git clone https://example.org/x.git ablations",
        "cd ablations",
        "git checkout --quiet abc123",
        "make install",
        "source .venv/bin/activate",
        "pip install -c constraints.txt -e '.[push]'",
    ]
    kernels = "-e 'ssh -p 2222' me@home:/srv/r/kernels/"
    assert f"rsync -rtp {kernels} " in steps[STEPS[4]]
    assert kernels in steps[STEPS[7]]
    assert steps[STEPS[6]] == (
        "ablate run fake.yaml --set schedule.steps=5 --seeds 2"
        " --push ssh://me@home:2222/srv/r --pull"
    )


def test_without_an_origin_it_says_how_the_program_comes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "said_by_git", lambda *words: "abc123" * (words[0] == "rev-parse"))
    program = steps_of(printed(capsys, "quickstart"))["the program"]
    assert f"git -C {ROOT} bundle create /tmp/ablations.bundle HEAD && scp " in program
    assert "git clone ablations.bundle ablations" in program
    assert "experiment's own files" not in program


def test_a_container_has_the_steps_inside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("fake.yaml", "--push", "s3://bucket/r", "--from", "https://example.org/x.git")
    script = printed(capsys, *words, "--container", "nvcr.io/pytorch:1")
    docker = script.index("docker run --rm --gpus all ")
    for step in STEPS[:-1]:  # no kernels come from a bucket
        assert script.index(f"# {step}") > docker
    assert "--system-site-packages" in script
    assert "-e '.[push]' s3fs\n" in script
    assert "make install" not in script
    assert "rsync -rtp" not in script


def test_what_is_no_place_or_no_checkout_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "said_by_git", lambda *words: "")
    Path("scripts.yaml").write_text("name: scripts\ntrainer: {file: a.py}\n")
    Path("cut.yaml").write_text(f"{OWN}seeds: 1\n# END_OF_FILE\n")
    for words, said in (
        (("scripts.yaml",), "what a foreign trainer needs on a machine is not known"),
        (("fake.yaml", "--push", "host:a;b"), "is no folder"),
        (("fake.yaml",), "say with --from URL what the box is to clone"),
        (("../here/fake.yaml", "--from", "x"), "call this where the experiment's files are"),
        (("fak.yaml",), "no such experiment file"),
        (("cut.yaml", "--from", "x"), "cut.yaml: has a line with END_OF_FILE, at which the box"),
    ):
        assert ablate("box", *words) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert said in line


@pytest.mark.slow
def test_its_files_data_check_and_run_are_commands_that_work(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "said_by_git", lambda *words: "abc123" * (words[0] == "rev-parse"))
    there = folder / "there"
    steps = steps_of(printed(capsys, "fake.yaml", "--push", str(there)))
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ablate").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harness "$@"\n')
    (programs / "rsync").write_text("#!/bin/sh\nexec true\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    (folder / "box").mkdir()
    script = "\n".join([steps[name] for name in STEPS[2:]])
    path = f"{programs}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder / "box",
        env={"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything is finished: 2 runs" in done.stdout
    assert len(list(there.glob("runs/*/result.json"))) == 2


@pytest.mark.parametrize("changed", ["", " M harness/api.py"])
def test_files_that_differ_from_the_last_commit_are_told_before_the_box_is_made(
    changed: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git = {"rev-parse": "abc123", "remote": "https://example.org/x.git", "status": changed}
    monkeypatch.setattr(box, "said_by_git", lambda *words: git.get(words[0], ""))
    words = ("fake.yaml", "--push", "ssh://me@home:2222/srv/r")
    program = steps_of(printed(capsys, *words))["the program"]
    assert ("# files here differ from the last commit" in program) == bool(changed)


@pytest.mark.parametrize(
    ("place", "of_rsync"),
    [
        ("home:/srv/r", "home:/srv/r/kernels/"),
        ("ssh://me@home/srv/r", "me@home:/srv/r/kernels/"),
        ("s3://bucket/r", None),
    ],
)
def test_kernels_lie_beside_the_runs_where_rsync_reaches_them(
    place: str,
    of_rsync: str | None,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = printed(capsys, "fake.yaml", "--push", place, "--from", "https://example.org/x.git")
    assert ("rsync -rtp" in script) == (of_rsync is not None)
    if of_rsync is not None:
        ours = '"$ABLATE_CACHE/kernels-$(id -u)/"'
        assert f"\nrsync -rtp {of_rsync} {ours} || true" in script
        assert f"\nrsync -rtp {ours} {of_rsync}\n" in script


def test_text_of_ones_own_is_sent_and_a_file_in_a_folder_gets_that_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "said_by_git", lambda *words: "abc123" * (words[0] == "rev-parse"))
    Path("of mine").mkdir()
    Path("fake.yaml").rename("of mine/fake.yaml")
    mine = ("--set", "data.corpus=mine", "--set", "data.heldout=stdlib")
    steps = steps_of(printed(capsys, "of mine/fake.yaml", *mine))
    assert steps["the data"].splitlines() == [
        'export ABLATE_DATA="$PWD/data"',
        "mkdir -p data/mine",
        "# your own text: on this machine, with the box's name for BOX:",
        f"#   rsync -rt {ROOT / 'data' / 'mine'}/ BOX:ablations/data/mine/",
        "ablate data prepare stdlib",
        "ablate data list",
    ]
    own = steps["the experiment's own files"].splitlines()
    assert own[:2] == ["mkdir -p 'of mine'", "cat >'of mine/fake.yaml' <<'END_OF_FILE'"]
    assert own[-1] == "END_OF_FILE"


def test_git_that_is_not_there_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"rev-parse": b" abc123\n", "remote": None}

    def git(folder: Path, *words: str) -> bytes | None:
        if words[0] not in answers:
            raise UserError("git is not installed")
        return answers[words[0]]

    monkeypatch.setattr("harness.provenance.git.git", git)
    assert [box.said_by_git(word) for word in ("rev-parse", "remote", "status")] == [
        "abc123",
        "",
        "",
    ]
