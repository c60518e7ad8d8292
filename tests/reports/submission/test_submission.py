"""What a record pull request needs: logs that read as the public ones do, the house table, and rules that say why."""

import copy
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.__main__ import main
from harness.foreign.log_runs import read_logs
from harness.provenance.redact import redact
from harness.run.foreign import ClockHint
from harness.run.results import Result
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.submission.case import Case, RuleCheck
from reports.submission.lint import RULES, VAL_TOKENS, lint
from reports.submission.readme import (
    diff_in_words,
    fields_of,
    standing_words,
    where_the_baseline_ran,
)
from reports.submission.statistics import baseline_beside, decimals, p_of
from reports.submission.submission import (
    cure_of_no_run,
    memory_lines,
    metric_lines,
    own_log,
    printed_by_script,
    script_log,
    write_submission,
)
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

TARGET = 1.60
ARM = "r08"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of five runs, their code in the results folder with a secret in it."""
    root = write_experiment(
        tmp_path_factory.mktemp("results"), arms=(LADDER[0], LADDER[4]), n_seeds=5, design="add-one"
    )
    (root / "code").mkdir()
    with zipfile.ZipFile(root / "code" / ("c1" * 8 + ".zip"), "w") as archive:
        archive.writestr(
            "model/gpt.py",
            'HUB_TOKEN = "hunter2hunter2"\nSEPARATOR_TOKEN = 256\nprint("step:1/2 val_loss:1.0")\n',
        )
    return root


def as_a_record(experiment: Experiment) -> Experiment:
    """The experiment as if run on the benchmark's data, tokens and settings."""
    configs: dict[str, Any] = copy.deepcopy(dict(experiment.configs))
    for config in configs.values():
        config["config"]["data"] |= {
            "corpus": "fineweb10B",
            "val_tokens": VAL_TOKENS,
            "order": "sequential",
        }
        config["config"]["system"]["coordinate_descent"] = False
    environments = {
        k: {**v, "variables": {"OMP_NUM_THREADS": "1"}} for k, v in experiment.environments.items()
    }
    return Experiment(
        **{
            **vars(experiment),
            "runs": experiment.runs.copy(),
            "configs": configs,
            "environments": environments,
        }
    )


def said(experiment: Experiment) -> dict[str, str]:
    return {c.rule: c.said for c in lint(Case.of(experiment, ARM, TARGET))}


def test_a_sound_record_passes_all_that_can_be_known(results):
    outcome = said(as_a_record(load("split", results=results)))
    assert outcome.pop("data untouched") == "cannot be known"
    assert outcome == dict.fromkeys(outcome, "passes")
    assert len(outcome) == len(RULES) - 1


def first_config(e: Experiment) -> dict[str, Any]:
    run = e.runs.loc[e.runs["arm"] == ARM, "run_id"].iloc[0]
    return e.configs[run]


def set_column(column: str, value: Any) -> Callable[[Experiment], None]:
    def change(e: Experiment) -> None:
        e.runs.loc[e.runs.index[e.runs["arm"] == ARM][0], column] = value

    return change


def give(section: str, key: str, value: Any) -> Callable[[Experiment], None]:
    return lambda e: first_config(e)["config"][section].update({key: value})


def forget_environments(e: Experiment) -> None:
    for environment in e.environments.values():
        environment.pop("variables")


def flag_in_environment(e: Experiment) -> None:
    e.environments[e.runs.loc[e.runs["arm"] == ARM, "run_id"].iloc[0]]["variables"][
        "TORCHINDUCTOR_MAX_AUTOTUNE"
    ] = "1"


def another_value_in_the_environment(e: Experiment) -> None:
    for environment in e.environments.values():
        environment["variables"]["TORCHINDUCTOR_MAX_AUTOTUNE"] = "0"
    flag_in_environment(e)


def forget_the_baseline(e: Experiment) -> None:
    e.runs.loc[e.runs["arm"] != ARM, "status"] = "failed"


def copy_a_run(e: Experiment) -> None:
    own = e.runs.index[e.runs["arm"] == ARM]
    e.runs.loc[own[0], "metrics_digest"] = e.runs.loc[own[1], "metrics_digest"]


