"""The benchmark's log format: every era is read exactly, nothing of a head counts, and whatever is no whole log is refused."""

import json
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.foreign import logs as logs_module
from harness.foreign.log_lines import LINE_FORMATS, LINE_LIMIT, LogError, read_point
from harness.foreign.logs import Reading
from tests.foreign_logs import ERAS, LINE, first_records, late_2024, read_log, year_2025

EXAMPLES = {  # the lines that the issue names
    "step:125/6200 val_loss:5.2017 train_time:24564ms step_avg:213.60ms": (
        "val",
        125,
        6200,
        5.2017,
        24.564,
        213.60,
    ),
    "step:1390/1390 train_time:204266ms step_avg:148.02ms": (
        "time",
        1390,
        1390,
        None,
        204.266,
        148.02,
    ),
    "step:10/6200 train_loss:6.7231 train_time:0ms step_avg:nanms": (
        "train",
        10,
        6200,
        6.7231,
        0.0,
        None,
    ),
    "s:128 tel:6.0344": ("val", 128, None, 6.0344, None, None),
    "s:129 trl:6.1": ("train", 129, None, 6.1, None, None),
}


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "log.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_line_of_the_format_is_read(line: str) -> None:
    point = read_point(line.encode() + b"\r\n")
    assert point is not None
    assert (
        tuple(None if isinstance(v, float) and math.isnan(v) else v for v in point)
        == EXAMPLES[line]
    )


def test_every_format_has_a_line_among_the_examples() -> None:
    for era in LINE_FORMATS:
        assert any(era.pattern.match(line.encode()) for line in EXAMPLES), era.start


@pytest.mark.parametrize(
    "line",
    [
        'print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f} train_time:{training_time_ms:.0f}ms")',
        "  step:125/6200 val_loss:5.2017 train_time:24564ms",
        "step:125 val_loss:5.2017",
        "step:5/10 lr:0.1",
        "steps:5/10 val_loss:3.1",
    ],
)
def test_what_only_looks_like_a_line_is_none(line: str) -> None:
    assert read_point(line.encode()) is None


def test_a_log_of_late_2024_is_read_exactly(tmp_path: Path) -> None:
    reading, code = read_log(write(tmp_path, late_2024(3.2781)))
    final = reading.final()
    assert (final.val_loss, final.steps, final.peak_allocated_mib) == (3.2781, 250, 31563)
    assert final.train_time_s == pytest.approx(48.0, rel=2e-3)
    assert final.step_ms == pytest.approx(200, rel=2e-3)
    assert list(reading.steps["val"]) == [0, 125, 250]
    assert len(reading.steps["train"]) == 250
    assert reading.facts.gpus == ["NVIDIA H100 80GB HBM3"] * 2
    assert tuple(reading.facts.versions[name] for name in ("torch", "cuda", "driver")) == (
        "2.6.0.dev20241107+cu124",
        "12.4",
        "550.127.05",
    )
    assert code is not None


def test_a_log_of_2025_is_read_exactly(tmp_path: Path) -> None:
    reading, code = read_log(write(tmp_path, year_2025(3.2799)))
    final = reading.final()
    assert (final.val_loss, final.steps) == (3.2799, 250)
    assert (final.peak_allocated_mib, final.peak_reserved_mib) == (31361, 36734)
    assert tuple(reading.facts.versions[name] for name in ("python", "torch")) == (
        "3.12.7",
        "2.7.0.dev20250125+cu126",
    )
    assert code is not None


def test_a_log_of_the_first_records_has_no_times(tmp_path: Path) -> None:
    reading, code = read_log(write(tmp_path, first_records(3.2812)))
    assert (
        reading.final().val_loss,
        reading.final().train_time_s,
        reading.final().steps,
    ) == (3.2812, None, 512)
    assert list(reading.steps["val"]) == [0, 128, 256, 384, 512]
    assert code is None


