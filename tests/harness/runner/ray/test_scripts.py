"""Two scripts against each other as tasks of a real Ray cluster: lost processes and nodes, nodes that see nothing, cancel."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.store.merge import what_is_wrong
from tests.fake_matrix import wait_for
from tests.ray_lab import RayCluster, node_of, on, ray_worker_of
from tests.scripts import LONG_S, Scripts, ended

if "ABLATE_REQUIRE_RAY" not in os.environ:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

NAME = "ab-old-new"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # pipes of nodes that Ray's own test cluster leaves open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def as_here(scripts: Scripts, folder: Path) -> bool:
    """Whether a folder's runs are those of an undisturbed call on this machine, each of them sound."""
    here = Scripts(folder / "here")
    ended(here.start(), 0)
    runs = sorted(scripts.results.glob("runs/[!.]*"))
    assert [what_is_wrong(run) for run in runs] == [None] * 4
    return scripts.table() == here.table()


def test_scripts_survive_the_loss_of_a_process_a_node_and_their_driver(
    cluster: RayCluster, tmp_path: Path
) -> None:
    nodes = [cluster.add(), cluster.add()]
    scripts = Scripts(tmp_path)
    scripts.hold()
    first = scripts.start(*on(cluster, "--max-parallel", "4"))
    pids = scripts.at(4)
    (scripts.folder / "old.py").write_text("raise SystemExit('edited')\n")
    psutil.Process(ray_worker_of(pids[0])).kill()
    wait_for(lambda: not psutil.pid_exists(pids[0]), LONG_S)
    lost = node_of(scripts.alive()[0], nodes)
    gone = [pid for pid in scripts.alive() if node_of(pid, nodes) is lost]
    cluster.kill(lost)
    wait_for(lambda: not any(map(psutil.pid_exists, gone)), LONG_S)
    cluster.add()
    wait_for(lambda: len(scripts.alive()) == 4, LONG_S, seen=scripts.seen)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    wait_for(lambda: not scripts.alive(), LONG_S)
    scripts.go()
    # the script as it was, which is kept, is what the user has again
    Scripts(tmp_path, scripts.results)
    ended(scripts.start(*on(cluster)), 0)
    assert [end[-1] for end in scripts.ends()] == ["finished"] * 4
    assert as_here(scripts, tmp_path)


def test_code_and_data_are_brought_to_nodes_that_see_neither(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per node; what the script kept of its own comes back with its results."""
    scripts = Scripts(tmp_path / "shared")
    kept = tmp_path / "marks"
    scripts.marks = kept
    kept.mkdir()
    cache = tmp_path / "cache"
    start = (
        f"mount -t tmpfs none {tmp_path / 'shared'} && ABLATE_CACHE={cache} "
        f"{Path(sys.executable).parent}/ray start --address {cluster.address} --num-cpus 2"
    )
    node = subprocess.run(["unshare", "-m", "sh", "-c", start], capture_output=True, text=True)
    if "mount:" in node.stderr or "unshare:" in node.stderr:
        pytest.skip("no mount namespaces here")
    assert node.returncode == 0, node.stderr
    out = ended(scripts.start(*on(cluster)), 0)
    assert "4 of 4 runs to do" in out
    assert as_here(scripts, tmp_path)
    [copy] = cache.glob("data-*/[!.]*")
    original = scripts.folder / "data" / "tokens.bin"
    assert (copy / "tokens.bin").read_bytes() == original.read_bytes()
    was = (copy / "tokens.bin").stat().st_mtime_ns
    original.write_bytes(original.read_bytes() + b"more")
    ended(scripts.start(*on(cluster), "--experiment", "more", n=1), 0)
    assert (copy / "tokens.bin").stat().st_mtime_ns == was
    assert len(list(cache.glob("data-*/[!.]*"))) == 2  # other data is another copy


def test_ctrl_c_and_cancel_end_the_scripts_and_the_same_call_goes_on(
    cluster: RayCluster, tmp_path: Path
) -> None:
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as `ray start` in a background job has it
    cluster.add()
    signal.signal(signal.SIGINT, before)
    scripts = Scripts(tmp_path)
    scripts.hold()
    first = scripts.start(*on(cluster))
    [pid] = scripts.at(1)  # one at a time, and its node to itself
    first.send_signal(signal.SIGINT)
    assert "interrupted: 0 of 4 runs are done" in ended_err(first, 130)
    assert not psutil.pid_exists(pid)
    assert [end for end in scripts.ends() if end] == [["interrupted"]]  # and so noted
    second = scripts.start(*on(cluster, "--max-parallel", "2"))
    scripts.at(3)
    assert "stopped" in ended(scripts.call("cancel", NAME), 0)
    ended_err(second, 130)
    assert scripts.alive() == []
    scripts.go()
    ended(scripts.start(*on(cluster)), 0)
    assert [end[-1] for end in scripts.ends()] == ["finished"] * 4


def ended_err(process: Any, code: int) -> str:
    """What it said on standard error."""
    out, err = process.communicate(timeout=LONG_S)
    assert process.returncode == code, out + err
    return str(err)


def test_no_script_runs_on_a_node_with_other_versions(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = tmp_path / "shadow" / "torch-0.0.1.dist-info"
    shadow.mkdir(parents=True)
    (shadow / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.1\n")
    paths = os.pathsep.join([str(shadow.parent), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", paths)
    cluster.add()
    scripts = Scripts(tmp_path)
    out = ended(scripts.start(*on(cluster), n=1), 1)
    assert "its environment is another one here (torch 0.0.1 instead of" in out
    assert not list(scripts.marks.iterdir())
