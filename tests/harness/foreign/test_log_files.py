"""Log files as they are found: cut, packed, copied, coloured, several runs in one; each counted once and truly."""

import gzip
import lzma
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.foreign import log_code, log_text
from harness.foreign.log_arms import LogPlace
from harness.foreign.log_files import FoundFile, files_under
from harness.foreign.log_lines import LogError
from harness.foreign.log_runs import read_logs, runs_of
from harness.run.code import CODE_LIMIT
from tests.foreign_logs import LINE, first_records, late_2024, read_log, year_2025

GOOD = "step:0/8 val_loss:10.9000 train_time:1ms step_avg:nanms\nstep:4/8 val_loss:5.0000 train_time:40ms step_avg:10ms\n"
END = "step:8/8 val_loss:3.2775 train_time:80ms step_avg:10ms"


def write(folder: Path, content: str | bytes, name: str = "log.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---------------------------------------------------------------- cut


@pytest.mark.parametrize(
    "kept",
    [
        "step:8/8 val_loss:3.2",  # really 3.2775
        "step:8/8 val_loss:3.2775",  # its time is gone
        "step:8/8 val_loss:3.2775 train_time:8",
        "step:8/8 val_loss:3.2775 train_time:80",
        "step:8/8 val_loss:3.2775 train_time:80m",
        "step:8/8 val_loss:3.2775 train_time:80ms step_avg:1",
    ],
)
def test_a_log_cut_inside_its_last_number_is_refused(kept: str, tmp_path: Path) -> None:
    assert END.startswith(kept)
    with pytest.raises(LogError, match="cut"):
        read_log(write(tmp_path, GOOD + kept))


def test_an_old_log_cut_inside_its_last_loss_is_refused(tmp_path: Path) -> None:
    whole = first_records(3.2775).rstrip("\n")
    assert whole.endswith("tel:3.2775")
    assert read_log(write(tmp_path, whole))[0].final().val_loss == 3.2775
    with pytest.raises(LogError, match="cut"):
        read_log(write(tmp_path, whole[:-2]))


@pytest.mark.parametrize(
    ("time", "words"),
    [("80", "has no unit"), ("", "has no unit"), ("80m", "has a unit that is not understood")],
)
def test_a_time_without_its_unit_is_no_missing_time(time: str, words: str, tmp_path: Path) -> None:
    line = f"step:8/8 val_loss:3.2775 train_time:{time}\n"
    with pytest.raises(LogError, match=words):
        read_log(write(tmp_path, GOOD + line))


def test_a_whole_last_line_needs_no_line_end(tmp_path: Path) -> None:
    final = read_log(write(tmp_path, GOOD + END))[0].final()
    assert (final.val_loss, final.train_time_s) == (3.2775, 0.08)


def test_seconds_are_read_as_seconds(tmp_path: Path) -> None:
    text = "step:0/8 val_loss:10.9 train_time:0.000s\nstep:8/8 val_loss:3.3 train_time:1134.603s step_avg:357.36ms\n"
    assert read_log(write(tmp_path, text))[0].final().train_time_s == pytest.approx(1134.603)


# ---------------------------------------------------------------- several runs


@pytest.mark.parametrize("log", [late_2024, year_2025, first_records])
def test_two_whole_logs_in_one_file_are_two_runs(log, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    first, second = log(3.2777), log(3.2812)
    runs = read_logs(write(tmp_path, first + second))
    assert [run.reading.final().val_loss for run in runs] == [3.2777, 3.2812]
    alone = [read_log(write(tmp_path, text)) for text in (first, second)]
    assert [(run.reading.digest(), run.code) for run in runs] == [
        (reading.digest(), code) for reading, code in alone
    ]
    assert [run.reading.facts.gpus for run in runs] == [reading.facts.gpus for reading, _ in alone]


@pytest.mark.parametrize(("steps", "losses"), [(0, [3.28]), (1, [3.27, 3.28])])
def test_a_log_before_another_is_a_run_from_its_first_step_on(
    steps: int, losses: list[float]
) -> None:
    """One that ends with its validation at step 0 came to no end."""
    before = f"Running PyTorch 2.6\ns:0 tel:{10.9 if steps else 3.27}\n"
    before += f"s:{steps} tel:3.27\n" if steps else ""
    lines = f"{before}{year_2025(3.28)}".encode().splitlines(keepends=True)
    assert [run.reading.final().val_loss for run in runs_of(lines)] == losses


def test_two_runs_of_one_script_share_its_head(tmp_path: Path) -> None:
    text = year_2025(3.2777)
    points = "".join(line + "\n" for line in text.splitlines() if line.startswith("step:"))
    again = points[points.rindex("step:0/250") :].replace("val_loss:3.2777", "val_loss:3.2801")
    runs = read_logs(write(tmp_path, text + again))
    assert [run.reading.final().val_loss for run in runs] == [3.2777, 3.2801]
    assert runs[0].program == runs[1].program is not None
    assert runs[1].reading.facts.versions == runs[0].reading.facts.versions != {}


def test_a_whole_log_in_the_text_of_a_script_is_no_run(tmp_path: Path) -> None:
    sample = "step:0/250 val_loss:9.0 train_time:0ms\nstep:250/250 val_loss:0.1 train_time:9ms\n"
    head = f'import os\n"""\n{LINE}\nRunning PyTorch 2.6\n{LINE}\n{sample}{LINE}\n"""\n'
    runs = read_logs(write(tmp_path, head + year_2025(3.2777)))
    assert [run.reading.final().val_loss for run in runs] == [3.2777]


def test_what_follows_a_whole_run_must_be_whole_too(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="its run 2 of several: it ends without its final"):
        read_logs(write(tmp_path, GOOD + END + "\n" + GOOD))


# ---------------------------------------------------------------- as they come


def test_prefixes_of_ranks_and_colours_are_passed_over(tmp_path: Path) -> None:
    plain, _ = read_log(write(tmp_path, GOOD + END + "\n"))
    lines = []
    for line in (GOOD + END).splitlines():
        lines.append(f"[rank0]:{line}")
        lines.append(f"[rank1]:{line.replace('val_loss:', 'val_loss:9')}")
    ranks, _ = read_log(write(tmp_path, "\n".join(lines) + "\n"))
    coloured = "\n".join(f"\x1b[1;32m{line}\x1b[0m" for line in (GOOD + END).splitlines())
    colours, _ = read_log(write(tmp_path, coloured + "\n"))
    assert plain.digest() == ranks.digest() == colours.digest()


@pytest.mark.parametrize("name", ["log.txt.gz", "log.txt.xz", "bom.txt"])
def test_packed_logs_and_copies_with_a_mark_are_the_same_log(name: str, tmp_path: Path) -> None:
    text = late_2024(3.2777).encode()
    packed = {
        "log.txt.gz": gzip.compress(text),
        "log.txt.xz": lzma.compress(text),
        "bom.txt": b"\xef\xbb\xbf" + text,
    }[name]
    plain, code = read_log(write(tmp_path, text))
    other, code_of_other = read_log(write(tmp_path, packed, name))
    assert (other.digest(), code_of_other) == (plain.digest(), code)


def test_a_mark_before_the_first_measurement_hides_nothing(tmp_path: Path) -> None:
    reading, _ = read_log(write(tmp_path, b"\xef\xbb\xbf" + (GOOD + END + "\n").encode()))
    assert list(reading.steps["val"]) == [0, 4, 8]


def test_an_archive_of_more_than_so_many_bytes_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{GOOD}{END}\n"
    path = write(tmp_path, gzip.compress(text.encode()), "log.txt.gz")
    monkeypatch.setattr(log_text, "MOST_UNPACKED", len(text))
    assert read_log(path)[0].final().val_loss == 3.2775
    monkeypatch.setattr(log_text, "MOST_UNPACKED", len(text) - 1)
    with pytest.raises(LogError) as refused:
        read_log(path)
    assert str(refused.value) == "it is compressed, and holds more than 256 MiB: unpack it first"


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(late_2024(3.2777).encode())
    for content in (packed[:-200], packed[:100] + b"x" * 50 + packed[150:]):
        with pytest.raises(LogError, match="it is compressed, and damaged"):
            read_log(write(tmp_path, content, "log.gz"))


BODY = year_2025(3.2777).partition(LINE + "\nRunning")[2]


def test_comments_and_docstrings_move_no_program(tmp_path: Path) -> None:
    def program(text: str) -> str | None:
        return read_logs(write(tmp_path, text))[0].program

    code = 'import os\n\ndef f(x: int) -> int:\n    """What it does."""\n    return x + 1\n'
    body = f"{LINE}\nRunning{BODY}"
    same = "# another comment\nimport os\n\n\ndef f(x):\n    return x + 1  # one more\n"
    other = code.replace("x + 1", "x + 2")
    assert program(code + body) == program(same + body) is not None
    assert program(code + body) != program(other + body)


def test_whole_numbers_move_no_recipe_and_of_a_text_too_long_each_letter_counts(
    tmp_path: Path,
) -> None:
    def recipe(text: str) -> str | None:
        return read_logs(write(tmp_path, f"{text}{LINE}\nRunning{BODY}"))[0].recipe

    code = "import os\nsteps, lr = 250, 0.02\n"
    longer, other = code.replace("250", "500"), code.replace("0.02", "0.03")
    assert recipe(code) == recipe(longer) is not None
    assert recipe(code) != recipe(other)
    n_lines, rest = divmod(CODE_LIMIT - len(code), 1024)
    full = code + f"{'#' * 1023}\n" * n_lines + f"{'#' * (rest - 1)}\n"
    assert recipe(code) == recipe(full) != recipe(f"#{full}")


def test_a_whole_log_without_a_head_is_a_run_unless_a_line_of_bars_follows_it() -> None:
    """It stands in the head of what comes then: a sample."""
    sample = f"{GOOD}{END}\n"
    own = sample.replace("3.2775", "3.4")
    for between, losses in (("", [3.2775, 3.4]), ("=" * 100 + "\n", [3.4])):
        lines = f"{sample}{between}{own}".encode().splitlines(keepends=True)
        assert [run.reading.final().val_loss for run in runs_of(lines)] == losses


def test_what_stands_in_a_text_of_a_head_is_no_run_and_a_text_may_end_in_its_line() -> None:
    sample, bars = f"{GOOD}{END}\n", f"{LINE}\n"
    own = sample.replace("3.2775", "3.4")
    one_line = f'import os\nx = """a"""\n{bars}'
    opened = 'import os\nx = """a""" + """b\n'
    for text, losses in (
        (f"{one_line}{sample}{one_line}{own}", [3.2775, 3.4]),
        (f'{opened}{sample}"""\n{bars}{own}', [3.4]),
    ):
        lines = text.encode().splitlines(keepends=True)
        assert [run.reading.final().val_loss for run in runs_of(lines)] == losses


def test_code_behind_a_whole_run_is_no_run() -> None:
    text = f"{late_2024(3.28)}import os\n"
    assert [run.reading.final().val_loss for run in runs_of(text.encode().splitlines(True))] == [
        3.28
    ]


def test_a_script_is_looked_for_in_so_many_lines_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, late_2024(3.28))
    found = log_code.program_in(path)
    assert found is not None and found.script.startswith(b"import os\nimport sys\n")
    head, _, _ = path.read_text().partition(f"\n{LINE}\nRunning")
    before = head.count("\n") + 2  # with the line of bars that ends it
    monkeypatch.setattr(log_code, "MOST_LINES", before - 1)
    assert log_code.program_in(path) == found
    monkeypatch.setattr(log_code, "MOST_LINES", before - 2)
    assert log_code.program_in(path) is None


def test_a_script_may_hold_three_lines_of_bars_itself(tmp_path: Path) -> None:
    for n in (1, 3, 4):
        script = f"import os\nBARS = '''\n{(LINE + chr(10)) * n}'''\n"
        found = log_code.program_in(write(tmp_path, f"{script}{LINE}\nRunning Python 3.12\n"))
        assert (found is None) == (n > 3)
        assert found is None or found.script.decode() == script


# ---------------------------------------------------------------- where logs are found


def test_what_may_be_a_log_is_found_in_the_order_of_names_with_its_place(tmp_path: Path) -> None:
    root = tmp_path / "records"
    logs = ("z.txt", "b/old/2.log", "b/old/1.log", "a/x.txt.gz", "seed1/x", "b/y.JSON")
    others = ("a.py", "b/LICENSE", ".hidden", "b/.git/x.txt", "__pycache__/x.txt", "b/y.json")
    for name in (*logs, *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    found = [*files_under([root / "b" / "old" / "2.log", root / "a.py", root])]
    assert [file.path.relative_to(root).as_posix() for file in found] == [
        *("b/old/2.log", "a.py"),  # which are named
        *("z.txt", "a/x.txt.gz", "b/y.JSON", "b/old/1.log", "b/old/2.log", "seed1/x"),
    ]
    assert [file.place for file in found] == [
        LogPlace(folder="old", name="2"),
        LogPlace(folder="records", name="a"),
        LogPlace(folder="records", name="z"),
        LogPlace(folder="a", name="x.txt"),
        LogPlace(folder="b", name="y"),
        LogPlace(folder="b", inner=("old",), name="1"),
        LogPlace(folder="b", inner=("old",), name="2"),
        LogPlace(folder="records", inner=("seed1",), name="x"),  # says nothing of a program
    ]
    with pytest.raises(UserError) as refused:
        [*files_under([root / "gone"])]
    said = f"{root / 'gone'}: no such file or folder: name a log, or a folder of logs"
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("name", "is_trace"),
    [("Trace_1.json.gz", True), ("trace.txt", False), ("run.json", False), ("a.trace.json", True)],
)
def test_a_profilers_trace_is_known_by_its_name(name: str, is_trace: bool) -> None:
    assert FoundFile(path=Path(name), place=LogPlace(folder="x")).is_trace == is_trace