TOKENS = f"{VAL_TOKENS} validation tokens"


def tuned_everywhere(e: Experiment) -> None:
    """As in records 2 to 17: the flag is the baseline's own."""
    for config in e.configs.values():
        config["config"]["system"]["coordinate_descent"] = True


def tuned_without_baseline(e: Experiment) -> None:
    tuned_everywhere(e)
    forget_the_baseline(e)


def slow_down(e: Experiment) -> None:
    e.runs.loc[e.runs["arm"] == ARM, "train_time_s"] *= 1.5


def give_hints(*hints: ClockHint) -> Callable[[Experiment], None]:
    """The arm's script with these, in a plan of its own."""

    def change(e: Experiment) -> None:
        arms = tuple(replace(a, hints=hints) if a.name == ARM else a for a in e.plan.arms)
        vars(e)["plan"] = replace(e.plan, arms=arms)

    return change


BROKEN: list[tuple[str, str, Callable[[Experiment], None]]] = [
    ("data untouched", "fails", set_column("fingerprint", "a" * 64)),
    (
        "data untouched",
        "fails",
        lambda e: [c["config"]["data"].update(corpus="stdlib") for c in e.configs.values()],
    ),
    ("data untouched", "fails", give("data", "order", "shuffled")),
    (TOKENS, "fails", give("data", "val_tokens", 65536)),
    (TOKENS, "cannot be known", lambda e: first_config(e)["config"]["data"].pop("val_tokens")),
    ("no extra compile flags", "fails", give("system", "coordinate_descent", True)),
    ("no extra compile flags", "fails", flag_in_environment),
    ("no extra compile flags", "fails", another_value_in_the_environment),
    ("no extra compile flags", "passes", tuned_everywhere),
    ("no extra compile flags", "cannot be known", tuned_without_baseline),
    ("no extra compile flags", "cannot be known", forget_environments),
    ("p < 0.01", "fails", set_column("val_loss", 1.9)),
    ("p < 0.01", "fails", set_column("status", "diverged")),
    ("same hardware as the baseline", "fails", set_column("gpu", "another card")),
    ("same hardware as the baseline", "cannot be known", set_column("gpu", None)),
    ("same hardware as the baseline", "cannot be known", forget_the_baseline),
    ("faster than the baseline", "fails", slow_down),
    ("faster than the baseline", "cannot be known", set_column("gpu", "another card")),
    ("faster than the baseline", "cannot be known", forget_the_baseline),
    (
        "faster than the baseline",
        "cannot be known",
        give_hints(ClockHint(line=7, text="trains before", doubt=True, compared=True)),
    ),
    ("faster than the baseline", "passes", give_hints(ClockHint(line=7, text="saves", doubt=True))),
    ("seeds independent", "fails", set_column("seed", 1)),
    ("seeds independent", "fails", copy_a_run),
    ("seeds independent", "cannot be known", set_column("status", "failed")),
    ("the clock covers what it must", "fails", set_column("train_time_s", 99.0)),
    ("the clock covers what it must", "cannot be known", set_column("self_reported", True)),
    ("one code", "fails", lambda e: first_config(e).update(source={"digest": "d" * 16})),
    ("one code", "cannot be known", lambda e: first_config(e).pop("source")),
]


@pytest.mark.parametrize(
    ("rule", "expected", "change"),
    BROKEN,
    ids=[f"{r}: {s} {i}" for i, (r, s, _) in enumerate(BROKEN)],
)
def test_a_rule_that_is_broken_or_cannot_be_known_says_so(results, rule, expected, change):
    experiment = as_a_record(load("split", results=results))
    change(experiment)
    assert said(experiment)[rule] == expected


def check_of(experiment: Experiment, rule: str, **how: Any) -> RuleCheck:
    """What a rule says of the arm."""
    checks = lint(Case.of(experiment, ARM, how.pop("target", TARGET), **how))
    return next(check for check in checks if check.rule == rule)


