"""Log files that a script writes itself: read where the command asks for them, kept with the run in any case."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign import own_logs, trainer
from harness.foreign.failure import FailureReason
from harness.foreign.own_lines import OwnReading
from harness.foreign.own_logs import (
    OwnLogs,
    check_pattern,
    keep_own_logs,
    own_files,
    set_aside_own_logs,
)
from harness.run.read import read_lines
from harness.run.readings import OwnMetric, Readings
from harness.store.errors import ResultsError
from reports.inputs.load import load
from tests.foreign_bench import CPU, ablate, bench, statuses, write

SILENT = """
import os, sys
os.makedirs("logs", exist_ok=True)
with open("logs/a1.txt", "w") as log:
    log.write(open(sys.argv[0]).read() + "\\n" + "=" * 100 + "\\n")
    for step in range(5):
        print(f"step {step} of 4")
        log.write(f"step:{step}/4 val_loss:{LAST + 4 - step:.4f} train_time:{step * 100}ms step_avg:100.00ms\\n")
        log.flush()
"""
KEPT = "own-logs-a1.txt"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bench(tmp_path, monkeypatch)
    Path("silent.py").write_text(SILENT.replace("LAST", "3.25"))
    return tmp_path


def directory(name: str, arm: str) -> Path:
    """The run of an arm of an experiment with one of each."""
    return Path("results/runs") / load(name).runs.set_index("arm").loc[arm, "run_id"]


def test_a_script_that_prints_into_its_own_file_alone_is_measured_by_it(folder: Path) -> None:
    options = ("-n", 1, *CPU, "--experiment", "x")
    assert ablate("ab", "silent.py", "old.py", *options, "--log", "logs/*.txt") == 0
    runs = load("x").runs.set_index("arm")
    assert runs.loc["silent", "val_loss"] == 3.25
    assert runs.loc["silent", "train_time_s"] == 0.4
    assert runs.loc["old", "steps"] == 20, "a script without such a file is read as it prints"
    assert ablate("merge", "results", "--results", "other") == 0
    assert (Path("other/runs") / directory("x", "silent").name / KEPT).exists()
    curve = [row["val_loss"] for row in read_lines(directory("x", "silent") / "metrics.jsonl")]
    assert curve == [7.25, 6.25, 5.25, 4.25, 3.25]


def test_what_it_writes_counts_in_the_place_of_what_it_prints(folder: Path) -> None:
    both = "print('step:1/1 val_loss:9.0 train_time:1ms step_avg:1ms', flush=True)\n"
    Path("both.py").write_text(both + Path("silent.py").read_text() + both)
    unended = "step_avg:100.00ms{chr(10) * (step < 4)}"  # its last line has no end
    Path("open.py").write_text(
        Path("silent.py").read_text().replace("step_avg:100.00ms\\n", unended)
    )
    trainer = {"file": "both.py", "log": "logs/*.txt"}
    changes = {
        "file": {"file": "silent.py"},
        "open": {"file": "open.py"},
        "printed": {"log": "out/*.txt"},
    }
    path = write(
        folder, trainer=trainer, changes=changes, design="explicit", arms={k: [k] for k in changes}
    )
    assert ablate("run", path, "--no-report") == 0
    assert dict(load("foreign").runs.set_index("arm")["val_loss"]) == {
        "baseline": 3.25,
        "file": 3.25,
        "open": 3.25,
        "printed": 9.0,
    }


def test_one_log_counts_and_a_metric_that_is_printed_beside_it_is_told_to_lack(
    folder: Path,
) -> None:
    Path("apart.py").write_text(Path("silent.py").read_text() + "\nprint('val_bpb: 0.9')\n")
    Path("same.py").write_text(Path("silent.py").read_text() + "    log.write('val_bpb: 0.9\\n')\n")
    options = ("-n", 1, *CPU, "--experiment", "x", "--metric", "val_bpb: ([0-9.]+)")
    assert ablate("ab", "apart.py", "same.py", *options, "--log", "logs/*.txt") == 1
    assert statuses("x") == {"apart": "failed", "same": "finished"}
    reason = read_lines(directory("x", "apart") / "attempts.jsonl")[-1]["reason"]
    assert reason.startswith("its log logs/a1.txt: it has no val_bpb")


def test_metrics_that_are_printed_beside_the_log_that_counts_are_not_held() -> None:
    metric = OwnMetric(name="val_bpb", pattern="val_bpb: ([0-9.]+)")
    watch = object.__new__(trainer.TrainerWatch)
    watch.readings = {
        name: OwnReading(Readings(metrics=(metric,))) for name in (trainer.PRINTED, "a.txt")
    }
    watch.source, watch.failure = "a.txt", FailureReason()
    for _ in range(9):
        watch.take_line(b"val_bpb: 0.9", "val_bpb: 0.9")
    assert watch.readings[trainer.PRINTED].new == []


def test_two_files_with_measurements_are_refused_and_so_is_a_pattern_that_leaves(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = (
        Path("silent.py").read_text()
        + "\nimport shutil\nshutil.copy('logs/a1.txt', 'logs/b2.txt')\n"
    )
    Path("twice.py").write_text(twice)
    write(folder, trainer={"file": "twice.py", "log": "logs/*.txt"}, changes={"x": {"args": ["x"]}})
    assert ablate("run", "foreign.yaml", "--no-report") == 1
    assert set(statuses("foreign").values()) == {"failed"}
    out = capsys.readouterr().out
    assert "logs/a1.txt and logs/b2.txt both hold measurements: name one of them with --log" in out
    for pattern in ("../*.txt", "/tmp/*.txt", "", "logs/**.txt"):
        assert ablate("ab", "silent.py", "old.py", *CPU, "--log", pattern) == 2
        assert "must be a pattern of files in the script's own folder" in capsys.readouterr().err


SEVERAL_AT_ONCE = """
import os, sys, time
os.makedirs("begun")
for name in os.environ.get("NAMES", "abc"):
    with open(f"begun/{name}.txt", "w") as log:
        for step in range(int(sys.argv[1])):
            loss = os.environ.get("LOSS", 4 - step / 10)
            log.write(f"step:{step}/9 val_loss:{loss} train_time:{step * 100}ms\\n")
