"""The benchmark's constants and its history as tables: what is written is read again, and every figure is its rows'."""

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reports.inputs import published
from reports.inputs.history import (
    HISTORY,
    figures_of,
    links_of,
    published_runs,
    read_history,
    write_rows,
)
from reports.inputs.noise import NOISE, EraNoise, HistorySlope, benchmark_noise, noise_text
from reports.inputs.published import era_sd, predecessor, published_losses, published_record

# ---------------------------------------------------------------- constants


def test_constants_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    noise = benchmark_noise()
    later = HistorySlope(nats_per_log_step=0.5, se=0.1, n_pairs=3, name="later")
    for one in (noise, replace(noise, slope_later=later), replace(noise, slope_later=None)):
        path = tmp_path / f"{one.slope_later is None} {one.slope_later == later}.yaml"
        path.write_text(noise_text(one), encoding="utf-8")
        assert benchmark_noise(path) == one
    assert NOISE.read_text(encoding="utf-8") == noise_text(noise)


@pytest.mark.parametrize("content", [None, "", "date: x", "[1]", "loss: ["])
def test_a_file_without_constants_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "noise.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=r"noise\.yaml: no constants of noise .*: restore it"):
        benchmark_noise(path)


def era(track: str, name: str, since: str) -> EraNoise:
    return EraNoise(track=track, name=name, since=since, until="", sd=0.001, df=3, n_runs=4)


def test_a_date_has_the_era_that_had_begun_by_then() -> None:
    rows = [
        ("short", "a", "2024-01-01"),
        ("short", "b", "2025-01-01"),
        ("other", "c", "2024-06-01"),
    ]
    noise = replace(benchmark_noise(), eras=tuple(era(*row) for row in rows))
    found = {
        date: noise.era_of("short", date).name
        for date in ("2023-01-01", "2024-01-01", "2024-12-31", "2025-01-01", "2026-01-01", "")
    }
    assert [*found.values()] == ["a", "a", "a", "b", "b", "b"]
    assert noise.era_of("other", "2020-01-01").name == "c"
    assert noise.era_of("unknown", "2030-01-01").name == "c"  # the last of all
    assert noise.latest.name == "b"


def test_the_noise_of_a_record_is_that_of_the_first_span_that_holds_it() -> None:
    noise = benchmark_noise()
    first, second = noise.of_records[:2]
    assert era_sd(f"r{first.until:02d}") == first.sd
    assert era_sd(f"r{first.until + 1:02d}") == second.sd
    last = noise.of_records[-1]
    assert era_sd(f"r{last.until:02d}") == last.sd
    assert era_sd(f"r{last.until + 1:02d}") == noise.era_of("short", "2025-01-13").sd
    assert era_sd("r97") == era_sd("today's") == noise.latest.sd


def test_a_record_in_five_numbers_is_the_mean_of_its_runs() -> None:
    last: dict[tuple[str, str], dict[str, str]] = {}
    with published.RUNS.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["record"] == "r08" and (row["arm"] == "r08" or "(= r08)" in row["arm"]):
                last[row["arm"], row["run"]] = row
    rows = [*last.values()]
    found = published_record("r08")
    assert found.n == len(rows) > 0
    assert found.loss == pytest.approx(sum(float(r["val_loss"]) for r in rows) / len(rows))
    assert found.time_s == pytest.approx(
        sum(float(r["train_time_ms"]) for r in rows) / len(rows) / 1000
    )
    assert found.steps == int(rows[0]["total_steps"])
    slope = benchmark_noise().slope_of_records.nats_per_log_step
    assert found.log_time_se == pytest.approx(era_sd("r08") / math.sqrt(found.n) / slope)
    own = [float(r["val_loss"]) for (arm, _), r in last.items() if arm == "r08"]
    assert sorted(published_losses("r08")) == sorted(own)
    with pytest.raises(ValueError, match=r"no published runs of 'r99': there are .*r08"):
        published_record("r99")
    with pytest.raises(ValueError, match="restore the file"):
        published_losses("r08", Path("nowhere.csv"))