@pytest.mark.parametrize("era", ERAS)
def test_line_ends_and_a_second_printing_do_not_move_the_digest(era: str, tmp_path: Path) -> None:
    text = ERAS[era](3.28)
    twice = "\n".join(
        line
        for line in text.splitlines()
        for _ in range(2 if line.startswith(("step:", "s:")) and "l:" in line else 1)
    )
    digests = {
        read_log(write(tmp_path, t))[0].digest()
        for t in (text, text.replace("\n", "\r\n"), twice + "\n")
    }
    assert len(digests) == 1
    assert read_log(write(tmp_path, ERAS[era](3.29)))[0].digest() not in digests


def test_the_code_digest_is_that_of_the_code_alone(tmp_path: Path) -> None:
    codes = {
        read_log(
            write(tmp_path, late_2024(loss, seed=seed).replace("03:22:58", f"03:22:{seed:02}"))
        )[1]
        for seed, loss in enumerate((3.27, 3.29))
    }
    assert len(codes) == 1
    changed = late_2024(3.27).replace("for step in range(250 + 1)", "for step in range(251)")
    assert read_log(write(tmp_path, changed))[1] not in codes


HEADS = {
    "no code at all": "",
    "code without lines of ====": 'import os\nx = """\nstep:1/8 val_loss:1.0 train_time:1ms step_avg:1ms\n"""\n',
    "a fake log in a docstring": f'{LINE}\n"""\nstep:0/8 val_loss:9.0\nstep:8/8 val_loss:0.1\n"""\nimport os\n{LINE}\n',
    "==== inside the code": f'import os\n"""\n{LINE}\nstep:8/8 val_loss:0.1\n{LINE}\n"""\n{LINE}\nnvidia-smi\n{LINE}\n',
    "a sample that is not code": f"A sample:\nstep:7/8 val_loss:0.1\nstep:8/8 val_loss:0.1\n{LINE}\n",
    "a diverged fake": f"'''\nstep:1/8 val_loss:nan\nstep:2/8 val_loss:text\n'''\n{LINE}\n",
}


@pytest.mark.parametrize("head", HEADS)
def test_nothing_of_a_head_counts(head: str, tmp_path: Path) -> None:
    body = "step:0/8 val_loss:10.9 train_time:0ms step_avg:nanms\nstep:8/8 val_loss:3.3 train_time:80ms step_avg:10ms\n"
    reading, _ = read_log(write(tmp_path, HEADS[head] + body))
    assert list(reading.losses["val"]) == [10.9, 3.3]
    assert (reading.total, reading.exploded) == (8, None)