os.rename("begun", "logs")
print("".join(f"step:{step}/9 val_loss:9.0 train_time:1ms\\n" for step in range(4)), flush=True)
time.sleep(600)
"""


def test_several_files_with_measurements_end_a_run_at_once_stopped_or_diverged(
    folder: Path,
) -> None:
    Path("several.py").write_text(SEVERAL_AT_ONCE)
    trainer = {"file": "several.py", "log": "logs/*.txt", "stop_step": 3, "args": ["5"]}
    changes = {
        "short": {"args": ["2"]},
        "nan": {"env": {"LOSS": "nan"}},
        "one": {"env": {"NAMES": "a"}},
    }
    path = write(
        folder, trainer=trainer, changes=changes, design="explicit", arms={k: [k] for k in changes}
    )
    assert ablate("run", path, "--no-report") == 1
    runs = load("foreign").runs.set_index("arm")
    assert (runs.loc["one", "status"], runs.loc["one", "val_loss"]) == ("finished", 3.7)
    runs = runs.drop("one")
    assert len(runs) == 3 and set(runs["status"]) == {"failed"}
    assert set(runs["reason"]) == {
        "its own logs: logs/a.txt and logs/b.txt both hold measurements: name one of them with --log"
    }


def test_a_pattern_that_files_can_be_looked_for_with_is_none_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "logs/of").mkdir(parents=True)
    (tmp_path / "logs/of/a.txt").write_text("a")
    for pattern in ("", ".", "./", "./.", "**.txt", "logs/**.txt", "a**/b", "logs/***", "../a"):
        with pytest.raises(UserError, match="must be a pattern of files"):
            check_pattern(pattern, "x")
    for pattern in ("logs/*/*.txt", "**/*.txt", "./logs/**/a.txt", "logs/of/a.txt", "logs//of/*"):
        check_pattern(pattern, "x")
        assert own_files(tmp_path, pattern) == ["logs/of/a.txt"]


def test_a_clean_copy_goes_whatever_befalls_the_logs_that_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []

    def fails(copy: Path, *_: object) -> None:
        copies.append(copy)
        assert copy.is_dir()
        raise OSError("no more")

    monkeypatch.setattr(trainer, "keep_own_logs", fails)
    assert ablate("ab", "silent.py", "old.py", *CPU, "-n", 1, "--experiment", "x") == 1
    assert copies and not any(copy.exists() for copy in copies)


def test_what_a_script_writes_into_logs_is_kept_without_secrets_links_and_checkpoints(
    folder: Path,
) -> None:
    Path("data").mkdir()
    Path("data/tokens.txt").write_text("not mine")
    more = (
        "\nopen('logs/said.txt', 'w').write('token hf_' + 'a1B2' * 8)\n"
        "open('logs/state.pt', 'wb').write(bytes(9))\n"
        "os.makedirs('logs/of', exist_ok=True)\n"
        "for name in ('of/it.txt', 'of-it.txt'): open(f'logs/{name}', 'w').write(name)\n"
        "os.symlink('../data/tokens.txt', 'logs/link.txt')\n"
        "if os.environ.get('DIES'): raise ValueError('after its logs')\n"
    )
    Path("own.py").write_text(Path("silent.py").read_text() + more)
    path = write(folder, trainer={"file": "own.py"}, changes={"dies": {"env": {"DIES": "1"}}})
    assert ablate("run", path, "--no-report") == 1
    for arm in ("baseline", "dies"):  # neither printed a loss: both failed
        kept = sorted(p.name for p in directory("foreign", arm).glob("own-*"))
        like = [p for p in kept if p.endswith("logs-of-it.txt")]
        said = {(directory("foreign", arm) / p).read_text() for p in like}
        assert said == {"of/it.txt", "of-it.txt"}
        assert sorted({*kept} - {*like}) == [KEPT, "own-logs-said.txt"]
        assert (directory("foreign", arm) / "own-logs-said.txt").read_text() == "token [redacted]"
        assert (
            "logs/state.pt is no text: it is not kept"
            in (directory("foreign", arm) / "log.txt").read_text()
        )
    text = (directory("foreign", "dies") / KEPT).read_text()
    assert text.startswith("\nimport os, sys") and text.endswith("step_avg:100.00ms\n")
    assert ablate("run", path, "--no-report") == 1
    old = directory("foreign", "dies") / "attempts" / "1"
    assert {KEPT, "own-logs-said.txt"} < {p.name for p in old.glob("own-*")}
    assert len([*old.glob("own-*")]) == 4


def test_a_file_that_floods_ends_its_run_with_a_reason(folder: Path) -> None:
    flood = "\nwith open('logs/a1.txt', 'a') as log:\n    for _ in range(4096): log.write('x' * 1023 + '\\n')\n"
    Path("flood.py").write_text(Path("silent.py").read_text() + flood)
    trainer = {"file": "flood.py", "log": "logs/*.txt", "output_limit": 2}
    path = write(folder, trainer=trainer, changes={"same": {"file": "silent.py"}})
    assert ablate("run", path, "--no-report") == 1
    assert statuses("foreign") == {"baseline": "failed", "same": "finished"}
    end = read_lines(directory("foreign", "baseline") / "attempts.jsonl")[-1]
    assert (
        end["reason"]
        == "it printed and wrote into its own logs more than its output limit of 2 MiB"
    )


def test_a_look_at_a_file_holds_few_of_its_lines_and_reads_each_once(tmp_path: Path) -> None:
    lines = [b"%d " % i + b"x" * 1000 for i in range(3000)]
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines))
    logs = OwnLogs(tmp_path, "*.txt")
    looks = [*logs.fresh(), *logs.fresh(at_end=True), *logs.fresh(at_end=True)]
    assert [line for _, some in looks for line in some] == lines
    assert max(len(some) for _, some in looks) <= 66
    assert logs.n_bytes == (tmp_path / "a.txt").stat().st_size
    (tmp_path / "a.txt").write_bytes(b"anew\n")
    assert list(logs.fresh()) == [("a.txt", [b"anew"])]


def test_a_look_ends_though_the_script_writes_faster_than_it_is_read(tmp_path: Path) -> None:
    path, line = tmp_path / "a.txt", b"x" * 999 + b"\n"
    path.write_bytes(line * 200)
    logs, n_read = OwnLogs(tmp_path, "*.txt"), 0
    for _, some in logs.fresh():
        n_read += len(some)
        with path.open("ab") as file:
            file.write(line * 200)
        assert n_read < 1000, "it follows the file as it grows"
    assert n_read >= 200
    n_read += sum(len(some) for _, some in logs.fresh())
    assert n_read * len(line) == path.stat().st_size == logs.n_bytes


def test_a_file_that_goes_while_it_is_looked_at_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\n")
    found = [tmp_path / "a.txt", tmp_path / "gone.txt", tmp_path / "b.txt"]
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(found))
    assert list(OwnLogs(tmp_path, "*.txt").fresh()) == [("a.txt", [b"one"]), ("b.txt", [b"one"])]


def test_own_logs_of_an_attempt_before_are_kept_with_that_attempt(tmp_path: Path) -> None:
    out: Any = SimpleNamespace(run=tmp_path, attempt=3)
    (tmp_path / "attempts").mkdir()
    for name in ("own-a.txt", "own-b.txt", "log.txt"):
        (tmp_path / name).write_text(name)
    set_aside_own_logs(out)
    assert {path.name for path in tmp_path.iterdir()} == {"attempts", "log.txt"}
    kept = tmp_path / "attempts" / "2"
    assert {p.name: p.read_text() for p in kept.iterdir()} == {
        name: name for name in ("own-a.txt", "own-b.txt")
    }


def test_a_line_without_an_end_is_given_once_it_is_longer_than_a_line_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_logs, "LINE_LIMIT", 8)
    monkeypatch.setattr(own_logs, "CHUNK", 8)
    (tmp_path / "a.txt").write_bytes(b"12345678" + b"abcdefgh" + b"x\nend")
    logs = OwnLogs(tmp_path, "*.txt")
    assert [line for _, some in logs.fresh() for line in some] == [b"12345678", b"x"]
    assert list(logs.fresh(at_end=True)) == [("a.txt", [b"end"])]


class Kept:
    """What is kept of a run, and told in its log."""

    def __init__(self, folder: Path) -> None:
        self.run, self.store = folder / "run", SimpleNamespace(root=folder / "results")
        self.told: list[str] = []
        self.mine = True
        self.run.mkdir()
        (folder / "copy/logs").mkdir(parents=True)

    def log(self, text: str) -> None:
        self.told.append(text)

    def still_mine(self) -> bool:
        return self.mine

    def names(self) -> list[str]:
        return sorted(path.name for path in self.run.iterdir())


def test_so_many_files_are_kept_and_one_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_logs, "MAX_FILES", 2)
    found = [f"logs/{name}.txt" for name in ("a", "b", "c", "d")]
    out: Any = Kept(tmp_path)
    for name in ("a", "c", "d"):
        (tmp_path / f"copy/logs/{name}.txt").write_text(name)
    monkeypatch.setattr(own_logs, "own_files", lambda copy, pattern: found)
    keep_own_logs(tmp_path / "copy", None, out)
    assert out.names() == ["own-logs-a.txt", "own-logs-c.txt"]
    assert out.told == [
        "logs/b.txt cannot be read (No such file or directory): it is not kept",
        "logs/d.txt and later files are not kept: 2 files of a run are",
    ]


def test_no_log_is_kept_of_a_run_that_was_taken_over_or_where_none_can_be_written(
    tmp_path: Path,
) -> None:
    out: Any = Kept(tmp_path)
    (tmp_path / "copy/logs/a.txt").write_text("a")
    (tmp_path / "copy/b.txt").write_text("b")
    out.mine = False
    keep_own_logs(tmp_path / "copy", "*.txt", out)
    assert out.names() == []
    out.mine = True
    keep_own_logs(tmp_path / "copy", "*.txt", out)
    assert out.names() == ["own-b.txt", "own-logs-a.txt"]
    out.run = tmp_path / "gone"
    with pytest.raises(ResultsError, match=str(tmp_path / "results")):
        keep_own_logs(tmp_path / "copy", None, out)


def test_of_a_name_that_is_too_long_its_end_is_kept(tmp_path: Path) -> None:
    out: Any = Kept(tmp_path)
    for n in (111, 130):
        (tmp_path / "copy/logs" / f"{'a' * n}.txt").write_text("text")
    keep_own_logs(tmp_path / "copy", None, out)
    assert out.names() == [f"own-{'a' * 116}.txt", f"own-logs-{'a' * 111}.txt"]