def test_the_loss_buffer_is_told_and_systems_alone_waive_it_where_the_loss_is_no_worse(results):
    experiment = as_a_record(load("split", results=results))
    mean = experiment.runs.loc[experiment.runs["arm"] == ARM, "val_loss"].mean()
    assert f"loss buffer {TARGET - mean:.4f}" in check_of(experiment, "p < 0.01").reason
    strict = {"target": 1.0, "systems_only": True}  # that no run reaches
    assert check_of(experiment, "p < 0.01", target=1.0).said == "fails"
    assert check_of(experiment, "p < 0.01", **strict).said == "waived"
    experiment.runs.loc[experiment.runs["arm"] == ARM, "val_loss"] += 0.5
    worse = check_of(experiment, "p < 0.01", **strict)
    assert worse.said == "fails"
    assert "claimed as systems only, but its loss is +0." in worse.reason


def test_the_gpus_of_a_log_are_those_that_it_lists(results):
    experiment = as_a_record(load("split", results=results))
    experiment.runs["imported"] = True
    for environment in experiment.environments.values():
        environment["gpus"] = [{"name": "NVIDIA H100 80GB HBM3"}] * 8
    assert check_of(experiment, "same hardware as the baseline").reason.startswith("8 x ")
    assert check_of(experiment, "data untouched").said == "cannot be known"


def test_every_rule_can_be_seen_to_fail():
    assert {rule for rule, outcome, _ in BROKEN if outcome == "fails"} == set(RULES)


def test_the_folder_holds_what_a_pull_request_needs_and_no_secret(results, tmp_path, kept_line):
    experiment = load("split", results=results)
    (tmp_path / "pr").mkdir()  # an empty one is taken
    write_submission(
        experiment, ARM, tmp_path / "pr", results=results, redact=redact, target=TARGET
    )
    logs = sorted((tmp_path / "pr" / "logs").glob("*.txt"))
    assert len(logs) == len(list((tmp_path / "pr" / "baseline").glob("*.txt"))) == 5
    parts = logs[0].read_text(encoding="utf-8").split("=" * 100)
    assert len(parts) == 4
    assert "SEPARATOR_TOKEN = 256" in parts[0]
    assert "untied_head: true" in parts[1]
    assert "2.13.0+cpu" in parts[2]
    lines = parts[3].strip().splitlines()
    assert re.fullmatch(r"step:0/300 val_loss:\d\.\d{4} train_time:0ms step_avg:nanms", lines[0])
    assert re.fullmatch(
        r"step:300/300 val_loss:1\.\d{4} train_time:\d+ms step_avg:\d+\.\d\dms", lines[-2]
    )
    assert re.fullmatch(r"peak memory allocated: \d+ MiB", lines[-1])
    (run,) = read_logs(logs[0])  # `import` takes it
    assert (run.reading.n_steps, len(run.reading.steps["val"])) == (300, len(lines) - 1)
    assert "hunter2" not in "".join(
        p.read_text(encoding="utf-8") for p in (tmp_path / "pr").rglob("*.*")
    )
    text = (tmp_path / "pr" / "README.md").read_text(encoding="utf-8")
    losses = experiment.runs.loc[experiment.runs["arm"] == ARM, "val_loss"]
    assert f"losses = [{', '.join(f'{v:.4f}' for v in losses)}]" in text
    assert (
        f"| r08 | 5 | 300 | {experiment.runs.loc[losses.index, 'train_time_s'].mean():.3f} |"
        in text
    )
    lines = (tmp_path / "pr" / "statistics.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        ["arm", "runs", "steps"],
        ["r08", "5", "300"],
        ["r07 (baseline)", "5", "300"],
    ]
    assert "same node (node-0)" in text
    assert all(rule in text for rule in RULES)
    files = (tmp_path / "pr" / "README.md", tmp_path / "pr" / "statistics.csv", logs[0])
    kept_line("\n".join(file.read_text(encoding="utf-8") for file in files))


def test_a_folder_that_could_not_be_written_whole_is_not_there(results, tmp_path):
    def full(text: str) -> str:
        if text.startswith("# "):  # the README, which comes last
            raise OSError(28, "No space left on device")
        return text

    experiment = load("split", results=results)
    with pytest.raises(OSError, match="No space left"):
        write_submission(
            experiment, ARM, tmp_path / "pr", results=results, redact=full, target=TARGET
        )
    assert list(tmp_path.iterdir()) == []


