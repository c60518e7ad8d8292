"""A chain of arms: each against its parent, learning apart from systems, and only what the runs bear out."""

import csv
import json
import math
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from harness.__main__ import main
from harness.foreign.history import table_rows
from harness.foreign.history_pages import printed_rows
from harness.foreign.history_rows import HistoryRun
from reports.analysis.chain import COMPILE_MINUTES, ChainRow, Gain, chain_rows
from reports.inputs.history import (
    HISTORY,
    HISTORY_KEYS,
    LINK_KEYS,
    PRINTED_KEYS,
    ArmFigures,
    Link,
    read_history,
)
from reports.inputs.noise import benchmark_noise
from tests.foreign_logs import year_2025
from tests.sealing import write_plan

NOISE = benchmark_noise()
TABLES = {"runs.csv": HISTORY_KEYS, "records.csv": LINK_KEYS, "printed.csv": PRINTED_KEYS}
CODE = ("import ", "def ", "self.", "val_loss:", "step:", "==", "torch.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arm(
    name: str, loss: float, *, steps: int = 2000, ms: float = 50.0, n: int = 10, gpus: int = 8
) -> ArmFigures:
    rng = np.random.default_rng(len(name) + steps)
    step_ms = ms * (1 + 0.001 * rng.normal(size=n))
    return ArmFigures(
        name=name,
        track="short",
        date="2026-02-01",
        steps=steps,
        losses=loss + 0.0012 * rng.normal(size=n),
        log_times=np.log(step_ms * steps / 1e3),
        log_step_ms=np.log(step_ms),
        gpu="NVIDIA H100",
        n_gpus=gpus,
        environment={"driver": "550", "cuda": "12.6", "torch": name},
    )  # fmt: skip


def judged(old: ArmFigures, new: ArmFigures, *, by_steps: bool = False) -> ChainRow:
    link = Link(
        track="short",
        record="2",
        date="",
        published=90.0,
        published_delta=-10.0,
        arm=new.name,
        parent=old.name,
        by_steps=by_steps,
    )
    (row,) = chain_rows([link], {old.name: old, new.name: new}, NOISE)
    return row


def test_a_gain_in_steps_is_learning_and_resolved() -> None:
    row = judged(arm("old", 3.278), arm("new", 3.278, steps=1600))
    assert row.verdict == "resolved"
    assert row.learning is not None
    assert row.systems is not None and row.settling is None
    assert row.why == "steps at equal loss: fewer; step time: not told apart"
    assert row.learning.value == pytest.approx(np.log(0.8), abs=0.01)
    assert row.systems.value == pytest.approx(0, abs=0.002)


def test_a_worse_loss_at_fewer_steps_is_turned_into_steps() -> None:
    """Fewer steps that cost all that they save in loss are no gain."""
    lost = NOISE.slope.nats_per_log_step * -np.log(0.9)
    row = judged(arm("old", 3.27, n=40), arm("new", 3.27 + lost, steps=1800, n=40))
    assert row.learning is not None
    assert row.learning.value == pytest.approx(0, abs=0.004)
    assert row.verdict == "unresolved"


def test_a_shorter_step_is_systems_and_within_the_noise_of_nodes_unresolved() -> None:
    old, new = arm("old", 3.278), arm("new", 3.278, ms=49.0)
    row = judged(old, new)
    assert row.verdict == "unresolved"
    assert row.systems is not None
    assert row.systems.low is not None
    assert row.systems.high is not None
    assert row.systems.value == pytest.approx(np.log(0.98), abs=0.002)
    assert row.systems.high - row.systems.low > 4 * NOISE.nodes.sd
    assert row.why == (
        "steps at equal loss: not told apart; step time: not told apart; the node is unknown"
    )
    assert row.settling is not None and row.total is not None
    sd = NOISE.era_of("short", "2026-02-01").sd / NOISE.slope.nats_per_log_step
    power = stats.norm.isf(0.025) + stats.norm.isf(0.2)
    n = math.ceil(2 * (power * sd / row.total.value) ** 2) + 1
    assert n > 3 and row.settling.runs == 2 * n
    of_both = np.exp(old.log_times).mean() + np.exp(new.log_times).mean()
    assert row.settling.gpu_hours == pytest.approx(8 * n * of_both / 3600)
    both_compile = 2 * COMPILE_MINUTES / 60
    assert row.settling.compiling == pytest.approx(8 * both_compile)
    assert row.settling.price == pytest.approx(2.5 * (row.settling.gpu_hours + 8 * both_compile))
    one_gpu = judged(arm("old", 3.278, gpus=1), arm("new", 3.278, ms=49.0, gpus=1)).settling
    assert one_gpu is not None
    assert one_gpu.gpu_hours == pytest.approx(row.settling.gpu_hours / 8)