def test_a_record_that_is_known_as_a_mean_of_many_logs_is_taken_from_the_table() -> None:
    with (published.PUBLISHED / "records.csv").open(newline="") as file:
        means = [row for row in csv.DictReader(file) if row["source"].startswith("mean of")]
    for row in means:
        found = published_record(row["record"])
        if found.n == int(row["n_runs"]):
            assert (found.loss, found.time_s, found.steps) == pytest.approx(
                (float(row["val_loss"]), float(row["train_time_s"]), int(row["steps"])), rel=1e-3
            )
    assert means and predecessor("r08") == "r07" and predecessor("r10") == "r09"
    assert predecessor("r08", "r05") == "r05"


@pytest.mark.parametrize(("record", "of_links"), [("r21", 3), ("r30", 1)])
def test_a_record_of_the_history_alone_is_the_mean_of_the_runs_of_its_last_arm(
    record: str, of_links: int
) -> None:
    def table(name: str) -> list[dict[str, str]]:
        with (HISTORY / f"{name}.csv").open(newline="") as file:
            return [row for row in csv.DictReader(file) if row["track"] == "short"]

    links = [row for row in table("records") if row["record"] == record[1:] and row["arm"]]
    assert published.links_of_record(record) == links and len(links) == of_links
    runs = [row for row in table("runs") if row["arm"] == links[-1]["arm"] and row["val_loss"]]
    found = published_record(record)
    assert (found.record, found.n, found.steps) == (record, len(runs), int(runs[0]["steps"]))
    assert found.loss == pytest.approx(np.mean([float(row["val_loss"]) for row in runs]))
    assert found.time_s == pytest.approx(np.mean([float(row["train_time_s"]) for row in runs]))
    assert era_sd(record) == benchmark_noise().era_of("short", links[0]["date"]).sd
    subjects = {int(row["record"]): row["subject"] for row in table("subjects")}
    assert published.short_track_subjects() == subjects


# ---------------------------------------------------------------- history


def row(**facts: str) -> dict[str, str]:
    usual = dict.fromkeys(("val_loss", "train_time_s", "step_ms", "gpu", "n_gpus"), "")
    names = {"track": "short", "arm": "x", "date": "2025-01-01", "steps": "100"}
    return {**usual, **dict.fromkeys(("driver", "cuda", "torch"), ""), **names, **facts}


def test_the_figures_of_an_arm_are_its_runs_that_have_a_loss() -> None:
    printed = [
        {"track": "short", "arm": "x", "n": "9", "n_in_logs": "2", "mean": "3.1", "sd": "0.1"},
        {"track": "short", "arm": "x", "n": "5", "n_in_logs": "4", "mean": "3.2", "sd": "0.2"},
        {"track": "short", "arm": "x", "n": "7", "n_in_logs": "4", "mean": "3.3", "sd": "0.3"},
        {"track": "short", "arm": "x", "n": "8", "n_in_logs": "3", "mean": "3.6", "sd": "0.6"},
        {"track": "short", "arm": "", "n": "7", "n_in_logs": "9", "mean": "3.4", "sd": "0.4"},
    ]
    rows = [
        row(val_loss="3.0", train_time_s="100", gpu="H100", n_gpus="8", driver="5", cuda="12"),
        row(val_loss="3.5", train_time_s="", step_ms="200", steps="999"),
        row(val_loss="inf", train_time_s="400"),
        row(train_time_s="1"),
        row(arm="y", track="other", val_loss="2.0"),
    ]
    figures = figures_of(rows, printed)
    assert {track: [*arms] for track, arms in figures.items()} == {"short": ["x"], "other": ["y"]}
    x, y = figures["short"]["x"], figures["other"]["y"]
    assert (x.losses.tolist(), x.n) == ([3.0, 3.5], 2)
    assert np.exp(x.log_times).tolist() == pytest.approx([100, 400])
    assert np.exp(x.log_step_ms).tolist() == pytest.approx([200])
    assert (x.name, x.track, x.date, x.steps) == ("x", "short", "2025-01-01", 100)
    assert (x.gpu, x.n_gpus, x.n_diverged) == ("H100", 8, 0)
    assert x.environment == {"driver": "5", "cuda": "12", "torch": ""}
    assert x.printed is not None
    assert (x.printed.n, x.printed.n_in_logs, x.printed.mean, x.printed.sd) == (5, 4, 3.2, 0.2)
    assert (y.n_gpus, y.printed, len(y.log_times)) == (0, None, 0)


