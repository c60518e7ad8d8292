"""The catalogue: every experiment of experiments/ plans at full size and at tiny, and says truly what was published and what it
costs."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.config.presets import load_preset, names
from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.file import experiment_names, experiment_path, in_folder
from harness.experiment.plan import plan_runs
from harness.run.read import read_json
from reports.analysis.published import published_verdict
from reports.inputs.published import published_record

DELTAS, CLAIMS = in_folder("deltas"), in_folder("claims")
PARTS = ["r08_split", "r08_split_retuned", "r09_ladder", "r18_leave_one_out"]
CATALOGUE = [*DELTAS, *CLAIMS, *PARTS]
LEAST = [
    "schedule.steps=2",
    "data.val_tokens=4096",
    "seeds=1",
]  # of a run that still goes through every part


def head(name: str) -> str:
    """The comment that opens a file, its lines joined."""
    lines = experiment_path(name).read_text(encoding="utf-8").split("name:")[0].splitlines()
    return " ".join(line.removeprefix("# ") for line in lines)


@cache
def load(name: str, device: str = "cuda", scale: str = "gpt2") -> Experiment:
    return load_experiment(name, device=device, overrides={"scale": scale})


def parts(e: Experiment) -> list[Experiment]:
    return [e.grid, e] if e.grid else [e]


def test_every_record_that_changes_something_has_its_delta() -> None:
    """But the first ones and record 86, whose times nobody logged, record 21, whose batch is the
    scale's, and record 84, whose own change is one of rounding that is not built."""
    changing = [r for r in names("records") if r >= "r04" and load_preset(r).changes]
    changing = [r for r in changing if r not in ("r21", "r84", "r86")]
    assert [f"deltas/{record}" for record in changing] == DELTAS
    assert set(CATALOGUE) <= set(experiment_names())


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_file_opens_with_what_is_known_and_resolves_at_both_scales(name: str) -> None:
    full = load(name)
    tiny = load(name, "cpu", "tiny")
    assert full.scale == "gpt2"
    assert full.baseline.config.data.corpus == "fineweb10B"
    assert tiny.baseline.config.data.corpus == "stdlib"
    assert tiny.target is None  # a loss of FineWeb's is no target on another text
    assert full.question.endswith("?")
    assert re.match(r"(Published|Claimed|Not mentioned|Record 18)", head(name))
    assert re.search("[Pp]ublished", head(name))
    assert re.search("[Mm]argin", head(name))
    assert full.margin is not None
    assert len({a.name for a in full.arms}) == len(full.arms)


def test_names_are_file_names_and_no_two_alike() -> None:
    found = [load(name).name for name in CATALOGUE]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_cost_at_full_size_is_the_published_step_times(name: str) -> None:
    e = load(name)
    runs = [len(p.arms) * len(p.seeds) * max(1, len(p.budgets)) for p in parts(e)]
    stated = re.search(
        r"Full size: (\d+) runs(?: of the grid and (\d+) at the rates chosen)?, about ([\d.]+) H100 hours",
        head(name),
    )
    assert stated, head(name)
    assert [int(n) for n in stated.groups()[:2] if n] == runs
    record = published_record("r04" if e.base == "r03pre" else e.base)
    steps = sum(
        (b or a.config.schedule.steps) * len(p.seeds)
        for p in parts(e)
        for a in p.arms
        for b in p.budgets or (None,)
    )
    hours = 8 * steps * record.time_s / record.steps / 3600
    assert float(stated[3]) == pytest.approx(hours, rel=0.06)


@pytest.mark.parametrize("name", [n for n in DELTAS if n != "deltas/r04"])
def test_a_delta_states_the_published_one_and_half_of_it_as_margin(name: str) -> None:
    e = load(name)
    assert e.published is not None
    verdict = published_verdict(e.published, e.base, "all", ours=None)
    stated = re.search(r"Published: (-?[\d.]+) s \+- (\d+) s", head(name))
    assert stated
    assert float(stated[1]) == pytest.approx(verdict.published_s, abs=0.051)
    assert float(stated[2]) == pytest.approx(verdict.published_s_error, rel=0.2, abs=0.6)
    assert e.margin == pytest.approx(abs(verdict.published_s) / 2, abs=0.1)
    assert e.margin > 0