def test_a_loss_that_is_not_told_from_zero_says_what_would_settle_it_too() -> None:
    row = judged(arm("old", 3.278), arm("new", 3.278, ms=51.0))
    assert row.verdict == "unresolved"
    assert row.settling is not None
    assert row.settling.runs == judged(arm("old", 3.278), arm("new", 3.278, ms=49.0)).settling.runs


def ends(gain: Gain | None) -> tuple[float, float]:
    assert gain is not None and gain.low is not None and gain.high is not None
    return gain.low, gain.high


def test_an_interval_of_steps_carries_the_losses_and_the_slope_and_one_of_time_the_steps_too() -> (
    None
):
    old, new = arm("old", 3.278), arm("new", 3.288, steps=1600, ms=49.0)
    row = judged(old, new)
    assert row.loss is not None and row.learning is not None
    slope = NOISE.slope.nats_per_log_step
    value = np.log(0.8) + row.loss.value / slope
    of_slope = 1.96 * NOISE.slope.se * abs(row.loss.value) / slope**2
    half = np.hypot(np.ptp(ends(row.loss)) / 2 / slope, of_slope)
    assert row.learning.value == pytest.approx(value)
    assert ends(row.learning) == pytest.approx((value - half, value + half))
    assert row.systems is not None and row.total is not None
    both = np.hypot(half, np.ptp(ends(row.systems)) / 2)
    value += row.systems.value
    assert ends(row.total) == pytest.approx((value - both, value + both))
    before, after = (np.exp(figures.log_times.mean()) for figures in (old, new))
    assert row.time_s is not None and row.time_s.value == pytest.approx(after - before)
    low, high = (1 + end / before for end in ends(row.time_s))
    assert low < after / before < high and low * high == pytest.approx((after / before) ** 2)


def test_what_got_slower_is_contradicted() -> None:
    row = judged(arm("old", 3.278), arm("new", 3.278, steps=2600, ms=70.0))
    assert row.verdict == "contradicted"
    assert row.why == "steps at equal loss: more; step time: longer"
    faster = judged(arm("old", 3.278), arm("new", 3.278, ms=20.0))
    assert faster.why == "steps at equal loss: not told apart; step time: shorter"


def test_other_hardware_a_missing_log_and_no_predecessor_are_not_comparable() -> None:
    old = arm("old", 3.278)
    row = judged(old, arm("new", 3.278, gpus=1, ms=400.0))
    assert (row.verdict, row.why) == ("not comparable", "other hardware: 1 GPUs against 8")
    for gpu in ("A100", "H200"):  # before and after the other's by its name
        row = judged(replace(old, gpu="H100"), replace(arm("new", 3.278), gpu=gpu))
        assert (row.verdict, row.why) == ("not comparable", f"other hardware: {gpu} against H100")
    link = Link(
        track="short", record="3", date="", published=None, published_delta=None, arm="", parent="old"
    )  # fmt: skip
    (missing,) = chain_rows([link], {"old": old}, NOISE)
    assert (missing.verdict, missing.why) == ("not comparable", "no log of the record")
    (first,) = chain_rows([replace(link, arm="old", parent="gone")], {"old": old}, NOISE)
    assert (first.verdict, first.why) == ("not comparable", "no log of its predecessor")
    other = replace(arm("new", 3.278, steps=1600), gpu="H200", n_gpus=1)
    unknown = replace(old, gpu="", n_gpus=0)  # is no other machine
    assert judged(unknown, other).verdict == "resolved"
    assert judged(other, unknown).verdict == "contradicted"
    row = judged(old, replace(other, gpu=old.gpu))
    assert row.why == "other hardware: 1 GPUs against 8"
    row = judged(other, replace(old, n_gpus=1))
    assert row.why == "other hardware: NVIDIA H100 against H200"
    assert judged(replace(other, gpu=old.gpu), old).why == "other hardware: 8 GPUs against 1"


