"""`ablate import`: logs become runs of arms, each once; bad files get one line each; everything downstream works on them."""

import csv
import json
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.run.read import read_config
from harness.run.results import examine
from harness.run.spec import RunSpec
from reports.inputs.load import load
from tests.foreign_logs import first_records, late_2024, year_2025


def ablate(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def records(folder: Path) -> Path:
    """Two record folders of different eras, with what lies beside logs."""
    for name, era in (("2024-11-10_UNetDoubleLr", late_2024), ("2025-01-26_BatchSize", year_2025)):
        arm = folder / "records" / name
        arm.mkdir(parents=True)
        for i in range(3):
            (arm / f"run{i}.txt").write_text(era(3.277 + 0.001 * i, seed=i))
        (arm / "README.md").write_text("step:8/8 val_loss:0.1\n")
        (arm / "train_gpt.py").write_text("raise SystemExit('nobody runs this')\n")
    return folder / "records"


def test_a_directory_of_record_folders_is_one_arm_per_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("import", records(folder), "--experiment", "public") == 0
    assert "6 runs imported, 0 there already, 0 copies, 0 files refused" in capsys.readouterr().out
    known = load("public")
    assert known.plan.baseline == "2024-11-10_UNetDoubleLr"
    assert list(known.runs["arm"].value_counts()) == [3, 3]
    assert known.runs["imported"].all()
    assert known.runs["self_reported"].all()
    assert known.runs["block"].isna().all()
    assert set(known.runs["gpu"]) == {"NVIDIA H100 80GB HBM3"}
    for run_id in known.runs["run_id"]:
        result, wrong = examine(Path("results/runs") / run_id, run_id)
        assert (result is not None, wrong) == (True, None)
        told = json.loads((Path("results/runs") / run_id / "result.json").read_text())
        assert told["imported"] is told["self_reported"] is True


def test_logs_of_other_gpus_are_runs_in_other_environments(folder: Path) -> None:
    h100 = year_2025(3.28, seed=1)
    a100 = year_2025(3.28, seed=2).replace("NVIDIA H100 80GB HBM3", "NVIDIA A100")
    for name, log in (("a", h100), ("b", year_2025(3.28, seed=3)), ("c", a100)):
        (folder / f"{name}.txt").write_text(log)
    assert ablate("import", "a.txt", "b.txt", "c.txt", "--experiment", "public") == 0
    digests = defaultdict(set)
    for run, gpu in load("public").runs.set_index("run_id")["gpu"].items():
        spec = RunSpec.from_mapping(read_config(Path("results/runs") / run))
        digests[gpu].add(spec.environment_digest)
    assert [len(digests[gpu]) for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA A100")] == [1, 1]
    assert not set.intersection(*digests.values())


def test_everything_downstream_works_on_imported_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ablate("import", records(folder), "--experiment", "public")
    old = folder / "old"
    old.mkdir()
    for i in range(2):
        (old / f"{i}.log").write_text(first_records(3.28 + 0.001 * i))  # an arm without times
    ablate("import", old, "--experiment", "public")
    capsys.readouterr()
    assert ablate("report", "public") == 0
    assert ablate("verify", "results/experiments/public/report.html", "--results", "results") == 0
    capsys.readouterr()
    assert ablate("compare", "public", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["comparisons"]
    assert {r["arm"] for r in rows if r["metric"] == "val_loss"} == {"2025-01-26_BatchSize", "old"}
    assert all("paired" not in r["method"] and "two-way" not in r["method"] for r in rows)
    assert {r["arm"] for r in rows if r["metric"] == "train_time_s"} == {"2025-01-26_BatchSize"}
    assert ablate("significance", "public", "--arm", "2024-11-10_UNetDoubleLr", "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean"] == pytest.approx(3.278)
    assert ablate("export", "public", "-o", "runs.csv") == 0
    with open("runs.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 8


def test_the_same_log_twice_is_one_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = late_2024(3.28)
    for name, content in (
        ("a.txt", text),
        ("b.txt", text.replace("\n", "\r\n")),
        ("c.txt", late_2024(3.29)),
    ):
        (folder / "logs" / name).parent.mkdir(exist_ok=True)
        (folder / "logs" / name).write_bytes(content.encode())
    assert (
        ablate(
            "import", "logs/a.txt", "logs/b.txt", "logs/c.txt", "--experiment", "x", "--arm", "A"
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "logs/b.txt: the same log as logs/a.txt: one run" in out
    assert "2 runs imported, 0 there already, 1 copy" in out
    assert ablate("import", "logs", "--experiment", "x", "--arm", "A", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["imported"], facts["known"], facts["arms"]) == (0, 2, [{"arm": "A", "runs": 2}])


def test_the_first_arm_is_the_baseline_unless_another_is_named(folder: Path) -> None:
    for i, arm in enumerate("AB"):
        (folder / f"{arm}.txt").write_text(year_2025(3.28 + 0.01 * i))
        assert ablate("import", f"{arm}.txt", "--experiment", "x", "--arm", arm) == 0
    assert load("x").plan.baseline == "A"
    assert ablate("import", "A.txt", "--experiment", "x", "--arm", "A", "--baseline", "B") == 0
    assert [a.name for a in load("x").plan.arms] == ["B", "A"]


def test_bad_files_get_a_line_each_and_the_rest_come_in(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = folder / "logs"
    logs.mkdir()
    (logs / "good.txt").write_text(late_2024(3.28))
    (logs / "empty.txt").write_text("")
    (logs / "cut.txt").write_text(late_2024(3.28)[:-2000])
    (logs / "far.txt").write_text(re.sub(r"val_loss:3\S+", "val_loss:1e150", late_2024(3.28)))
    (logs / "noise.txt").write_bytes(bytes(range(256)) * 50)
    (logs / "two\nlines\x1b[31m.txt").write_text("no log")
    (logs / "gone.txt").symlink_to("nowhere")
    (logs / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(logs / "pipe.txt")
    (logs / "weights.pt").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    assert ablate("import", logs, "--experiment", "x") == 1
    lines = capsys.readouterr().out.splitlines()
    refused = [line for line in lines if ": refused: " in line]
    assert len(refused) == 9
    assert all(line.isprintable() for line in lines)
    assert "1 run imported, 0 there already, 0 copies, 9 files refused" in lines[-1]
    assert list(load("x").runs["status"]) == ["finished"]


def test_a_diverged_log_comes_in_as_diverged(folder: Path) -> None:
    (folder / "nan.txt").write_text(
        "step:0/8 val_loss:10.9 train_time:1ms\nstep:4/8 val_loss:nan train_time:40ms\n"
    )
    assert ablate("import", "nan.txt", "--experiment", "x") == 0
    assert list(load("x").runs["status"]) == ["diverged"]


def test_imported_runs_are_never_mixed_with_own_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = folder / "results" / "experiments" / "mine"
    own.mkdir(parents=True)
    (own / "experiment.json").write_text('{"schema": 1, "name": "mine", "runs": []}')
    (folder / "a.txt").write_text(late_2024(3.28))
    assert ablate("import", "a.txt", "--experiment", "mine") == 2
    assert "import under another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.txt", "--experiment", "x"], "nothing.txt: no such file or folder"),
        (["a.txt", "--experiment", "a/b"], "must be a file name"),
        (
            ["a.txt", "--experiment", "x", "--arm", "A", "--baseline", "AA"],
            "--baseline 'AA' is none of the arms; did you mean 'A'?",
        ),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (folder / "a.txt").write_text(late_2024(3.28))
    assert ablate("import", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_code_in_a_log_is_never_executed(folder: Path) -> None:
    mark = folder / "executed"
    text = late_2024(3.28).replace(
        "import torch\n",
        f"import torch\nopen({str(mark)!r}, 'w')\n__import__('os').system('touch {mark}')\n",
    )
    (folder / "a.txt").write_text(text)
    assert ablate("import", "a.txt", "--experiment", "x") == 0
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.long
def test_fifteen_hundred_logs_and_one_of_100_mb(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = year_2025(3.28, steps=1390)
    for i in range(1500):
        arm = folder / "logs" / f"arm{i % 30}"
        arm.mkdir(parents=True, exist_ok=True)
        (arm / f"{i}.txt").write_text(
            text.replace("peak memory allocated: 31361", f"peak memory allocated: {31361 + i}")
        )
    with (folder / "logs" / "arm0" / "huge.txt").open("w") as file:
        for _ in range(1000):
            file.write(("z" * 99 + "\n") * 1000)
        file.write(year_2025(3.29, steps=1390))
    assert ablate("import", "logs", "--experiment", "x") == 0
    assert "1501 runs imported" in capsys.readouterr().out
