"""Looking at anybody's results starts nothing, whatever they name; git never starts what a repository names."""

import errno
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.foreign.commits import CommittedTree, commit_of, patched
from harness.provenance.code import Code
from harness.provenance.git import run_git
from harness.provenance.launches import is_mark_of, key_file, mark_of
from tests.foreign_bench import CPU, ablate, bench
from tests.hostile import all_watched, evil_repository, program, watched
from tests.sealing import write_plan

ROOT = Path(__file__).resolve().parents[2]
# the first of its own checkout
STARTS_GIT = (
    "harness/cli/box.py",
    "harness/foreign/commits.py",
    "harness/provenance/machine.py",
)
# what may start a program at all, and which
STARTS_PROGRAMS = {
    "harness/provenance/git.py": "git",
    "harness/provenance/interpreters.py": "the interpreter of a run that is planned or done",
    "harness/foreign/trainer.py": "a trainer",
    "harness/foreign/guard.py": "a trainer, under a guard",
    "harness/foreign/smoke_steps.py": "two steps of a trainer, under a guard, for `split --smoke` alone",
    "harness/runner/process.py": "workers",
    "harness/runner/slurm/queue.py": "Slurm's tools",
    "harness/node/nvidia.py": "nvidia-smi",
    "harness/bench/doctor.py": "tools whose versions it tells",
    "harness/bench/gpu_check.py": "its own checks",
    "harness/bench/runner_check.py": "ablate run, on an experiment of its own",
    "harness/bench/traffic.py": "the C++ compiler, and its own process that lowers",
    "harness/cli/track.py": "itself, beside runs",
    "harness/cli/push.py": "itself, beside runs, for `--push` alone",
    "harness/push/ssh.py": "ssh and rsync, for a place that the user names",
    "harness/store/claims.py": "ps, where there is no /proc",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


@pytest.fixture
def strange(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A results folder of a stranger: its plan names a repository and interpreters that start programs."""
    mark = folder / "mark"
    (folder / "marks").mkdir()
    turns = ("--env", f"MARKS={folder / 'marks'}")  # the same losses in every session
    assert ablate("ab", "old.py", "new.py", "-n", 2, *CPU, *turns) == 0
    repo = evil_repository(folder / "evil" / "repo", mark)
    python = program(folder / "evil" / "python", mark)
    path = Path("results/experiments/ab-old-new/experiment.json")
    plan = json.loads(path.read_text())
    for arm in plan["arms"]:
        arm["side"] |= {"file": None, "repo": str(repo), "ref": "HEAD", "script": "train_gpt.py"}
        arm["side"]["environment"] = {"python": str(python)}
        arm["side"]["patches"] = [str(folder / "evil" / "evil.sh")]
    plan["plugins"] = [str(folder / "evil" / "plugin.py")]
    (folder / "evil" / "plugin.py").write_text(f"open({str(mark)!r}, 'a').write('plugin')\n")
    write_plan(path, plan)
    capsys.readouterr()
    Path("results").rename("strange")
    return Path("strange")


def run_of(results: Path) -> str:
    return sorted(p.name for p in (results / "runs").iterdir())[0]


@pytest.mark.parametrize(
    "merged",
    [
        pytest.param(False, id="as it lies there"),
        pytest.param(True, id="merged", marks=pytest.mark.slow),
    ],
)
def test_commands_that_read_start_nothing(folder: Path, strange: Path, merged: bool) -> None:
    name, results = "ab-old-new", strange
    if merged:
        results = Path("ours")
        said = watched("merge", strange, "--results", results, cwd=folder)
        assert (said.code, said.started) == (0, [])
    page = results / "experiments" / name / "report.html"
    there = ("--results", results)
    commands = [
        ("status", name, *there),
        ("status", *there),
        ("compare", name, *there),
        ("report", name, *there),
        ("export", name, "-o", "table.csv", *there),
        ("export", name, "--curves", "-o", "curves.csv", *there),
        ("significance", name, "--arm", "old", *there),
        ("log", run_of(results), *there),
        ("clean", "--dry-run", *there),
        ("submission", name, "--arm", "old", "-o", "submission", *there),
        ("verify", page, *there),
    ]
    said, started = all_watched(*commands, cwd=folder)
    assert started == []
    assert [(s.code, s.err) for s in said] == [(0, "")] * len(commands)
    assert "data untouched                 cannot be known" in said[-2].out
    assert not (folder / "mark").exists()


def test_going_on_with_a_strangers_experiment_says_what_that_executes_and_starts_nothing(
    folder: Path, strange: Path
) -> None:
    for command in ("plan", "run"):
        said = watched(command, "ab-old-new", "--results", strange, cwd=folder)
        assert (said.code, said.started, said.err.count("\n")) == (2, [], 1)
        assert "was not launched here by you: it would execute `python {script}` with" in said.err
        assert f"{folder}/evil/python" in said.err
        assert f"{folder}/evil/repo at HEAD" in said.err
        assert "add --trust" in said.err
    assert not (folder / "mark").exists()


def test_an_experiment_that_was_launched_here_goes_on_without_a_word(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    assert ablate("run", "ab-old-new", "--seeds", 2, "--no-report") == 0
    path = Path("results/experiments/ab-old-new/experiment.json")
    plan = json.loads(path.read_text())
    plan["arms"][0]["side"]["command"] = "python -X dev {script}"
    write_plan(path, plan)
    capsys.readouterr()
    assert ablate("run", "ab-old-new", "--seeds", 3, "--no-report") == 2
    assert "it would execute `python -X dev {script}`" in capsys.readouterr().err
    assert ablate("run", "ab-old-new", "--seeds", 3, "--no-report", "--trust") == 0
    assert "trusted: `python -X dev {script}` with old.py" in capsys.readouterr().err
    assert ablate("run", "ab-old-new", "--seeds", 3, "--no-report") == 0


def test_a_mark_of_another_user_is_none(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "another"))
    assert ablate("run", "ab-old-new", "--seeds", 2) == 2
    said = capsys.readouterr().err
    assert "was not launched here by you: it would" in said
    assert not (folder / "another").exists()


def test_a_user_who_can_keep_no_key_is_told_what_is_executed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("in the way of a folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    assert ablate("run", "ab-old-new", "--seeds", 2) == 2
    said = capsys.readouterr().err
    assert "no key can be kept in your home; name a folder in XDG_STATE_HOME" in said
    assert "add --trust" in said


def test_a_key_is_kept_in_a_home_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mark = mark_of(["a", 1])
    assert is_mark_of(mark, ["a", 1])
    assert mark_of(["a", 1]) == mark
    assert [path.name for path in (tmp_path / "state" / "ablate").iterdir()] == ["launch.key"]
    assert key_file().stat().st_mode & 0o077 == 0


# ---------------------------------------------------------------- git


def test_git_starts_nothing_that_a_repository_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    repo = evil_repository(tmp_path / "repo", mark)
    command = ["git", "cat-file", "blob", "HEAD:./train_gpt.py"]
    subprocess.run(command, cwd=repo, capture_output=True, check=False)
    assert mark.exists()  # the repository is evil: plain git does what it says
    mark.unlink()
    commit = commit_of(repo, "HEAD")
    assert commit is not None
    tree = CommittedTree(root=repo, commit=commit)
    assert tree.names(".") == [".gitattributes", "train_gpt.py"]
    assert tree.read("train_gpt.py") is None
    for arguments in (
        ("status",),
        ("diff", "--no-ext-diff", "--no-textconv", "HEAD"),
        ("fetch", "origin"),
        ("ls-remote", "ext::/bin/sh -c id"),
        ("clone", "--no-local", ".", str(tmp_path / "clone")),
    ):
        run_git(repo, *arguments)
    assert not mark.exists(), mark.read_text()


def test_a_patch_is_applied_without_the_repository_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    repo = evil_repository(tmp_path / "repo", mark)
    monkeypatch.setenv("TMPDIR", str(repo))
    monkeypatch.setenv("GIT_DIR", str(repo / ".git"))
    patch = tmp_path / "idea.diff"
    patch.write_text("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-one\n+two\n")
    code = patched(Code(script="x.py", files={"x.py": b"one\n"}), [patch])
    assert code.files == {"x.py": b"two\n"}
    assert not mark.exists()


def test_without_git_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="git is not installed"):
        commit_of(tmp_path, "HEAD")
    with pytest.raises(UserError, match="no such folder"):
        commit_of(tmp_path / "gone", "HEAD")


def sources() -> dict[str, str]:
    """Every file of ours."""
    found = {}
    for package in ("harness", "reports", "model", "optim"):
        for path in sorted((ROOT / package).rglob("*.py")):
            found[str(path.relative_to(ROOT))] = path.read_text()
    return found


def test_git_is_imported_by_what_makes_runs_alone() -> None:
    importing = re.compile(
        r"^\s*(from harness\.provenance\.git|from harness.provenance import.*\bgit\b|import .*provenance\.git)",
        re.M,
    )
    assert tuple(f for f, text in sources().items() if importing.search(text)) == STARTS_GIT


def test_programs_are_started_in_few_places() -> None:
    starting = re.compile(
        r"^\s*(import subprocess|from subprocess)|os\.(system|popen|exec\w+|spawn\w+|posix_spawn\w*)\(|\bpty\.",
        re.M,
    )
    found = {f for f, text in sources().items() if starting.search(text)}
    assert found == set(STARTS_PROGRAMS)