def test_a_record_of_the_same_program_is_held_against_nothing() -> None:
    same = arm("old", 3.278)
    assert (judged(same, same).why, judged(same, same).loss) == ("the same program as before", None)


def test_what_logs_without_times_leave_open_has_no_price() -> None:
    arms = arm("old", 3.278, n=2), replace(arm("new", 3.278, n=2), steps=1999)
    with_times = judged(*arms, by_steps=True).settling
    assert with_times is not None and with_times.runs >= 6 and with_times.gpu_hours > 0
    for silent in ({0}, {1}, {0, 1}):
        logs = [
            replace(a, log_times=a.log_times[: 2 * (i not in silent)]) for i, a in enumerate(arms)
        ]
        settling = judged(*logs, by_steps=True).settling
        assert settling is not None and settling.runs == with_times.runs
        assert np.isnan([settling.gpu_hours, settling.compiling, settling.price]).all()


def test_one_run_resolves_nothing() -> None:
    row = judged(arm("old", 3.278), arm("new", 3.278, steps=1000, n=1))
    assert row.verdict == "unresolved"
    assert row.why == "too few runs for an interval (n = 1 in the smaller arm)"
    for gpus, counted in ((1, 1), (0, 8)):  # of a node, where no log says how many
        old, new = arm("old", 3.278, gpus=gpus), arm("new", 3.278, steps=1000, n=1, gpus=gpus)
        settling = judged(old, new).settling
        assert settling is not None and settling.runs == 2 * 3
        assert settling.gpu_hours == pytest.approx(3 * (100 + 50) * counted / 3600, rel=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-2.0, -1.0, "resolved"),
        (1.0, 2.0, "contradicted"),
        (-1.0, 1.0, "unresolved"),
        (-1.0, 0.0, "unresolved"),
        (0.0, 1.0, "unresolved"),
        (None, None, "unresolved"),
        (None, -1.0, "unresolved"),
        (1.0, None, "unresolved"),
    ],
)
def test_a_gain_is_told_where_its_interval_leaves_zero(
    low: float | None, high: float | None, verdict: str
) -> None:
    assert Gain(value=0.0, low=low, high=high).verdict == verdict


@pytest.mark.parametrize("silent", [0, 1])
def test_where_the_logs_of_one_arm_have_no_times_a_track_of_times_tells_its_loss_alone(
    silent: int,
) -> None:
    arms = [arm("old", 3.278), arm("new", 3.268)]
    arms[silent] = replace(arms[silent], log_times=np.array([]))
    row = judged(arms[0], arms[1])
    assert (row.verdict, row.why) == ("not comparable", "no times in the logs")
    assert row.loss is not None and row.loss.value == pytest.approx(-0.01, abs=0.002)
    assert row.time_s is row.total is row.settling is None


def test_a_run_that_diverged_is_not_passed_over() -> None:
    new = replace(arm("new", 3.278, steps=1600), n_diverged=2)
    row = judged(arm("old", 3.278), new)
    assert (row.verdict, row.why) == ("not comparable", "2 of 12 runs of new diverged")


def test_an_unknown_date_is_of_the_latest_era() -> None:
    eras = [NOISE.era_of("short", date).name for date in ("2024-07-01", "2026-02-01", "")]
    assert eras == ["2024", "January to May 2026", "since June 2026"]


def test_a_changed_environment_is_named() -> None:
    row = judged(arm("old", 3.278), arm("new", 3.278))
    assert row.environment == "torch new instead of old"


def test_a_track_of_steps_needs_no_times() -> None:
    row = judged(arm("old", 3.278), arm("new", 3.278, steps=1600, gpus=1), by_steps=True)
    assert (row.verdict, row.why) == ("resolved", "steps at equal loss: fewer")
    assert row.systems is None


