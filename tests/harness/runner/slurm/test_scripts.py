"""Two scripts against each other as jobs of a real Slurm cluster: kept copies, lost jobs, signals, Ctrl-C, cancel, --push."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from harness.runner.slurm.sent import jobs_of
from harness.store.merge import what_is_wrong
from tests.fake_matrix import kill, wait_for
from tests.scripts import Scripts, ended
from tests.slurm_lab import LONG_S, SITE, Login, process_of, slurm

NAME = "ab-old-new"
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]


class Sent(Scripts):
    """Scripts whose runs are jobs."""

    def __init__(self, login: Login, results: Path | None = None) -> None:
        super().__init__(login.folder, results)
        self.login = login
        self.site = login.folder / "cluster.yaml"
        self.site.write_text(SITE)

    def send(self, *options: object, n: int = 2) -> "subprocess.Popen[str]":
        where = ("--executor", "slurm", "--cluster", str(self.site))
        self.login.started.append(self.start(*where, *options, n=n))
        return self.login.started[-1]

    def jobs(self) -> list[str]:
        return [sent.job for sent in jobs_of(self.results / "experiments" / NAME / "slurm")]


@pytest.fixture
def sent(login: Login) -> Sent:
    return Sent(login)


def test_jobs_run_the_kept_copy_alone_on_their_node_and_end_as_here(sent: Sent) -> None:
    """The user's files change, and the module goes, while the first run is at work and the others wait."""
    sent.hold()
    process = sent.send("--json")
    [first] = sent.at(1)
    shown = slurm("scontrol", "show", "job", sent.jobs()[0])
    assert "OverSubscribe=NO" in shown and "NodeList=n" in shown
    status = ended(sent.call("status", NAME, "--json"), 0)
    assert status.count('"running"') == 1 and status.count('"pending"') == 3
    (sent.folder / "old.py").write_text("raise SystemExit('edited')\n")
    (sent.folder / "helper" / "losses.py").unlink()
    sent.go()
    out = ended(process, 0)
    assert out.startswith("{")  # and nothing else
    here = Scripts(sent.login.folder / "here")
    ended(here.start(), 0)
    assert sent.table() == here.table()
    runs = sorted(sent.results.glob("runs/[!.]*"))
    assert [what_is_wrong(run) for run in runs] == [None] * 4
    logs = [(run / "log.txt").read_text() for run in runs]
    assert all("\n$ " in log and "step:8/8 val_loss:" in log for log in logs)
    assert not psutil.pid_exists(first)


def test_jobs_that_are_killed_put_back_or_told_to_go_are_run_again_and_leave_no_process(
    sent: Sent,
) -> None:
    sent.hold()
    process = sent.send("--max-parallel", "4")
    scripts = sent.at(4)
    jobs = sent.jobs()
    kill(process_of(jobs[0]))
    slurm("scontrol", "requeue", jobs[1])
    slurm("scancel", "--signal=USR2", jobs[2])
    slurm("scancel", "--signal=TERM", jobs[3])
    wait_for(lambda: not any(map(psutil.pid_exists, scripts)), LONG_S, seen=sent.seen)
    sent.go()
    ended(process, 0)
    ends = sent.ends()
    assert [end[-1] for end in ends] == ["finished"] * 4
    assert sorted(end[0] for end in ends)[-2:] == ["preempted"] * 2  # those that were told
    assert {len(end) for end in ends} == {2}
    here = Scripts(sent.login.folder / "here")
    ended(here.start(), 0)
    assert sent.table() == here.table()


def test_ctrl_c_leaves_the_jobs_the_same_command_follows_them_and_cancel_ends_them(
    sent: Sent,
) -> None:
    sent.hold()
    process = sent.send("--max-parallel", "4")
    scripts = sent.at(4)
    process.send_signal(signal.SIGINT)
    assert "4 runs stay in the queue" in ended(process, 130)
    again = sent.send("--max-parallel", "4")
    assert again.stdout is not None
    assert any(
        "4 runs are in the queue already" in line for line in iter(again.stdout.readline, "")
    )
    assert "4 jobs taken out of the queue" in ended(sent.call("cancel", NAME), 0)
    ended(again, 130)
    assert len(sent.jobs()) == 4  # nothing was sent twice
    wait_for(lambda: not any(map(psutil.pid_exists, scripts)), LONG_S, seen=sent.seen)


def test_a_script_that_fails_is_tried_as_often_as_asked_and_every_finished_run_is_sent_on(
    sent: Sent, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    text = (sent.folder / "new.py").read_text()
    (sent.folder / "new.py").write_text("raise ValueError('the shapes do not match')\n" + text)
    process = sent.send("--retries", "1", "--push", there, n=1)
    out = ended(process, 1)
    reason = "its command ended with exit code 1: ValueError: the shapes do not match"
    assert f"new, block 1: failed: {reason}" in out
    assert f"{there}: every finished run is there, 1 of them sent now" in out
    assert sent.ends() == [["failed", "failed"], ["finished"]]
    assert len(sent.jobs()) == 2
    assert {path.parent.name for path in there.glob("runs/[!.]*/result.json")} == {
        path.parent.name for path in sent.results.glob("runs/[!.]*/result.json")
    }
    assert "SLURM_JOB_ID" not in os.environ


def test_an_experiment_with_foreign_arms_goes_through_slurm_and_prints_its_scripts(
    sent: Sent,
) -> None:
    (sent.folder / "arms.yaml").write_text(
        "name: arms\n"
        "trainer: {command: 'python {script}', file: old.py, gpus: 0, data: data,\n"
        f"  env: {{SEED: '{{seed}}', MARKS: {sent.marks}}}}}\n"
        "changes: {more: {env: {MORE: '0.1'}}, other: {file: new.py}}\n"
        "seeds: 2\n"
    )
    options = ("--executor", "slurm", "--cluster", sent.site)
    printed = ended(sent.call("run", "arms.yaml", "--print-script", *options), 0)
    assert "#SBATCH --array=0-5%1" in printed and "#SBATCH --exclusive" in printed
    process = sent.call("run", "arms.yaml", "--no-report", *options, "--max-parallel", "6")
    assert "arms: everything is finished: 6 runs" in ended(process, 0)
    here = Scripts(sent.login.folder / "here")
    text = (sent.folder / "arms.yaml").read_text().replace(str(sent.marks), str(here.marks))
    (here.folder / "arms.yaml").write_text(text)
    ended(here.call("run", "arms.yaml", "--no-report"), 0)
    assert sent.table("arms") == here.table("arms")
