"""The statistics as a user calls them: compare, significance, plan; stopping through `ablate run`."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

from harness.cli.compare import RULE_KEYS
from reports.inputs.load import load
from reports.page.write import write_report
from reports.paper import figures as paper_figures
from tests.report_fixtures import Arm, write_experiment
from tests.sealing import seal_again

ON = (("model.untied_head", True),)
ARMS = (
    Arm(name="base"),
    Arm(name="good", loss_effect=-0.05, step_factor=0.8, fields=ON),
    Arm(name="bad", loss_effect=0.05, step_factor=1.2, fields=(("model.embed_norm", True),)),
)


def recorded(**how: Any) -> Path:
    """An experiment of imported runs in results/ of the working directory: no source of ours makes those stale."""
    root = write_experiment(Path("results"), **{"arms": ARMS, "sd": 0.001, **how})
    path = root / "experiments" / "split" / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "imported": True}))
    return root


# ---- compare


def test_compare_tells_a_script_all_it_needs(ablate: Any) -> None:
    recorded(n_seeds=4)
    said = ablate("compare", "split", "--json").json
    assert said["schema"] == 1 and (said["experiment"], said["baseline"], said["primary"]) == (
        "split",
        "base",
        "val_loss",
    )
    wanted = {
        "arm",
        "estimand",
        "delta",
        "interval",
        "p",
        "n",
        "looks",
        "verdict",
        "next_action",
        "next_cost",
    }
    assert all(wanted <= set(r) for r in said["comparisons"])
    good = next(r for r in said["comparisons"] if (r["arm"], r["metric"]) == ("good", "val_loss"))
    assert (
        good["interval"] == [good["low"], good["high"]]
        and good["interval"][0] < good["delta"] < good["interval"][1]
    )
    assert good["verdict"] == "better" and good["estimand"] == "at-rate" and good["n"] == 4
    assert good["next_cost"] == {"runs": 0, "hours": 0.0}


@pytest.mark.parametrize("n_seeds", [3, 5])
def test_an_undecided_arm_says_what_the_next_step_costs(ablate: Any, n_seeds: int) -> None:
    root = recorded(arms=(ARMS[0], Arm(name="same", fields=ON)), n_seeds=n_seeds, sd=0.006)
    same = next(
        r
        for r in ablate("compare", "split", "--json").json["comparisons"]
        if r["metric"] == "val_loss"
    )
    assert (
        same["verdict"].startswith("undecided")
        and same["next_cost"]["runs"] == 2 * same["fresh_seeds"] > 0
    )
    walls = [
        json.loads(p.read_text())["wall"]["total_s"] for p in (root / "runs").glob("*/result.json")
    ]
    assert same["next_cost"]["hours"] == pytest.approx(
        same["next_cost"]["runs"] * sum(walls) / len(walls) / 3600
    )


@pytest.mark.parametrize(
    ("word", "code"),
    [("slower", 1), ("worse", 1), ("faster", 1), ("undecided", 0), ("no error estimate", 0)],
)
def test_fail_on_sets_the_exit_code(ablate: Any, word: str, code: int) -> None:
    recorded()
    assert ablate("compare", "split", "--fail-on", word).code == code


def test_fail_on_looks_at_the_primary_metric_where_that_can_say_the_word(ablate: Any) -> None:
    recorded(
        arms=(ARMS[0], Arm(name="slow_but_better", loss_effect=-0.05, step_factor=1.2, fields=ON))
    )
    assert ablate("compare", "split", "--fail-on", "worse").code == 0
    assert ablate("compare", "split", "--fail-on", "slower").code == 1


def test_compare_says_what_is_doubtful_about_which_arm(ablate: Any) -> None:
    recorded(budgets=(280, 300), target=1.40)
    said = ablate("compare", "split").out
    assert "base, good, bad: The budgets do not bracket the target" in said
    assert "good, bad: All runs were made on one node" in said
    assert "not_bracketed" in ablate("compare", "split", "--json").json["warnings"]


def test_equal_losses_are_spoken_of_where_other_arms_give_an_error(ablate: Any) -> None:
    root = recorded()
    plan = json.loads((root / "experiments" / "split" / "experiment.json").read_text())
    for run in plan["runs"]:
        path = root / "runs" / run["run_id"] / "result.json"
        if run["arm"] == "good":
            path.write_text(json.dumps({**json.loads(path.read_text()), "val_loss": 1.5}))
    assert (
        "good: The losses or times of several runs are equal to the last digit"
        in ablate("compare", "split").out
    )


@pytest.mark.parametrize(
    "command",
    [["compare", "split"], ["report", "split"], ["significance", "split", "--arm", "good"]],
)
def test_mixed_data_is_refused_in_one_line(ablate: Any, command: list[str]) -> None:
    root = recorded()
    plan = json.loads((root / "experiments" / "split" / "experiment.json").read_text())
    path = root / "runs" / plan["runs"][0]["run_id"] / "config.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**config, "data": {**config["data"], "fingerprint": "0" * 64}}))
    seal_again(path.parent)
    ran = ablate(*command)
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert "mixes runs of 2 different data sets" in ran.err and "fault" not in ran.err


def test_fail_on_refuses_a_word_that_no_verdict_begins_with(ablate: Any) -> None:
    recorded()
    ran = ablate("compare", "split", "--fail-on", "slwer")
    assert ran.code == 2 and "--fail-on slwer" in ran.err and "did you mean 'slower'" in ran.err


# ---- significance


def test_an_arms_losses_are_those_of_its_longest_budget(ablate: Any) -> None:
    root = recorded(budgets=(250, 300))
    results = [json.loads(p.read_text()) for p in (root / "runs").glob("*/result.json")]
    plan = json.loads((root / "experiments" / "split" / "experiment.json").read_text())
    mine = {r["run_id"] for r in plan["runs"] if r["arm"] == "good" and r["budget"] == 300}
    losses = [r["val_loss"] for r in results if r["run_id"] in mine]
    said = ablate("significance", "split", "--arm", "good", "--target", "1.6", "--json")
    assert said.code == 0 and tuple(said.json) == RULE_KEYS
    expected = stats.ttest_1samp(losses, 1.6, alternative="less")
    assert said.json["n"] == 5 and said.json["p"] == pytest.approx(expected.pvalue)
    assert (
        said.json["statistic"] == pytest.approx(expected.statistic)
        and said.json["threshold"] == 0.01
    )


def test_a_copied_run_counts_once_and_is_spoken_of(ablate: Any) -> None:
    root = recorded(arms=ARMS[:2])
    plan = json.loads((root / "experiments" / "split" / "experiment.json").read_text())
    one, two = [root / "runs" / r["run_id"] for r in plan["runs"] if r["arm"] == "good"][:2]
    for file in ("metrics.jsonl", "result.json"):
        (two / file).write_bytes((one / file).read_bytes())
    seal_again(two, run_id=two.name)
    said = ablate("significance", "split", "--arm", "good", "--json")
    assert said.json["n"] == 4 and "The same run appears twice and is counted once" in said.err


@pytest.mark.parametrize(
    ("arguments", "outcome", "sentence"),
    [
        (["--arm", "god"], {}, "no arm 'god': there is base, good, bad"),
        (
            ["--arm", "good"],
            {("good", 1): "diverged"},
            "1 run of 'good' diverged: a diverged run misses the target",
        ),
        (
            ["--arm", "good"],
            {("good", i): "pending" for i in range(5)},
            "'good' of experiment 'split' has no finished run yet",
        ),
        (["x", "--arm", "good"], {}, "name one experiment"),
        (
            ["--rule", "track2"],
            {},
            "unknown rule 'track2': there is track1, track3, track3-pair; did you mean",
        ),
        (
            ["--target", "nan", "--arm", "good"],
            {},
            "the target is nan, but must be a loss above zero",
        ),
        ([], {}, "'split' is not a number: give losses"),
    ],
)
def test_what_significance_cannot_judge_has_its_own_sentence(
    ablate: Any, arguments: list[str], outcome: dict[Any, str], sentence: str
) -> None:
    recorded(outcome=outcome)
    ran = ablate("significance", "split", *arguments)
    assert ran.code == 2 and sentence in ran.err and ran.err.count("\n") == 1


def test_the_pair_rule_takes_no_single_losses(ablate: Any) -> None:
    pair = [
        "--old-mean",
        "3.2785",
        "--old-n",
        "16",
        "--old-steps",
        "3225",
        "--new-mean",
        "3.2785",
        "--new-n",
        "10",
    ]
    ran = ablate(
        "significance",
        "--rule",
        "track3-pair",
        *pair,
        "--new-steps",
        "3210",
        "--slope",
        "0.0045/100",
        "--json",
    )
    assert (
        f"{ran.json['statistic']:.5g}" == "0.0016745"
        and ran.json["significant"] is False
        and ran.json["sd"] is None
    )
    assert tuple(ran.json) == RULE_KEYS and ran.code == 0
    assert "needs --new-steps" in ablate("significance", "--rule", "track3-pair", *pair).err
    assert (
        "takes means"
        in ablate("significance", "3.27", "--rule", "track3-pair", *pair, "--new-steps", "3210").err
    )


def test_compare_tells_tokens_where_a_step_is_no_common_unit(ablate: Any) -> None:
    recorded(n_seeds=3, budgets=(200, 300, 400), target=1.57)
    assert "in_tokens" not in ablate("compare", "split", "--json").json
    half = (ARMS[0], replace(ARMS[1], token_factor=0.5), ARMS[2])
    shutil.rmtree("results")
    recorded(arms=half, n_seeds=3, budgets=(200, 300, 400), target=1.57)
    said = ablate("compare", "split", "--json").json
    told = {row["arm"]: row for row in said["in_tokens"]}
    assert {arm: row["step_tokens"] for arm, row in told.items()} == {
        **{"base": 4096, "good": 2048},
        "bad": 4096,
    }
    for row in told.values():
        steps, low, high = (
            row["steps_to_target"],
            row["tokens_to_target_low"],
            row["tokens_to_target_high"],
        )
        assert row["tokens_to_target"] == pytest.approx(steps * row["step_tokens"])
        assert low < row["tokens_to_target"] < high
    assert any("A step is no common unit here" in note for note in said["notes"])
    assert "Losses are compared at equal steps" in ablate("compare", "split").out


# ---- plan


def test_a_plan_speaks_of_loss_steps_seconds_and_price_before_anything_runs(ablate: Any) -> None:
    said = ablate(
        "plan", "r08_split", "--detect", "0.002", "--price", "2.5", "--set", "scale=gpt2", "--json"
    ).json
    power, cost = said["power"], said["cost"]
    assert power["sd"] == 0.004 and "published for the era of r07" in power["source"]
    assert power["steps"] == pytest.approx(power["detectable"] / power["slope"])
    assert power["seconds"] == pytest.approx(power["steps"] * power["step_ms"] / 1e3)
    assert (
        power["step_ms"] == pytest.approx(141.6, abs=0.5)
        and "published for r07 on 8 H100" in power["step_source"]
    )
    assert cost["price"] == pytest.approx(2.5 * cost["hours"]) and cost["hours"] > 1
    assert power["needed"]["runs"] == power["seeds_needed"] * said["runs"] // len(said["seeds"])
    assert power["needed"]["price"] == pytest.approx(
        cost["price"] / said["runs"] * power["needed"]["runs"]
    )
    assert not Path("results").exists()


def test_a_small_models_plan_takes_the_noise_recorded_for_its_scale(ablate: Any) -> None:
    power = ablate("plan", "quickstart", "--json").json["power"]
    assert (
        0.016 < power["sd"] < 0.036
        and "at this scale" in power["source"]
        and "published" not in power["source"]
    )
    assert (
        "published"
        in ablate("plan", "quickstart", "--set", "scale=small", "--json").json["power"]["source"]
    )


# ---- stopping

TINY = {"model.n_layer": 1, "model.d_model": 32, "data.seq_len": 64, "data.micro_tokens": 128,
        "data.batch_tokens": 128, "data.ranks": 1, "data.order": "shuffled", "data.val_tokens": 512, "data.val_every": 4,
        "schedule.steps": 4, "data.first_batch_twice": False, "optim.muon_comm": "redundant", "system.checkpoint": "none",
        "timing.protocol": "warmup-restore"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "n", "reason"),
    [
        ({"half_width": 1e-9}, 8, "open: untied_head"),
        ({"half_width": 100.0}, 7, ""),
        ({"decide": 0.05}, 8, ""),
    ],
)
def test_the_command_line_asks_for_seeds_between_blocks(
    ablate: Any, stop: dict[str, float], n: int, reason: str
) -> None:
    document = {"name": "adaptive", "base": "r07", "scale": "tiny", "set": TINY, "changes": {"untied_head": "r08.untied_head"},
                "seeds": {"min": 7, "max": 8, "stop": stop}, "alters_noise": ["untied_head"],
                "slope": {"per_step": 0.001, "se": 0.0001}}  # fmt: skip
    Path("adaptive.yaml").write_text(yaml.safe_dump(document))
    ran = ablate("run", "adaptive.yaml", "--results", "r", "--no-report")
    assert ran.code == 0, ran.err
    plan = json.loads(Path("r/experiments/adaptive/experiment.json").read_text())
    assert reason in ran.out and plan["seeds_rule"]["stop"] == stop
    assert len(plan["seeds"]) <= n and (stop.keys() != {"half_width"} or len(plan["seeds"]) == n)
    assert [a["alters_noise"] for a in plan["arms"]] == [False, True] and plan["slope"][
        "se"
    ] == 0.0001
    assert len(plan["locks"]) == 1  # seeds that the rule adds are no change of plan
    again = ablate("run", "adaptive.yaml", "--results", "r", "--no-report")
    assert again.code == 0 and "to do" not in again.out
    rows = ablate("compare", "adaptive", "--results", "r", "--json").json["comparisons"]
    assert all(r["method"].startswith("anytime-valid") for r in rows)


def test_a_report_that_would_be_no_page_is_refused_in_one_line(ablate: Any) -> None:
    recorded(n_seeds=2)
    refused = ablate("report", "split", "-o", "x.pdf")
    assert refused.code == 2 and not Path("x.pdf").exists()
    assert "name it x.html; a browser prints it to PDF" in refused.err
    assert refused.err.strip().count("\n") == 0
    assert ablate("report", "split", "-o", "x.html").code == 0


# ---- what comes out


def test_verify_says_that_a_page_is_sound_or_how_many_lines_are_not(ablate: Any) -> None:
    root = write_experiment(Path("results").absolute(), arms=ARMS[:2], n_seeds=2)
    page = str(write_report([load("split", root)], root / "page.html"))
    sound = ablate("verify", page)
    assert (sound.code, sound.out) == (
        0,
        f"{page}: every number and verdict follows from the embedded rows, and the whole page\n",
    )
    text = Path(page).read_text()
    Path(page).write_text(text.replace("<h1>", "<h1>better: ", 1))
    forged = ablate("verify", page)
    *lines, last = forged.out.splitlines()
    assert forged.code == 1 and last == f"{len(lines)} problems" and lines
    missing = ablate("verify", "nowhere.html")
    assert missing.code == 2 and "no such file; `ablate report EXP` writes one" in missing.err


def test_figures_are_written_into_a_folder_where_there_is_something_to_draw(
    ablate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(
        arms=ARMS[:2], n_seeds=2, outcome={(a.name, s): "pending" for a in ARMS for s in (0, 1)}
    )
    Path("file").touch()
    in_the_way = ablate("figures", "split", "-o", "file")
    assert in_the_way.code == 2 and "-o file: a file lies there; name a folder" in in_the_way.err
    nothing = ablate("figures", "split", "-o", "drawn")
    assert nothing.code == 2 and "split: nothing to draw yet, no run has finished" in nothing.err
    shutil.rmtree("results")
    recorded(arms=ARMS[:2], n_seeds=2)
    draw_all = paper_figures.draw_all
    monkeypatch.setattr(paper_figures, "draw_all", lambda *how: draw_all(*how)[:1])
    drawn = ablate("figures", "split", "-o", "drawn")
    assert (drawn.code, drawn.out) == (0, "drawn: 4 files, captions in captions.md\n")
    assert len(list(Path("drawn").iterdir())) == 4
    [svg] = Path("drawn").glob("*.svg")
    [points] = re.findall(r'<svg [^>]*\bwidth="([0-9.]+)pt"', svg.read_text())
    assert float(points) / 72 == pytest.approx(8, abs=0.1)  # inches: as wide as a page


def test_an_export_is_one_table_of_what_was_asked(ablate: Any) -> None:
    recorded(n_seeds=2)
    for tables in (
        ("--curves", "--arms"),
        ("--arms", "--comparisons"),
        ("--curves", "--comparisons"),
    ):
        refused = ablate("export", "split", "-o", "x.csv", *tables)
        assert refused.code == 2 and "are different tables: name one" in refused.err
        assert not Path("x.csv").exists()
    for table, n in (((), 6), (("--arms",), 3), (("--comparisons",), 6), (("--curves",), 96)):
        said = ablate("export", "split", "-o", "x.csv", *table)
        assert (said.code, said.out) == (0, "x.csv\n")
        assert len(Path("x.csv").read_text().splitlines()) == 1 + n, table
    for table in ((), ("--arms",), ("--comparisons",)):
        wrong = ablate("export", "split", "-o", "x.txt", *table)
        assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
        assert "x.txt: cannot write .txt; name a " in wrong.err


def test_losses_in_bits_stand_below_the_table_and_before_the_notes(
    ablate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(n_seeds=2)
    plain = ablate("compare", "split").out
    monkeypatch.setattr("harness.cli.compare.say_bits", lambda loaded, outcome: print("in bits"))
    *table, last = ablate("compare", "split").out.partition("in bits\n")
    assert f"{table[0]}{last}" == plain
    assert "verdict" in table[0] and last
