"""Metrics of a script's own: any pattern, JSON field or file; lower or higher is better; units understood or refused."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from harness.errors import UserError
from harness.foreign import own_lines
from harness.foreign.log_lines import LogError, read_point
from harness.foreign.own_lines import OwnReading, seconds_of
from harness.foreign.own_metrics import RESERVED, check_readings, read_metric
from harness.run.metrics import OwnValue
from harness.run.readings import OwnMetric, Readings
from reports.analysis.arm_columns import ARM_COLUMNS
from reports.analysis.samples import usable
from reports.analysis.types import UNITS
from reports.inputs.load import load
from reports.inputs.run_columns import RUN_COLUMNS
from reports.verify.verify import verify
from tests.foreign_bench import TRAINERS, ablate, write

OWN = ("--gpus-per-run", 0, "--command", "python {script}", "--env", "SEED={seed}")
LINES = ("--step-pattern", r"iter (\d+)", "--time-pattern", r"clock=(\S+)")
METRICS = (
    *("--metric", "acc=json:eval.accuracy", "--metric", "val_bpb: ([0-9.]+)"),
    *("--metric", "file:scores.json:eval.score", "--higher", "acc", "--higher", "score"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two scripts were judged by three metrics of their own, the accuracy first."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(TRAINERS / "own.py", "old.py")
        Path("new.py").write_text(
            Path("old.py").read_text().replace('"MORE", "0"', '"MORE", "0.05"')
        )
        assert (
            ablate("ab", "old.py", "new.py", "-n", 3, *OWN, *LINES, *METRICS, "--experiment", "x")
            == 0
        )
    return folder


@pytest.fixture
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


# ---------------------------------------------------------------- from a line to a verdict


def test_the_verdict_follows_the_side_that_is_better(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("compare", "x", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    by_metric = {c["metric"]: c for c in told["comparisons"]}
    assert told["primary"] == "acc"
    assert load("x").plan.target is None  # the benchmark's is of its own loss
    for name, better, sign in (
        ("acc", "higher", 1),
        ("score", "higher", 1),
        ("val_bpb", "lower", -1),
    ):
        c = by_metric[name]
        assert (c["better"], c["verdict"], c["unit"], c["ratio"]) == (better, "better", "", None)
        assert c["delta"] == pytest.approx(0.05 * sign, abs=0.01)
        assert c["low"] * sign > 0 < c["high"] * sign
    assert by_metric["train_time_s"]["better"] == "lower"
    assert ablate("compare", "x", "--fail-on", "better") == 1
    assert ablate("compare", "x", "--fail-on", "worse") == 0


def test_the_other_way_round_it_is_worse(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = (*OWN, *LINES, *METRICS, "--experiment", "back", "--no-report", "--json")
    assert ablate("ab", "new.py", "old.py", "-n", 3, *options) == 0
    verdict = json.loads(capsys.readouterr().out)
    said = {c["metric"]: c["verdict"] for c in verdict["comparisons"]}
    assert [said[name] for name in ("acc", "val_bpb", "score")] == ["worse"] * 3
    assert verdict["rules"] == []  # no validation loss: the benchmark's rules say nothing
    assert verdict["judged"][0] == "acc"


def test_runs_and_exports_hold_what_was_read(there: Path) -> None:
    runs = load("x").runs
    assert runs["val_loss"].isna().all()
    assert set(runs["steps"]) == {10}
    assert runs["train_time_s"].between(0.38, 0.42).all()  # ms became seconds
    assert (runs.groupby("arm")["acc"].mean() > [0.44, 0.38]).all()
    assert ablate("export", "x", "-o", "x.csv") == 0
    table = pd.read_csv("x.csv")
    assert list(table.sort_values("run_id")["acc"]) == list(runs.sort_values("run_id")["acc"])


# ---------------------------------------------------------------- the page, and what is tampered with


def test_the_page_says_what_is_better_and_verifies(there: Path) -> None:
    page = there / "results/experiments/x/report.html"
    text = page.read_text()
    assert "is better than old in acc." in text
    assert "judged by acc after 10 steps (higher is better)" in text
    assert "difference in acc to old; above zero is better" in text
    assert "difference in val_bpb to old; below zero is better" in text
    assert "Target loss" not in text
    assert verify(page, there / "results") == []


@pytest.mark.parametrize(
    "tampered",
    ["a mean", "an effect", "the side", "the word", "a row"],
)
def test_a_page_that_was_tampered_with_is_told(there: Path, tmp_path: Path, tampered: str) -> None:
    text = (there / "results/experiments/x/report.html").read_text()
    page = tmp_path / "report.html"
    if tampered in ("a mean", "an effect"):
        key = {"a mean": "acc.mean", "an effect": "acc.effect"}[tampered]
        cell = re.compile(
            rf'(data-key="{key}" data-v=")([^"]+)"|(data-v=")([^"]+)(" data-key="{key}")'
        )
        found = cell.search(text)
        assert found
        changed = found[0].replace(found[2] or found[4], "0.7")
        text = text.replace(found[0], changed)
        expected = f"{key} is printed as"
    elif tampered == "the side":  # in the data alone: its words then follow from nothing
        assert text.count('"better":"higher"') > 1
        text = text.replace('"name":"acc","better":"higher"', '"name":"acc","better":"lower"')
        expected = "the verdict 'better' does not follow"
    elif tampered == "the word":
        text = re.sub(r'(data-key="verdict"[^>]*>)better<', r"\1worse<", text)
        expected = "the verdict 'worse' does not follow"
    else:
        value = load("x").runs["acc"].iloc[0]
        assert text.count(repr(float(value))) > 0
        text = text.replace(repr(float(value)), repr(float(value) + 0.01))
        expected = "acc"
    page.write_text(text)
    found_wrong = verify(page, there / "results")
    assert any(expected in sentence for sentence in found_wrong), found_wrong


def test_a_result_whose_metric_is_not_its_last_reading_is_told(there: Path, tmp_path: Path) -> None:
    from reports.verify.files import check_own

    data = {"plan": json.loads(Path("results/experiments/x/experiment.json").read_text())}
    run = next(Path("results/runs").iterdir())
    result = json.loads((run / "result.json").read_text())
    row = {**result["own"], "stopped_at": None}
    assert list(check_own(data, run.name, row, run, result)) == []
    result["own"]["acc"] += 0.1
    said = list(check_own(data, run.name, row, run, result))
    assert len(said) == 2 and "its last reading was" in said[1]


# ---------------------------------------------------------------- a fixed early stop


def test_a_planned_stop_is_an_outcome_of_its_own(
    there: Path,
) -> None:
    options = (*OWN, *LINES, "--metric", "val_bpb: ([0-9.]+)", "--experiment", "stopped")
    assert ablate("ab", "old.py", "new.py", "-n", 1, *options, "--stop-step", 5) == 0
    runs = load("stopped").runs
    assert set(runs["status"]) == {"finished"}
    assert set(runs["reason"]) == {"stopped at step 5, as planned"}
    assert set(runs["stopped_at"]) == set(runs["steps"]) == {5}
    old = runs.loc[runs["arm"] == "old", "val_bpb"].mean()
    assert old == pytest.approx(0.98 + 0.1 / 6, abs=0.01)  # not that of step 10
    page = there / "results/experiments/stopped/report.html"
    assert "every run stopped at step 5, as planned" in page.read_text()
    assert verify(page, there / "results") == []


def test_the_benchmarks_own_lines_can_be_stopped() -> None:
    reading = OwnReading(Readings(stop_step=5))
    for step in (0, 4, 5):
        reading.feed(f"step:{step}/20 val_loss:{5 - step / 10} train_time:{step}s".encode())
    assert reading.stopped_at == 5
    assert reading.lacks() is None
    assert (reading.final().val_loss, reading.final().train_time_s, reading.n_steps) == (
        4.5,
        5.0,
        5,
    )


# ---------------------------------------------------------------- units and refusals


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("492.485s", 492.485), ("795ms", 0.795), ("12 min", 720.0), ("1.5h", 5400.0)),
        *(("250us", 0.00025), ("3 seconds", 3.0), ("1:02:03", 3723.0), ("02:03.5", 123.5)),
        *(("0s", 0.0), ("2000ns", 2e-6)),
    ],
)
def test_units_are_understood(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("12 parsecs", "5", "5 m", "x", "-3s", "1e200s"),
        *("y" * 48, "1" * 48, f"1{'0' * 40} parsecs", f"-1{'0' * 40}s"),
    ],
)
def test_a_time_that_is_not_understood_is_refused(
    text: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(LogError, match=re.escape(text[:4].split()[0])) as error:
        seconds_of(text)
    kept_line(str(error.value))


@pytest.mark.parametrize("step", ["x", "-1", "1.5", "9" * 13, "z" * 48, "9" * 12])
def test_a_step_is_a_whole_number_of_at_most_twelve_digits(
    step: str, kept_line: Callable[[str], None]
) -> None:
    reading = OwnReading(Readings(step_pattern=r"iter (\S+)"))
    reading.feed(f"iter {step}".encode())
    kept_line(f"{reading.step}: {reading.lacks()}")


@pytest.mark.parametrize("time", ["492.485sec", "492us", "8min", "795"])
def test_a_time_of_the_benchmarks_lines_is_never_dropped(time: str) -> None:
    line = "step:5/5 val_loss:3.1 train_time:{} step_avg:3.00ms"
    for good in ("492.485s", "795ms"):
        point = read_point(line.format(good).encode())
        assert point is not None and point.train_time_s
    with pytest.raises(LogError, match=time[:3]):
        read_point(line.format(time).encode())


def test_a_unit_may_be_the_groups_name() -> None:
    readings = Readings(time_pattern=r"took (?P<ms>[0-9.]+)", step_pattern=r"at (\d+)")
    reading = OwnReading(readings)
    reading.feed(b"at 4 took 2500")
    assert (reading.final().train_time_s, reading.final().step_ms) == (2.5, 625.0)


def test_a_validation_loss_in_other_words_is_the_validation_loss() -> None:
    readings = Readings(metrics=(read_metric("(?:eval )(?P<val_loss>[0-9.]+)", where="x"),))
    reading = OwnReading(readings)
    for line in (b"step:1/2 val_loss:9.9", b"eval 4.5", b"eval 3.2"):
        reading.feed(line)
    assert reading.final().val_loss == 3.2  # the benchmark's line is not read beside it
    assert reading.lacks() is None
    reading.feed(b"eval 0.0")
    assert reading.lacks() == "the loss '0.0' is impossible: cross entropy is above zero"


def test_losses_without_a_step_are_counted_and_with_one_stand_at_it() -> None:
    loss = read_metric("(?:eval )(?P<val_loss>[0-9.]+)", where="x")
    for pattern, steps in ((None, [1, 2, 3]), (r"at (\d+)", [10, 20, 20])):
        reading = OwnReading(Readings(metrics=(loss,), step_pattern=pattern))
        points = [
            reading.feed(line) for line in (b"at 10 eval 4.5", b"at 20", b"eval 3.9", b"eval 3.2")
        ]
        assert [(p.step, p.loss) for p in points if p] == list(zip(steps, (4.5, 3.9, 3.2)))


def test_a_reading_has_the_time_since_the_script_began(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((100.0, 103.1234567))
    monkeypatch.setattr(own_lines, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    reading = OwnReading(Readings(metrics=(read_metric("bpb=(.+)", where="x"),)))
    reading.feed(b"bpb=0.5")
    assert reading.new == [OwnValue(step=None, name="bpb", value=0.5, elapsed_s=3.123457)]


def test_what_was_never_read_fails_the_run_with_its_pattern() -> None:
    reading = OwnReading(Readings(metrics=(OwnMetric(name="bpb", pattern="bpb=(.+)"),)))
    reading.feed(b"step:2/2 val_loss:3.1")
    assert reading.lacks() == "it has no bpb: no line holds 'bpb=(.+)'"
    reading.feed(b"bpb=abc")
    assert reading.lacks() == "the bpb 'abc' is not a number"


def test_lines_are_read_as_json_only_where_a_metric_is_in_the_last_one() -> None:
    line = b'{"a": 1}'
    for texts, expected in (
        (("json:a",), {"a": 1}),
        (("a: (.+)", "json:a"), {"a": 1}),
        (("a: (.+)", "file:a.json:a"), None),
        ((), None),
    ):
        metrics = tuple(read_metric(text, where="x") for text in texts)
        reading = OwnReading(Readings(metrics=metrics))
        reading.feed(line)
        assert reading.last_object == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("val_bpb: ([0-9.]+)", "val_bpb"), (r"\bacc\s*=\s*(\d+)", "acc"), ("json:a.b", "b")),
        *(("file:out/mmlu.txt", "mmlu"), ("file:o.json:x.y", "y"), ("q=json:a.b", "q")),
    ],
)
def test_a_metric_has_the_name_that_stands_before_it(text: str, name: str) -> None:
    assert read_metric(text, where="x").name == name


def test_a_pattern_has_at_most_five_hundred_characters() -> None:
    pattern = "val_bpb: ([0-9.]+)".ljust(500, "#")
    assert read_metric(pattern, where="x").pattern == pattern
    with pytest.raises(UserError, match=r"#' must have one group, which is the number"):
        read_metric(f"{pattern}#", where="x")


@pytest.mark.parametrize(
    "text", ["([0-9.]+)", "a: ([0-9]+) ([0-9]+)", "a: [0-9]+", "a: (", "steps: (.+)", "file:/etc/x"]
)
def test_what_is_no_metric_is_refused_in_a_line(
    text: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=r"^--metric: ") as refused:
        read_metric(text, where="--metric")
    kept_line(re.sub("(no regular expression): .*", r"\1: ...", str(refused.value)))


def test_a_stop_cannot_wait_for_the_end(kept_line: Callable[[str], None]) -> None:
    metrics = (read_metric("c: (.)", where="x"), read_metric("json:a", where="x"))
    said = []
    for stop, higher in ((5, []), (None, ["c", "b"])):
        with pytest.raises(UserError) as refused:
            check_readings(Readings(metrics=metrics, stop_step=stop), higher=higher, where="x")
        said.append(str(refused.value))
    kept_line("\n".join(said))


def test_no_metric_has_the_name_of_a_column() -> None:
    named = {c.key for c in RUN_COLUMNS} | {c.json_name for c in ARM_COLUMNS if c.json_name}
    assert (named | set(UNITS)) - {"val_loss"} <= RESERVED


@pytest.mark.parametrize(
    ("primary", "deciding"), [("acc", "acc"), ("val_loss", "val_loss"), ("step_ms", "acc")]
)
def test_a_run_without_the_metric_that_decides_is_an_outcome(
    there: Path, primary: str, deciding: str
) -> None:
    experiment = load("x")
    plan = replace(experiment.plan, primary=primary)
    every = experiment.runs.assign(val_loss=3.0)
    one = every.index[every["arm"] != plan.baseline][0]
    for metric in ("acc", "val_bpb", "val_loss"):
        lost = every[metric].astype(float).where(every.index != one)
        changed = replace(experiment, plan=plan, runs=every.assign(**{metric: lost}))
        statuses = usable(changed).runs["status"].tolist()
        assert statuses.count("diverged") == (metric == deciding), metric


def test_an_experiment_file_names_them_too(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = {
        "metrics": ["acc=json:eval.accuracy", "val_bpb: ([0-9.]+)"],
        **{"higher": "acc", "env": {"SEED": "{seed}"}, "stop_step": None},
    }
    path = write(there, name="filed", trainer=trainer, changes={"more": {"env": {"MORE": "0.1"}}})
    assert ablate("run", path, "--no-report") == 0
    plan = load("filed").plan
    assert (plan.primary, [*plan.own_metrics]) == ("acc", ["acc", "val_bpb"])
    capsys.readouterr()
    write(there, name="filed", primary="speed", trainer=trainer, changes={"more": {"args": ["-x"]}})
    assert ablate("run", path) == 2
    assert "primary 'speed' is not one of acc, val_bpb, val_loss" in capsys.readouterr().err


def test_earlier_runs_are_borrowed_for_the_loss_alone(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bits", "wer"):
        options = (*OWN, *LINES, "--metric", f"{name}=json:eval.accuracy", "--no-report")
        capsys.readouterr()
        sides = ("old.py", "new.py", "-n", 1, "--experiment", f"pool-{name}")
        assert ablate("ab", *sides, *options, "--pool") == 0
        said = f"--pool: is for val_loss, not for {name}: none is borrowed"
        assert said in capsys.readouterr().out.splitlines()