GOOD = "step:0/8 val_loss:10.9 train_time:1ms step_avg:nanms\nstep:4/8 val_loss:5.0 train_time:40ms step_avg:10ms\n"
END = "step:8/8 val_loss:3.3 train_time:80ms step_avg:10ms\n"
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "it is empty"),
    "no log": ("hello\n", "it has no validation loss"),
    "truncated": (GOOD, "it ends without its final validation: the last one is at step 4 of 8"),
    "cut in its last line": (GOOD + END[:14], "it ends without its final validation"),
    "an old log cut off": ("s:0 tel:10.9\ns:0 trl:10.9\ns:1 trl:9.1\n", "it ends without its final validation"),
    "zero bytes": (GOOD.encode() + b"\0" * 100, "it is binary, or damaged"),
    "an archive": (b"\x1f\x8b" + GOOD.encode(), "it is compressed"),
    "UTF-16": (("\ufeff" + GOOD + END).encode("utf-16-le"), "it is UTF-16 text"),
    "two runs": (GOOD + END + GOOD + END, "two runs in one file?"),
    "two runs without times": ("s:0 tel:10.9\ns:8 tel:3.3\n" * 2, "two runs in one file?"),
    "two lengths": (GOOD + "step:8/9 val_loss:3.3\nstep:9/9 val_loss:3.2\n", "step 8 of 9 stands in a run of 8 steps"),
    "beyond its end": (GOOD + "step:9/8 val_loss:3.3\n", "step 9 of 8"),
    "a loss that is none": (GOOD + "step:8/8 val_loss:3.3.3 train_time:80ms\n", "the loss '3.3.3' is not a number"),
    "a loss below zero": (GOOD + "step:8/8 val_loss:-3.3 train_time:80ms\n", "cross entropy is above zero"),
    "a time that is none": (GOOD + "step:8/8 val_loss:3.3 train_time:x80ms\n", "the time 'x80' is not a number"),
    "a loss beyond all bounds": (GOOD + "step:8/8 val_loss:1e150 train_time:80ms\n", "the loss '1e150' is impossible"),
    "a time beyond all bounds": (GOOD + "step:8/8 val_loss:3.3 train_time:1e150ms\n", "the time '1e150' is impossible"),
    "a clock that runs backwards": (GOOD + "step:11/12 val_loss:3\n", "step 11 of 12"),
    "one endless line": (b"step:" + b"1" * (1 << 20), "it has no validation loss"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_whole_log_is_refused_in_one_line(
    kind: str, tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    content, why = REFUSED[kind]
    with pytest.raises(LogError) as error:
        read_log(write(tmp_path, content))
    assert why in str(error.value)
    assert "\n" not in str(error.value)
    kept_line(str(error.value))


def test_the_page_tells_every_reason() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "foreign-trainers.md").read_text()
    told = page.split("| the file |")[1].split("\n\n")[0]
    assert [
        why
        for _, why in REFUSED.values()
        if why not in told and "step 9 of 8" not in why and "11 of 12" not in why
    ] == []


def test_a_diverged_run_came_to_its_end(tmp_path: Path) -> None:
    for line in (
        "step:4/8 val_loss:nan train_time:50ms\n",
        "step:5/8 train_loss:inf train_time:50ms\n",
        "step:5/8 val_loss:21.9\n",
    ):
        reading, _ = read_log(write(tmp_path, GOOD.splitlines()[0] + "\n" + line))
        assert reading.exploded in (4, 5)


def test_a_clock_may_be_set_back_after_ten_untimed_steps_only() -> None:
    def problem(step: int) -> str | None:
        reading = Reading()
        reading.feed(b"step:%d/99 train_time:900ms\n" % (step - 1))
        reading.feed(b"step:%d/99 train_time:0ms\n" % step)
        return reading.problem

    assert problem(10) is None
    assert problem(11) is None
    assert "runs backwards" in (problem(50) or "")


def test_a_huge_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("w") as file:
        file.write(GOOD)
        for _ in range(200):
            file.write(
                "x" * 99 + "\n" + "y" * 100_000 + "\n"
            )  # 20 MB, most of it in lines too long for a log
        file.write(END)
    tracemalloc.start()
    reading, _ = read_log(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reading.final().val_loss == 3.3
    assert peak < 2_000_000


def read(tmp_path: Path, text: str | bytes) -> Reading:
    return read_log(write(tmp_path, text))[0]


@pytest.mark.parametrize("extra", [-2, -1, 0, 1, 2, LINE_LIMIT])
def test_the_end_of_a_line_longer_than_the_buffer_is_no_line_of_its_own(
    extra: int, tmp_path: Path
) -> None:
    """Whatever stands where such a line is cut: here what would be a measurement."""
    fake = "step:4/8 val_loss:9.9 train_time:41ms step_avg:10ms"
    long = "x" * (LINE_LIMIT + extra) + fake
    reading = read(tmp_path, f"{GOOD}{long}\n{END}")
    assert list(reading.losses["val"]) == [10.9, 5.0, 3.3]


@pytest.mark.parametrize(
    ("first", "loss", "explodes"),
    [
        (0, 21.8, False),  # twice the loss of step 0
        (0, 21.9, True),
        (4, 21.9, False),  # a log without step 0 has no bound but what is finite
        (4, 1e9, False),
        (4, math.inf, True),
        (4, math.nan, True),
    ],
)
def test_a_loss_explodes_against_that_of_step_0_alone(
    first: int, loss: float, explodes: bool, tmp_path: Path
) -> None:
    lines = [f"step:{first}/8 val_loss:10.9", f"step:6/8 val_loss:{loss}", "step:8/8 val_loss:3.3"]
    reading = read(tmp_path, "\n".join([*lines, ""]))
    assert reading.exploded == (6 if explodes else None)


def test_a_training_loss_may_be_any_finite_number(tmp_path: Path) -> None:
    reading = read(tmp_path, f"{GOOD}step:5/8 train_loss:50.0\n{END}")
    assert reading.exploded is None


@pytest.mark.parametrize(
    ("end", "whole"),
    [
        ("s:2 tel:5.0\n", True),
        ("s:2 tel:5.0\ns:2 trl:5.1\n", False),  # trained on, and not validated again
        ("s:2 trl:5.1\ns:2 tel:5.0\n", True),
    ],
)
def test_a_run_whose_last_step_was_only_trained_did_not_come_to_its_end(
    end: str, whole: bool, tmp_path: Path
) -> None:
    text = "s:0 tel:10.9\ns:0 trl:10.9\ns:1 trl:9.1\n" + end
    if whole:
        assert read(tmp_path, text).n_steps == 2
    else:
        with pytest.raises(LogError, match=r"without its final validation: .* step 2 of more"):
            read(tmp_path, text)


@pytest.mark.parametrize("kind", ["val", "train"])
def test_every_process_may_print_a_nan(kind: str, tmp_path: Path) -> None:
    """nan is like nan: two printings of one step are no two runs."""
    line = f"step:6/8 {kind}_loss:nan train_time:60ms\n"
    reading = read(tmp_path, GOOD + line * 8)
    assert (reading.exploded, len(reading.steps[kind])) == (6, 3 if kind == "val" else 1)
    with pytest.raises(LogError, match="two runs in one file"):
        read(tmp_path, GOOD + line + line.replace("nan", "5.0"))


def test_the_time_of_a_step_is_the_scripts_or_else_the_whole_times(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD + END).final().step_ms == 10.0
    assert read(tmp_path, GOOD + END.replace(" step_avg:10ms", "")).final().step_ms == 10.0
    slower = read(tmp_path, GOOD + END.replace("step_avg:10ms", "step_avg:12.5ms")).final()
    assert (slower.step_ms, slower.train_time_s) == (12.5, 0.08)


def test_what_is_kept_of_a_log_has_every_measurement_in_the_order_of_its_steps(
    tmp_path: Path,
) -> None:
    text = "step:2/8 train_loss:6.5 train_time:20ms step_avg:10ms\n"
    first, rest = GOOD.splitlines(keepends=True)
    rows = [json.loads(line) for line in read(tmp_path, first + text + rest + END).lines()]
    assert rows == [
        {"kind": "train", "step": 2, "train_loss": 6.5},
        {"kind": "val", "step": 0, "val_loss": 10.9, "train_time_s": 0.001},
        {"kind": "val", "step": 4, "val_loss": 5.0, "train_time_s": 0.04},
        {"kind": "val", "step": 8, "val_loss": 3.3, "train_time_s": 0.08},
    ]


def test_a_progress_bar_that_draws_over_its_line_hides_no_measurement() -> None:
    reading = Reading()
    point = reading.feed(b"  9%|#  |\r 10%|## |\rstep:4/8 val_loss:5.0 train_time:40ms\r\n")
    assert point is not None and (point.step, point.loss) == (4, 5.0)


def test_more_points_than_can_be_kept_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_module, "MAX_LOG_POINTS", 2)
    reading = Reading()
    for step in (0, 4):
        reading.feed(b"step:%d/8 val_loss:5.0\n" % step)
    assert reading.problem is None
    reading.feed(b"step:8/8 val_loss:5.0\n")
    assert reading.problem == "it has more than 2 points"
