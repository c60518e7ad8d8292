"""`ablate confirm` and the two parts of a retuned experiment, by the commands a user types."""

from pathlib import Path

import pytest
import yaml

from harness.__main__ import main
from harness.cli.confirm import confirmatory
from harness.corpora.index import prepare
from harness.errors import UserError
from harness.experiment.experiment import at_rates, load_experiment
from harness.experiment.plan import plan_runs
from harness.experiment.record import describe
from harness.run.read import read_json
from harness.runner.executor import Summary

MINI = """
name: mini
question: Does it go the whole way?
base: r07
scale: tiny
set: {model.n_layer: 2, data.seq_len: 64, data.micro_tokens: 512, data.batch_tokens: 512, data.ranks: 1, data.order: shuffled,
      data.val_tokens: 2048, data.val_every: 10, schedule.steps: 4, data.first_batch_twice: false, optim.muon_comm: redundant,
      system.checkpoint: none, timing.protocol: warmup-restore}
changes: {untied_head: r08.untied_head, post_embed_norm: r08.post_embed_norm}
seeds: 2
"""
RETUNED = MINI + "estimand: retuned\naxes: {optim.*_lr: [x0.5, x1, x2]}\n"


def ablate(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    return int(end.value.code or 0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_grid_and_the_measurement_share_no_seed_and_the_baseline_is_tuned_too(
    tmp_path: Path,
) -> None:
    (tmp_path / "mini.yaml").write_text(RETUNED)
    e = load_experiment(str(tmp_path / "mini.yaml"), device="cpu")
    assert e.grid is not None
    assert (e.name, e.grid.name) == ("mini", "mini.grid")
    assert (e.seeds, e.grid.seeds) == ((2000, 2001), (0, 1))
    assert len(e.grid.arms) == 3 * len(e.arms) == 9
    rates = {
        a.name: {"factor": f, "at_edge": False, "how": "quadratic"}
        for a, f in zip(e.arms, (0.7, 1.0, 1.4), strict=True)
    }
    tuned = at_rates(e, rates)
    for before, after, factor in zip(e.arms, tuned.arms, (0.7, 1.0, 1.4), strict=True):
        assert after.config.optim.muon_lr == pytest.approx(before.config.optim.muon_lr * factor)
        assert after.config.optim.adam_lr == pytest.approx(before.config.optim.adam_lr * factor)
    assert not {p.spec.intent_id for p in plan_runs(tuned)} & {
        p.spec.intent_id for p in plan_runs(e.grid)
    }


def test_confirming_a_retuned_experiment_tunes_again_on_seeds_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mini.yaml").write_text(RETUNED + "confirm: true\n")
    e = load_experiment(str(tmp_path / "mini.yaml"), device="cpu")
    assert e.grid is not None
    assert (e.seeds, e.grid.seeds) == ((3000, 3001), (1000, 1001))


def test_one_arm_of_a_chain_is_confirmed_by_a_file_that_can_be_planned(tmp_path: Path) -> None:
    explored = tmp_path / "mini.yaml"
    explored.write_text(
        MINI + "design: chain\nparents: {+post_embed_norm: baseline, +untied_head: baseline}\n"
    )
    prepare("stdlib")
    e = load_experiment(str(explored), device="cpu")
    plan = describe(e, plan_runs(e), before=None, command="ablate run")
    data = yaml.safe_load(explored.read_text())
    keys = confirmatory(data, {}, plan, ["+post_embed_norm"], seeds=3, margin=0.01)
    written = tmp_path / "mini_confirm.yaml"
    written.write_text(yaml.safe_dump(keys))
    planned = plan_runs(load_experiment(str(written), device="cpu"))
    assert {run.arm for run in planned} == {"baseline", "+post_embed_norm"}


def test_one_point_of_a_sweep_is_confirmed_by_its_values(tmp_path: Path) -> None:
    explored = tmp_path / "mini.yaml"
    explored.write_text(
        MINI + "axes: {optim.muon_lr: [x0.25, x4], optim.adam_lr: [x0.25, x4]}\ndraw: {sobol: 4}\n"
    )
    prepare("stdlib")
    e = load_experiment(str(explored), device="cpu")
    plan = describe(e, plan_runs(e), before=None, command="ablate run")
    data = yaml.safe_load(explored.read_text())
    for best in (e.arms[2], e.arms[-1]):  # of the baseline, and of a change
        keys = confirmatory(data, {}, plan, [best.name], seeds=3, margin=0.01)
        written = tmp_path / "mini_confirm.yaml"
        written.write_text(yaml.safe_dump(keys))
        base, arm = load_experiment(str(written), device="cpu").arms
        assert (base.config, arm.config) == (e.baseline.config, best.config)
        assert "@" not in arm.name
        said = (
            "Confirmed on fresh seeds, 1 of 12 arms of mini, whose runs there are no evidence here"
        )
        assert keys["question"].startswith(said)
    with pytest.raises(UserError, match="no arm of 'mini'; did you mean"):
        confirmatory(data, {}, plan, [best.name + "1"], seeds=3, margin=0.01)


@pytest.mark.slow
def test_confirm_writes_the_experiment_that_follows(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mini.yaml").write_text(MINI)
    assert ablate("confirm", "mini.yaml") == 2  # nothing has been explored
    assert ablate("run", "mini.yaml", "--no-report") == 0
    assert ablate("confirm", "mini.yaml", "--margin", "0.4") == 0
    written = place / "experiments" / "mini_confirm.yaml"
    data = yaml.safe_load(written.read_text())
    e, explored = (load_experiment(str(p), device="cpu") for p in (written, place / "mini.yaml"))
    assert (data["confirm"], data["margin"], data["name"]) == (True, 0.4, "mini_confirm")
    assert len(e.seeds) == data["seeds"] >= 2
    assert not set(e.seeds) & set(explored.seeds)
    assert [a.name for a in e.arms] == [a.name for a in explored.arms]
    assert "seeds detect 0.4 of loss" in written.read_text()
    assert ablate("confirm", "mini.yaml", "--margin", "0.4") == 0  # the same again is no change
    assert ablate("confirm", "mini.yaml", "--margin", "0.3") == 2  # the file says something else
    assert (
        ablate("confirm", "mini.yaml", "--margin", "0.4", "--arm", "untied_head", "-o", "one.yaml")
        == 0
    )
    assert [a.name for a in load_experiment("one.yaml", device="cpu").arms] == [
        "baseline",
        "untied_head",
    ]
    assert load_experiment("one.yaml", device="cpu").name == "mini_confirm"
    assert ablate("run", "one.yaml", "--no-report") == 0
    again = ("confirm", "mini.yaml", "--margin", "0.4", "--arm", "untied_head", "-o", "two.yaml")
    assert ablate(*again) == 0  # asked again before: by an experiment of the usual name
    assert load_experiment("two.yaml", device="cpu").name == "two"
    capsys.readouterr()
    for wrong, words in (
        (["--arm", "untied"], "no arm of 'mini'"),
        (["--set", "schedule.steps=5"], "run with other settings"),
        (["--detect", "-1"], "give a positive difference"),
        (["--margin", "1e-9"], "1000 seeds do not detect"),
    ):
        assert (
            ablate(
                "confirm",
                "mini.yaml",
                "-o",
                "x.yaml",
                *(wrong if "--margin" in wrong else ["--margin", "0.4", *wrong]),
            )
            == 2
        )
        assert words in capsys.readouterr().err
    assert ablate("confirm", str(written)) == 2
    assert "confirms already" in capsys.readouterr().err


@pytest.mark.slow
def test_a_retuned_experiment_runs_its_grid_and_then_its_arms(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mini.yaml").write_text(RETUNED)
    assert ablate("plan", "mini.yaml") == 0
    assert (
        "when it is complete, then every arm at its best optim.*_lr on fresh seeds"
        in capsys.readouterr().out
    )
    assert ablate("run", "mini.yaml") == 0
    plan = read_json(place / "results" / "experiments" / "mini" / "experiment.json")
    assert plan["estimand"] == "retuned"
    assert {r["seed"] for r in plan["runs"]} == {2000, 2001}
    assert set(plan["rates"]) == {"baseline", "untied_head", "post_embed_norm"}
    page = (place / "results" / "experiments" / "mini" / "report.html").read_text()
    assert "Rates chosen" in page
    assert "Does the sign hold?" in page
    assert ablate("verify", "results/experiments/mini/report.html") == 0
    capsys.readouterr()
    assert ablate("run", "mini.yaml") == 0  # nothing is missing
    assert "to do" not in capsys.readouterr().out


def test_a_point_on_an_axis_of_what_set_gives_is_confirmed_by_factors(tmp_path: Path) -> None:
    explored = tmp_path / "mini.yaml"
    fixed = MINI.replace("schedule.steps: 4", "schedule.steps: 4, optim.muon_lr: 0.03")
    fixed = fixed.replace(
        "changes: {untied_head: r08.untied_head, post_embed_norm: r08.post_embed_norm}", ""
    )
    axes = "axes: {optim.muon_lr: [x0.3, x1.32], optim.adam_lr: [0.004, 0.007], model.n_layer: [1, 2]}\n"
    explored.write_text(fixed + axes)
    prepare("stdlib")
    e = load_experiment(str(explored), device="cpu")
    plan = describe(e, plan_runs(e), before=None, command="ablate run")
    data = yaml.safe_load(explored.read_text())
    for best in e.arms[1:]:
        keys = confirmatory(data, {}, plan, [best.name], seeds=3, margin=0.01)
        written = tmp_path / "mini_confirm.yaml"
        written.write_text(yaml.safe_dump(keys))
        base, arm = load_experiment(str(written), device="cpu").arms
        assert (base.config, arm.config) == (e.baseline.config, best.config)


def test_a_confirming_experiment_goes_on_with_its_own_seeds_and_begins_with_nobody_elses(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare("stdlib")
    monkeypatch.setattr("harness.cli.run.complete", lambda *_: Summary())  # trains nothing
    monkeypatch.setattr("harness.cli.run.margin_note", lambda e: f"margin {e.margin}: as it is")
    asked = MINI.replace("seeds: 2", "seeds: [1007]")
    for name, confirms, code in (
        ("first", True, 1),  # what it asks for is missing
        ("first", True, 1),  # once more, with results by then
        ("other", True, 2),
        ("other", False, 1),
    ):
        keys = "confirm: true\nmargin: 0.4\n" if confirms else ""
        (place / "mini.yaml").write_text(asked.replace("name: mini", f"name: {name}") + keys)
        assert ablate("run", "mini.yaml", "--no-report") == code
        said = capsys.readouterr()
        assert (f"margin {0.4 if confirms else None}: as it is" in said.out) == (code == 1)
        assert code == 1 or "seeds 1007 have results already (in first)" in said.err
        for run in read_json(place / "results/experiments/first/experiment.json")["runs"]:
            result = place / "results/runs" / run["run_id"] / "result.json"
            result.parent.mkdir(exist_ok=True)
            result.touch()