def test_the_snippet_in_the_readme_gives_the_p_of_the_table(results, tmp_path, capsys):
    write_submission(
        load("split", results=results),
        ARM,
        tmp_path / "pr",
        results=results,
        redact=redact,
        target=TARGET,
    )
    text = (tmp_path / "pr" / "README.md").read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], {})
    p = float(capsys.readouterr().out.split("=")[1])
    assert p == pytest.approx(float(re.search(r"\| r08 .*\| (\S+) \|\n", text)[1]), rel=0.05)


def test_bad_input_is_one_line(results, tmp_path, capsys):
    plan = results / "experiments" / "split" / "experiment.json"
    plan.write_text(
        json.dumps(json.loads(plan.read_text()) | {"imported": True})
    )  # as it is: no source of now is looked at
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for arguments, message in (
        (
            ["split", "--arm", "r8", "-o", "new"],
            "experiment 'split' has no arm 'r8'; did you mean 'r08'?",
        ),
        (["split", "--arm", "r08", "-o", str(tmp_path / "full")], "there is something already"),
        (["published/ladder", "--arm", "r08", "-o", "new"], "others' own"),
        (["nowhere", "--arm", "r08", "-o", "new"], "nowhere"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["submission", *arguments, "--results", str(results)])
        assert end.value.code == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert errors.count("\n") == 1
    with pytest.raises(SystemExit) as end:
        main(
            [
                "submission",
                "split",
                "--arm",
                "r08",
                "-o",
                str(tmp_path / "pr"),
                "--results",
                str(results),
                "--json",
            ]
        )
    assert end.value.code == 0
    assert {r["rule"] for r in json.loads(capsys.readouterr().out)["rules"]} == set(RULES)


def test_an_arm_without_a_finished_run_is_refused(tmp_path, kept_line):
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=1, outcome={("untied_head", 0): "pending"})
    with pytest.raises(ValueError, match="has no finished run that counts") as refused:
        write_submission(
            load("split", results=tmp_path),
            "untied_head",
            tmp_path / "pr",
            results=tmp_path,
            redact=redact,
        )
    assert not (tmp_path / "pr").exists()
    kept_line(str(refused.value))


def test_a_file_where_the_folder_should_be_is_left_as_it_is(
    results: Path, tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "pr").write_text("mine")
    experiment = load("split", results=results)
    how: dict[str, Any] = {"results": results, "redact": redact, "target": TARGET}
    with pytest.raises(ValueError, match="there is something already") as refused:
        write_submission(experiment, ARM, tmp_path / "pr", **how)
    assert (tmp_path / "pr").read_text() == "mine"
    kept_line(str(refused.value))
    write_submission(experiment, ARM, tmp_path / "of" / "mine" / "pr", **how)
    assert len([*(tmp_path / "of" / "mine" / "pr" / "logs").iterdir()]) == 5
    assert {path.name for path in tmp_path.rglob("*pr*")} == {"pr"}


def test_an_arm_whose_runs_are_all_stale_is_to_be_run_again(results: Path) -> None:
    experiment = load("split", results=results)
    assert cure_of_no_run(experiment, ARM) == "`ablate run split` first"
    experiment.runs["stale"] = experiment.runs["arm"] != ARM
    assert cure_of_no_run(experiment, ARM) == "`ablate run split` first"
    experiment.runs["stale"] = experiment.runs["arm"] == ARM
    cure = "its runs are stale: run them again, or admit them with --accept-stale"
    assert cure_of_no_run(experiment, ARM) == cure


def test_the_readme_says_on_what_its_runs_stand(results: Path) -> None:
    experiment = load("split", results=results)
    plan = experiment.plan
    assert fields_of(plan, plan.baseline) == "* nothing: this is the baseline"
    assert fields_of(plan, ARM).startswith("* `")
    assert standing_words(plan).startswith("Exploratory")
    assert standing_words(replace(plan, confirm=True)) == "Confirmed on fresh seeds"
    at = "on the same node (node-0)"
    assert where_the_baseline_ran(Case.of(experiment, ARM, TARGET)) == at
    experiment.runs.loc[experiment.runs["arm"] == ARM, "node"] = "elsewhere"
    alone = Case.of(experiment, ARM, TARGET)
    assert where_the_baseline_ran(alone).startswith("on other nodes than the arm: times also")
    assert len(baseline_beside(alone)) == len(alone.baseline) == 5


