"""The constants of noise from logs of our own making, whose noise, slope and nodes are known."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from reports.analysis.noise_fit import NoiseFit, fit_noise
from reports.inputs.history import HISTORY, HISTORY_KEYS
from reports.inputs.noise import NOISE, benchmark_noise
from reports.stats.moderated import fitted_prior
from tests.foreign_bench import ablate
from tests.foreign_logs import year_2025

SD, SLOPE, NODE = 0.002, 0.15, 0.03
FOLDERS = 12  # each a node, of the same program
RUNS = 5
STEPS = (400, 440)


def write_logs(root: Path) -> None:
    """One recipe at two lengths: the longer in every folder, the shorter in the first four."""
    rng = np.random.default_rng(7)
    for i in range(FOLDERS):
        node = float(rng.normal(0, NODE))
        folder = root / f"2025-03-{i + 1:02d}_node"
        for steps in STEPS if i < 4 else STEPS[1:]:
            (folder / str(steps)).mkdir(parents=True)
            mean = 3.28 - SLOPE * math.log(steps / STEPS[0])
            for run in range(RUNS):
                loss = mean + float(rng.normal(0, SD))
                log = year_2025(loss, steps=steps, ms=150 * math.exp(node), seed=run)
                (folder / str(steps) / f"{run}.txt").write_text(log)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("noise")
    write_logs(root / "logs")
    results = ["--results", str(root / "results")]
    assert ablate("import", str(root / "logs"), "--experiment", "own", *results) == 0
    return root


def test_the_noise_that_made_the_logs_is_found(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the file that is written is the one that is read."""
    results, out = ["--results", str(logs / "results")], logs / "noise.yaml"
    assert ablate("noise", "own", "-o", str(out), "--until", "2025-12-31", *results) == 0
    noise = benchmark_noise(out)
    (era,) = noise.eras
    n_arms = FOLDERS + 4
    assert (era.name, era.n_runs, era.df) == ("2025", n_arms * RUNS, n_arms * (RUNS - 1))
    assert era.sd == pytest.approx(SD, rel=0.3)
    assert era.prior_sd is not None and era.prior_df == 4
    assert 0.75 < era.prior_sd / era.sd < 0.95  # of 16 arms that are all alike
    assert noise.slope.n_pairs == 1
    assert noise.slope.nats_per_log_step == pytest.approx(SLOPE, abs=3 * noise.slope.se)
    assert 0 < noise.slope.se < SLOPE / 10
    assert noise.slope_later is None
    assert (noise.nodes.df, noise.nodes.n_programs) == (FOLDERS - 1 + 3, 2)
    assert noise.nodes.sd == pytest.approx(NODE, rel=0.5)
    assert "80 imported logs of own" in noise.source
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("sd of a loss, 2025"))
    assert line.split()[5:] == ["0.00152", f"{era.sd:.5f}", f"{era.df}", "df,", "80", "runs"]
    assert f"{era.prior_sd:.5f}  counts for 4 df" in printed
    shown = printed.splitlines()
    assert shown[0].split() == ["date", "shorter", "longer", "slope", "se", "used"]
    assert shown[1].split()[-1] == "yes" and shown[2] == ""  # the one pair, and no more