def test_a_folder_stands_for_its_experiments_and_a_near_miss_is_suggested(
    kept_line: Callable[[str], None],
) -> None:
    assert in_folder("quickstart") == ["quickstart"]
    with pytest.raises(UserError, match="did you mean 'claims/softcap'") as refused:
        experiment_path("claims/sofcap")
    kept_line(str(refused.value))


@pytest.mark.parametrize(
    "text",
    [
        "records/r08",
        "../experiments/quickstart",
        "claims/../quickstart",
        "./quickstart",
        "deltas//r08",
    ],
)
def test_a_name_is_one_of_the_list_and_no_other_way_to_its_file(
    text: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=f"unknown experiment '{re.escape(text)}'") as refused:
        experiment_path(text)
    kept_line(str(refused.value))


def test_what_a_machine_lacks_is_left_out_by_name() -> None:
    e = load("claims/cudnn", "cpu", "tiny")
    assert [a.name for a in e.arms] == ["baseline", "math"]
    assert [note.split(":")[0] for note in e.left_out] == ["cudnn", "flash"]
    assert len(load("claims/cudnn").arms) == 4


@pytest.mark.slow
@pytest.mark.long
def test_the_whole_catalogue_is_one_table_and_what_bytes_cannot_train_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(
            ["plan", "deltas", "claims", *PARTS, "--set", "scale=tiny", "--results", str(tmp_path)]
        )
    assert end.value.code == 2
    said = capsys.readouterr()
    planned = [name for name in CATALOGUE if name != "claims/prefix_loss"]
    for name in planned:
        assert load(name, "cpu", "tiny").name in said.out
    assert f"{len(planned)} experiments" in said.out
    (line,) = said.err.splitlines()
    assert "1 experiment cannot be planned so: " in line
    assert "prefix_loss.yaml: loss.prefix_weight needs tokens of several bytes" in line


def test_a_run_that_two_experiments_share_is_planned_once() -> None:
    ladder, deltas = (load(n, "cpu", "tiny") for n in ("r09_ladder", "deltas/r09"))
    ids = [{p.spec.run_id for p in plan_runs(e, need_data=False)} for e in (ladder, deltas)]
    alike = {a.name for a in deltas.arms} & {"baseline", "value_residual", "embed_shortcut"}
    assert len(ids[0]) == len(plan_runs(ladder, need_data=False))
    assert len(ids[0] & ids[1]) >= 5 * 2, alike  # the baseline and the first rung, at five seeds


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["deltas/r06", "claims/softcap", "r18_leave_one_out"])
def test_a_file_runs_at_tiny_on_a_cpu(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        main(
            [
                "run",
                name,
                *(a for s in ["scale=tiny", *LEAST] for a in ("--set", s)),
                "--results",
                str(tmp_path),
                "--no-report",
            ]
        )
    assert end.value.code in (0, None)
    plan = read_json(tmp_path / "experiments" / load(name, "cpu", "tiny").name / "experiment.json")
    for run in plan["runs"]:
        assert (tmp_path / "runs" / run["run_id"] / "result.json").is_file()


def test_the_quickstart_and_its_rates_share_runs_and_record_8_keeps_its_parts() -> None:
    ids = {}
    for name in ("quickstart", "quickstart_rates", "r08_ladder", "r08_ladder_rates"):
        ids[name] = {p.spec.run_id for p in plan_runs(load(name, "cpu", "tiny"), need_data=False)}
    assert len(ids["quickstart"]) == 32
    assert len(ids["quickstart"] & ids["quickstart_rates"]) == 6, "baseline and AdamW, 3 seeds"
    assert len(ids["r08_ladder"]) == 50
    assert len(ids["r08_ladder"] & ids["r08_ladder_rates"]) == 15