def test_what_has_no_number_in_the_table_is_left_open() -> None:
    assert (decimals(1.23456, 2), decimals(float("nan"), 2)) == ("1.23", None)
    assert p_of([3.27, 3.271, 3.269], 3.28) == "0.0017"
    assert p_of([3.27], 3.28) is None  # a t test has no sd of one run


def test_a_log_is_told_by_what_stands_in_the_runs_folder(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert printed_by_script(log) == ""
    log.write_text("no command")
    assert printed_by_script(log) == "no command"
    log.write_text("before\n$ python a.py\nstep 1\nstep 2\n")
    assert printed_by_script(log) == "step 1\nstep 2\n"
    result = Result(status="finished", val_loss=3.25)
    line = "step:1/2 val_loss:{} train_time:1ms\n"
    (tmp_path / "own-0.txt").write_text(line.format("3.25") + line.format("9.9"))
    assert own_log(tmp_path, result) is None  # it ends elsewhere
    (tmp_path / "own-1.txt").write_text(line.format("9.9") + line.format("3.25"))
    text = own_log(tmp_path, result)
    assert text is not None and "3.25" in text and own_log(tmp_path, None) is None
    told = script_log(tmp_path, tmp_path, "d1", result)
    lost = "# the code of this run (d1) is not in the results folder, or damaged"
    assert told == f"{lost}\n{'=' * 100}\n{text}"


def test_a_log_of_metrics_has_the_length_that_the_run_turned_out_to_have(tmp_path: Path) -> None:
    point = {"kind": "val", "step": 20, "train_time_s": 1.5, "val_loss": 3.25}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    result = Result(status="finished", budget=40)
    tail = "val_loss:3.2500 train_time:1500ms step_avg:75.00ms"
    assert metric_lines(tmp_path, {}, result) == [f"step:20/40 {tail}"]
    assert metric_lines(tmp_path, {"budget": 30}, result) == [f"step:20/30 {tail}"]
    skips = {"config": {"timing": {"protocol": "skip10"}}}
    (line,) = metric_lines(tmp_path, skips, None)
    assert line.startswith("step:20/None") and line.endswith("step_avg:150.00ms")
    (tmp_path / "metrics.jsonl").write_text(json.dumps(point | {"step": 10}) + "\n")
    (line,) = metric_lines(tmp_path, skips, None)
    assert line.endswith("step_avg:nanms")  # no step was timed
    (line,) = metric_lines(tmp_path, {}, None)
    assert line.endswith("step_avg:150.00ms")


def test_a_log_tells_the_memory_that_its_run_recorded() -> None:
    allocated = Result(status="finished", peak_allocated_mib=210.6)
    assert memory_lines(None) == memory_lines(Result(status="finished")) == []
    assert memory_lines(allocated) == ["peak memory allocated: 211 MiB"]
    both = replace(allocated, peak_reserved_mib=300.0)
    assert memory_lines(both) == ["peak memory allocated: 211 MiB reserved: 300 MiB"]


def test_a_readme_shows_the_first_lines_of_a_long_diff_and_says_how_many_are_left() -> None:
    for n, rest in ((200, ""), (201, "\n... 1 line more")):
        lines = ["--- a.py", "+++ b.py", "-old", *(f"+{i}" for i in range(n - 3))]
        case: Any = SimpleNamespace(changes="".join(f"{line}\n" for line in lines))
        head = f"\n\nLines of code: {n - 3} new, 1 gone (`changes.diff`):\n\n"
        shown = "\n".join(lines[:200])
        assert diff_in_words(case) == f"{head}````diff\n{shown}{rest}\n````"
    unchanged: Any = SimpleNamespace(changes="")
    assert diff_in_words(unchanged) == ""
