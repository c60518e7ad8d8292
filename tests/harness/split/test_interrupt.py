"""Ctrl-C while arms take their two steps: one line, nothing left running, a folder that is whole."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fake_matrix import wait_for
from tests.foreign_bench import ablate

OLD = """\
import os
rate = 1
for step in range(9):
    print(f"step:{step}/9 train_loss:{3 - step * rate / 10:.4f} train_time:{step}ms")
"""
NEW = OLD.replace("rate = 1", "rate = 2").replace(
    "import os",
    "import os\nimport time\nopen(os.environ['STARTED'], 'w').write(str(os.getpid()))\ntime.sleep(900)",
)


def hears_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a background job's children


def test_ctrl_c_ends_the_smoke_and_leaves_a_folder_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(OLD)
    Path("new.py").write_text(NEW)
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    assert ablate("split", "old.py", "new.py", "-o", "parts", *command) == 0
    before = Path("parts/changes.yaml").read_bytes()
    Path("tmp").mkdir()
    started = tmp_path / "started"
    words = ("split", "--smoke", "parts", "--smoke-env", f"STARTED={started}")
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_interrupts,
    )
    wait_for(lambda: started.exists() and started.read_text())
    arm = psutil.Process(int(started.read_text()))
    others = psutil.Process(process.pid).children(recursive=True)
    assert arm in others
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    lines = [line for line in said.splitlines() if not line.startswith("arm ")]
    assert len(lines) == 1 and lines[0].startswith("ablate: interrupted")
    assert not any(child.is_running() for child in others)
    assert not any(Path("tmp").iterdir())
    assert Path("parts/changes.yaml").read_bytes() == before
    assert len(json.loads(Path("parts/smoke.json").read_text())["runs"]) == 2  # OLD, twice
    assert ablate("split", "--check", "parts") == 0