def write_logs(folder: Path) -> None:
    for name, loss in (("a", 3.30), ("b", 3.29), ("c", 3.28)):
        (folder / name).mkdir(parents=True)
        for i in range(4):
            text = year_2025(loss + i / 1e3, seed=len(name) + i).replace(
                "import torch\n", f"import torch\nX = '{name}'\n"
            )
            (folder / name / f"{i}.txt").write_text(text)  # fmt: skip


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_arms_of_an_experiment_are_held_against_their_predecessors_or_named_parents(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_logs(folder / "logs")
    assert run("import", "logs", "--experiment", "x") == 0
    assert run("chain", "x", "-o", "chain.html") == 0
    page = Path("chain.html").read_text()
    assert "4 against 4" in page
    assert "http" not in page
    assert page.index('id="x-0"') < page.index('id="x-1"') < page.index('id="x-2"')
    assert parents_on(page) == ["none", "a", "b"]
    Path("parents.yaml").write_text("c: a\n")
    assert run("chain", "x", "--parents", "parents.yaml", "-o", "chain.html") == 0
    page = Path("chain.html").read_text()
    assert parents_on(page) == ["none", "a", "a"]
    plan = Path("results/experiments/x/experiment.json")
    assert json.loads(plan.read_text())["looks"] == 1  # both at the same runs
    Path("parents.yaml").write_text("c: d\n")
    capsys.readouterr()
    assert run("chain", "x", "--parents", "parents.yaml") == 2
    assert "'d' is none of the arms" in capsys.readouterr().err


def test_a_chain_of_runs_with_blocks_of_their_own_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_logs(folder / "logs")
    assert run("import", "logs", "--experiment", "x") == 0
    plan = Path("results/experiments/x/experiment.json")
    of_logs = json.loads(plan.read_text())
    of_logs.pop("imported")
    write_plan(plan, of_logs)
    capsys.readouterr()
    assert run("chain", "x") == 2
    assert capsys.readouterr().err == (
        "ablate: x: a chain is for imported logs, of which no block and no node is known; "
        "`ablate compare x` holds arms that ran here against their baseline\n"
    )
    assert not plan.with_name("chain.html").exists()
    assert json.loads(plan.read_text())["looks"] == 0


def test_the_name_of_an_experiment_makes_no_track_of_it(folder: Path) -> None:
    write_logs(folder / "logs")
    assert run("import", "logs", "--experiment", "optimization") == 0
    assert run("chain", "optimization", "-o", "chain.html") == 0
    page = Path("chain.html").read_text()
    assert row_of(page, 1, of="optimization")["time, s"] != ""


def parents_on(page: str) -> list[str]:
    """What each of the first three rows is held against."""
    return [row_of(page, i)["held against"].split()[-1] for i in range(3)]


def row_of(page: str, number: int, *, of: str = "x") -> dict[str, str]:
    """The cells of a row by their labels, without marks."""
    text = page.split(f'<tr id="{of}-{number}">')[1].split("</tr>")[0]
    cells = {}
    for cell in text.split("<td ")[1:]:
        label = cell.split('data-label="')[1].split('"')[0]
        cells[label] = re.sub(r"<[^>]*>", " ", cell.split(">", 1)[1]).strip()
    return cells


TABLE = """
| # | Record time | Description | Date | Log | Contributors |
1 | 45 minutes | [first](https://x.y) | 05/28/24 | [log](records/track_1_short/A/x.txt) | @a
2 | 31.4 minutes | second | 06/06/24 | [log](records/track_1_short/B) | @b
3 | 30 minutes | no log | 06/07/24 | none | @b
1 | 29.3 minutes | another track | 01/18/25 | [log](records/track_2_medium/C/y.txt) | @c
"""


def test_a_table_of_records_gives_its_figures() -> None:
    rows = [(row.record, row.published, row.date, row.log) for row in table_rows(TABLE, "short")]
    assert rows == [
        ("1", 2700.0, "2024-05-28", "records/track_1_short/A/x.txt"),
        ("2", 1884.0, "2024-06-06", "records/track_1_short/B"),
        ("3", 1800.0, "2024-06-07", None),
    ]
    (medium,) = table_rows(TABLE, "medium")
    assert (medium.record, medium.published) == ("1", 1758.0)


def checkout(root: Path) -> Path:
    write_logs(root / "records/track_1_short")
    for track in ("records/track_2_medium", "records/track_3_optimization/results"):
        write_logs(root / track)
    lines = []
    for i, (track, name) in enumerate(
        [("track_1_short", n) for n in "abc"] + [("track_2_medium", "a")]
    ):
        link = f"records/{track}/{name}/0.txt"
        lines.append(f"{i + 1} | {30 - i} minutes | words that stay out | 0{i + 1}/01/25 | [log]({link}) | @a")  # fmt: skip
    (root / "README.md").write_text("\n".join(lines) + "\n")
    (root / "records/track_3_optimization/README.md").write_text(
        "| 1 | 3600(!) | x | words that stay out | 2026/04/26 | [log](results/a/0.txt) |\n"
        "| 2 | 5625 | x | not a record | 2026/04/27 | [log](results/b/0.txt) |\n"
        "| 3 | 3500(!) | x | y | 2026/04/28 | [log](results/c/0.txt) |\n"
    )
    return root


def test_the_atlas_is_made_from_a_checkout_and_again_from_its_figures(folder: Path) -> None:
    root = checkout(folder / "public")
    assert run("atlas", str(root), "--data", "out", "-o", "out/history.html") == 0
    links, figures = read_history(Path("out"))
    assert [(k.record, k.arm, k.parent) for k in links["short"]] == [
        ("1", "a", ""),
        ("2", "b", "a"),
        ("3", "c", "b"),
    ]
    assert [k.record for k in links["optimization"]] == ["1", "3"]
    assert figures["short"]["a"].losses.tolist() == pytest.approx([3.3, 3.301, 3.302, 3.303])
    for path in Path("out").iterdir():
        assert "words that stay out" not in path.read_text()
    with open("out/runs.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 36
    page = Path("out/history.html").read_text()
    assert 'id="short-3"' in page
    shutil.rmtree(root)


def test_the_published_atlas_is_made_without_the_public_repository(folder: Path) -> None:
    assert run("atlas", "-o", "atlas.html") == 0
    page = Path("atlas.html").read_text()
    for record in (1, 34, 89):
        assert f'id="short-{record}"' in page
    assert 'id="medium-18"' in page
    assert 'id="optimization-46"' in page
    assert 'type="search"' in page
    assert "<link" not in page
    assert "src=" not in page


def test_no_file_of_the_atlas_holds_code_or_lines_of_logs() -> None:
    """Numbers, dates and names in one line each, in the columns that are declared."""
    name = re.compile(r"[\w./+ ():,-]{0,160}")
    for file, keys in TABLES.items():
        with (HISTORY / file).open(newline="", encoding="utf-8") as text:
            header, *rows = csv.reader(text)
        assert header == [*keys]
        cells = {cell for row in rows for cell in row}
        assert [cell for cell in cells if not name.fullmatch(cell)] == []
        assert not any(word in cell for cell in cells for word in CODE)
    # in our words, by our earlier reading, and as the table of records names them
    ours = {"subjects.csv", "before.csv", "contributors.csv"}
    assert {path.name for path in HISTORY.iterdir()} == {*TABLES, *ours}
    links, figures = read_history()
    assert {track: len(rows) for track, rows in links.items()}["short"] == 91
    assert sum(len(arms) for arms in figures.values()) > 200


def test_every_record_of_the_short_track_says_what_it_changed_in_a_short_phrase() -> None:
    links, _ = read_history()
    subjects = [link.subject for link in links["short"]]
    assert len(set(subjects)) == 91
    assert all(5 <= len(subject) <= 120 for subject in subjects)


def test_the_kept_pages_are_those_that_the_figures_make(folder: Path) -> None:
    assert run("atlas", "-o", "history.html") == 0
    kept = Path(__file__).parents[3] / "docs/findings/history"
    for name in ("history.html", "history.pairs.md"):
        assert Path(name).read_text() == (kept / name).read_text(), "python -m tests.findings"


def test_a_list_of_losses_is_of_the_arm_whose_logs_hold_it(tmp_path: Path) -> None:
    """Figures alone are kept; a list that no logs hold is of no arm."""
    (tmp_path / "2025-01-01_x").mkdir()
    (tmp_path / "2025-01-01_x/README.md").write_text(
        "ours: [3.2781, 3.2791, 3.2801]\nelsewhere: [3.2701, 3.2702]\n"
    )
    runs = []
    for name, losses in (("candidate", (3.2781, 3.2791, 3.2766)), ("baseline", (3.2801, 3.2811))):
        for loss in losses:
            runs.append(HistoryRun(track="short", arm=f"2025-01-01_x/{name}", val_loss=loss))
    elsewhere, ours = printed_rows(tmp_path, runs)
    assert (elsewhere.arm, elsewhere.n_in_logs) == ("", 0)
    assert (ours.arm, ours.n, ours.n_in_logs) == ("2025-01-01_x/candidate", 3, 2)
    assert ours.mean == pytest.approx(3.2791)
    assert set(asdict(ours)) == set(PRINTED_KEYS)