def test_records_follow_each_other_within_their_track() -> None:
    rows = [
        {"track": "short", "record": "2", "date": "2024-06-06", "published": "1884", "arm": "a", "parent": "", "beside": ""},
        {"track": "medium", "record": "1", "date": "d", "published": "50", "arm": "m", "parent": "", "beside": ""},
        {"track": "short", "record": "x", "date": "d", "published": "1500", "arm": "b", "parent": "a", "beside": "yes"},
        {"track": "short", "record": "y", "date": "d", "published": "", "arm": "c", "parent": "b", "beside": "no"},
        {"track": "short", "record": "z", "date": "d", "published": "1400", "arm": "d", "parent": "c", "beside": ""},
        {"track": "optimization", "record": "1", "date": "d", "published": "90", "arm": "o", "parent": "", "beside": ""},
    ]  # fmt: skip
    links = links_of(rows)
    assert [(link.record, link.published, link.published_delta) for link in links["short"]] == [
        *(("2", 1884.0, None), ("x", 1500.0, -384.0), ("y", None, None)),
        ("z", 1400.0, None),
    ]
    first, beside, not_beside, _ = links["short"]
    assert (beside.beside, not_beside.beside) == (True, False)
    assert (beside.arm, beside.parent, beside.date) == ("b", "a", "d")
    assert (links["medium"][0].by_steps, links["optimization"][0].by_steps) == (False, True)
    with (HISTORY / "subjects.csv").open(newline="") as file:
        subjects = {(r["track"], r["record"]): r["subject"] for r in csv.DictReader(file)}
    assert first.subject == subjects["short", "2"] and beside.subject == ""
    assert first.earlier is not None and first.earlier.verdict == "no comparison"
    assert (first.earlier.seconds, beside.earlier) == (None, None)


def test_the_history_is_read_as_its_tables_are() -> None:
    links, figures = read_history()
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    with (HISTORY / "runs.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    for run in rows:
        if run["val_loss"]:
            losses[run["track"], run["arm"]].append(float(run["val_loss"]))
    assert {
        (t, a): f.losses.tolist() for t, arms in figures.items() for a, f in arms.items()
    } == losses
    assert published_runs() == [run for run in rows if run["val_loss"]]
    with (HISTORY / "records.csv").open(newline="") as file:
        published_at = [(r["track"], r["record"], r["published"]) for r in csv.DictReader(file)]
    found = [(k, link.record, link.published) for k, ls in links.items() for link in ls]
    assert sorted(found, key=str) == sorted(
        [(t, r, float(p) if p else None) for t, r, p in published_at], key=str
    )
    with (HISTORY / "before.csv").open(newline="") as file:
        before = {(r["track"], r["record"], r["date"]): r for r in csv.DictReader(file)}
    told = [link for ls in links.values() for link in ls if link.earlier is not None]
    assert len(told) == len(before)
    for link in told:
        r = before[link.track, link.record, link.date]
        numbers = [float(r[key]) if r[key] else None for key in ("seconds", "low", "high")]
        assert [link.earlier.seconds, link.earlier.low, link.earlier.high] == numbers  # type: ignore[union-attr]


def test_a_table_is_written_with_its_own_columns_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "new" / "table.csv"
    write_rows(path, ("a", "b"), [{"b": 1, "a": "x, y", "c": 3}, {"a": 2}])
    assert path.read_bytes() == b'a,b\n"x, y",1\n2,\n'
    write_rows(path, ("b",), [{"b": 4}])
    assert path.read_bytes() == b"b\n4\n"