def test_a_slope_is_made_by_pairs_up_to_its_date_alone(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ["--results", str(logs / "results")]
    assert ablate("noise", "own", "--until", "2025-02-28", *results) == 2
    assert "no program ran at two lengths up to 2025-02-28" in capsys.readouterr().err


def test_the_published_constants_are_those_of_the_published_figures(tmp_path: Path) -> None:
    """What judges records is what the command makes of the figures beside it."""
    out = tmp_path / "noise.yaml"
    assert ablate("noise", "-o", str(out)) == 0
    made, kept = benchmark_noise(out), benchmark_noise()
    assert made.eras == kept.eras
    assert (made.slope, made.slope_later) == (kept.slope, kept.slope_later)
    assert (made.slope_by_era, made.nodes) == (kept.slope_by_era, kept.nodes)
    assert made.source == kept.source
    assert (made.of_records, made.slope_of_records) == (kept.of_records, kept.slope_of_records)
    of_that_day = out.read_text().replace(f"date: '{made.date}'\n", f"date: '{kept.date}'\n")
    assert of_that_day == NOISE.read_text()


@pytest.mark.parametrize(("df", "kept"), [(2.0, 2.0), (4.0, 4.0), (12.0, 4.0)])
def test_the_prior_that_made_the_groups_is_found(df: float, kept: float) -> None:
    """Its scale is not their pooled sd; with more df than count, it is what has the same middle."""
    rng = np.random.default_rng(3)
    true = 0.002**2 * df / rng.chisquare(df, 4000)
    seen = rng.integers(2, 12, 4000).astype(float)
    prior = fitted_prior(true * rng.chisquare(seen) / seen, seen)
    assert prior is not None and prior.df == pytest.approx(kept, rel=0.1)
    middle = special.digamma(kept / 2) - math.log(kept / 2)
    middle -= special.digamma(df / 2) - math.log(df / 2)
    assert prior.sd == pytest.approx(0.002 * math.exp(middle / 2), rel=0.05)
    assert fitted_prior(true[:2], seen[:2]) is None


def test_constants_of_other_figures_name_their_folder(tmp_path: Path) -> None:
    """They are written beside their place: a link that lies there is replaced, not followed."""
    theirs, out = tmp_path / "theirs.yaml", tmp_path / "noise.yaml"
    theirs.write_text("theirs")
    out.symlink_to(theirs)
    figures = tmp_path / "figures"
    shutil.copytree(HISTORY, figures)
    assert ablate("noise", "--data", str(figures), "-o", str(out)) == 0
    source = benchmark_noise(out).source
    assert source.endswith(f"runs of the tables of figures in {figures}")
    assert int(source.split()[0]) > 1000
    assert theirs.read_text() == "theirs"


def test_a_name_without_imported_logs_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("noise", "nobody", "--results", str(tmp_path)) == 2
    assert "nobody: no imported logs of this name" in capsys.readouterr().err


def test_a_damaged_or_changed_run_is_left_out_with_a_line(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    shutil.copytree(logs / "results", results)
    damaged, changed, *_ = sorted((results / "runs").iterdir())
    (damaged / "result.json").write_text("null")
    text = (changed / "result.json").read_text()
    (changed / "result.json").write_text(re.sub(r'("val_loss": ?)3', r"\g<1>2", text))
    assert ablate("noise", "own", "--results", str(results)) == 0
    said = capsys.readouterr()
    for run in (damaged, changed):
        assert f"run {run.name} is left out: " in said.err
    assert f"{(4 * 2 + 8) * RUNS - 2} runs" in said.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--data", "none"], "none"),
        (["--data", "old"], "its tables have no 'track'"),
        (["--until", "yesterday"], "'yesterday'"),
    ],
)
def test_tables_and_dates_that_are_none_are_refused_in_one_line(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    Path("old/runs.csv").write_text("val_loss\n3.28\n")
    assert ablate("noise", *arguments) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
    assert "fault of its own" not in said


def test_another_gpu_or_build_of_torch_is_no_node() -> None:
    for differs in ({"gpu": "NVIDIA H200"}, {"torch": "2.10.0+cu128"}, {"n_gpus": "1"}):
        rows = [figures("2025-03-01_a", val_loss=loss) for loss in ("3.280", "3.281")]
        rows += [{**figures("2025-03-02_b"), **differs}]
        rows += [figures("2025-03-01_a", steps="2200", val_loss="3.27")]
        with pytest.raises(ValueError, match="no program ran on several nodes"):
            fitted(rows)
        assert fitted([*rows, figures("2025-03-03_c")]).noise.nodes.df == 1


@pytest.mark.parametrize("lacking", ["program", "train_time_s"])
def test_a_run_without_its_program_or_its_time_tells_nothing_of_nodes(lacking: str) -> None:
    rows = [figures("2025-03-01_a", val_loss=loss) for loss in ("3.280", "3.281")]
    rows += [figures("2025-03-01_a", steps="2200", val_loss="3.27")]
    rows += [figures(arm, **{lacking: ""}) for arm in ("2025-03-02_b", "2025-03-03_c")]
    with pytest.raises(ValueError, match="no program ran on several nodes"):
        fitted(rows)


def two_lengths(*longer: str) -> list[dict[str, str]]:
    """Two runs at 2000 steps, and of other recipes one more of these at 2200 steps."""
    rows = []
    for arm in ("2025-03-01_a", *longer):
        name = {"recipe": arm, "program": arm}
        rows += [figures(arm, val_loss=loss, **name) for loss in ("3.280", "3.281")]
        rows += [figures(arm, **name, driver="two")]
        rows += [figures(arm, **name, steps="2200", val_loss="3.27")]
    return rows


def test_a_pair_of_the_last_date_makes_the_slope_and_one_behind_it_the_later_one() -> None:
    noise = fitted(two_lengths("2025-12-31_b", "2026-01-01_c", "2026-01-02_d")).noise
    assert noise.slope.n_pairs == 2
    assert noise.slope_later is not None and noise.slope_later.n_pairs == 2


def test_a_run_of_no_date_is_refused(kept_line: Callable[[str], None]) -> None:
    with pytest.raises(ValueError) as error:
        fitted([*two_lengths(), figures("a", date="")])
    kept_line(str(error.value))


def figures(arm: str, **differs: str) -> dict[str, str]:
    """A run as a row of figures."""
    row = dict.fromkeys(HISTORY_KEYS, "one")
    row |= {"arm": arm, "date": arm[:10], "steps": "2000", "val_loss": "3.28"}
    return {**row, "train_time_s": "90.0", **differs}


def fitted(rows: list[dict[str, str]]) -> NoiseFit:
    return fit_noise(rows, benchmark_noise(), slope_until="2025-12-31", date="", source="")
