"""What each rule says of an arm and why: cases made of tables, numbers by hand or by scipy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.run.foreign import ClockHint
from harness.run.plan import Plan, PlanArm, PlanCorpus
from reports.inputs.experiment import Experiment
from reports.submission.case import Case
from reports.submission.lint import (
    VAL_TOKENS,
    buffer_of,
    clock_covers,
    compile_flags,
    data_untouched,
    faster_than_baseline,
    hardware_as_baseline,
    independent_seeds,
    lint,
    one_code,
    significance,
    untimed_steps,
    validation_tokens,
)

TARGET = 3.28
LOSSES = {"base": (3.279, 3.2785, 3.2795), "a": (3.275, 3.277, 3.2785)}
TIMES = {"base": (100.0, 102.0, 101.0), "a": (90.0, 91.0, 93.0)}
NAN = float("nan")
Edit = Callable[[pd.DataFrame, dict[str, Any], dict[str, Any]], None]


def case(edit: Edit | None = None, *, arm: PlanArm | None = None, **how: Any) -> Case:
    """Three sound runs of an arm and of its baseline; edit: (runs, configs, environments)."""
    rows, configs, environments = [], {}, {}
    for name in ("base", "a"):
        for seed in range(3):
            run_id = f"{name}{seed}"
            rows.append(
                {
                    "arm": name,
                    "status": "finished",
                    "stale": False,
                    "imported": False,
                    "self_reported": False,
                    "budget": 1000,
                    "run_id": run_id,
                    "seed": seed,
                    "replicate": 0,
                    "metrics_digest": run_id,
                    "fingerprint": "0123456789abcdefg",
                    "val_loss": LOSSES[name][seed],
                    "train_time_s": TIMES[name][seed],
                    "step_ms": TIMES[name][seed],
                    "steps": 1000,
                    "device": "cuda",
                    "gpu": "H100",
                    "node": f"n{seed}",
                }
            )
            data = {"corpus": "FineWeb10B", "val_tokens": VAL_TOKENS, "order": "sequential"}
            config = {
                "data": data,
                "system": {"coordinate_descent": False},
                "timing": {"protocol": "whole"},
            }
            configs[run_id] = {"config": config, "world_size": 8, "source": {"digest": "d1"}}
            environments[run_id] = {"variables": {"OMP_NUM_THREADS": "1"}}
    runs = pd.DataFrame(rows)
    if edit is not None:
        edit(runs, configs, environments)
    looks = how.pop("looks", 1)
    plan = Plan(
        name="x",
        baseline="base",
        arms=(PlanArm(name="base"), arm or PlanArm(name="a")),
        looks=looks,
        corpus=PlanCorpus(name="stdlib"),
    )
    experiment = Experiment(
        name="x",
        plan=plan,
        runs=runs,
        curves=runs,
        environments=environments,
        configs=configs,
        results={},
    )
    return Case.of(experiment, "a", how.pop("target", TARGET), **how)


def put(column: str, *values: Any, arm: str = "a") -> Edit:
    """A column of an arm's three runs."""

    def edit(runs: pd.DataFrame, configs: dict[str, Any], environments: dict[str, Any]) -> None:
        runs[column] = runs[column].astype(object)
        for at, value in zip(runs.index[runs["arm"] == arm], values, strict=True):
            runs.loc[at, column] = value
        if column in ("val_loss", "train_time_s", "step_ms"):
            runs[column] = runs[column].astype(float)

    return edit


def give(run_id: str, section: str, key: str, value: Any) -> Edit:
    """A field of the configuration of one run, of all of an arm, or of all ('')."""

    def edit(runs: pd.DataFrame, configs: dict[str, Any], environments: dict[str, Any]) -> None:
        for name, config in configs.items():
            if name.startswith(run_id):
                config["config"][section][key] = value

    return edit


def variable(run_id: str, **variables: str) -> Edit:
    def edit(runs: pd.DataFrame, configs: dict[str, Any], environments: dict[str, Any]) -> None:
        for name, environment in environments.items():
            if name.startswith(run_id):
                environment["variables"] = {**environment["variables"], **variables}

    return edit


def all_of(*edits: Edit) -> Edit:
    def edit(runs: pd.DataFrame, configs: dict[str, Any], environments: dict[str, Any]) -> None:
        for one in edits:
            one(runs, configs, environments)

    return edit


def forget(run_id: str, key: str) -> Edit:
    def edit(runs: pd.DataFrame, configs: dict[str, Any], environments: dict[str, Any]) -> None:
        for name in (name for name in configs if name.startswith(run_id)):
            configs[name].pop(key, None)
            environments[name].pop(key, None)

    return edit


def no_baseline() -> Edit:
    return put("status", "failed", "failed", "failed", arm="base")


TUNED = "coordinate_descent_tuning (system.coordinate_descent)"


@pytest.mark.parametrize(
    ("rule", "edit", "answer"),
    [
        (
            data_untouched,
            None,
            ("cannot be known", "fingerprint 0123456789abcdef: there is none of the official"),
        ),
        (
            data_untouched,
            put("fingerprint", None, None, None),
            ("cannot be known", "no fingerprint was recorded"),
        ),
        (
            data_untouched,
            put("fingerprint", "0", "1", None),
            ("fails", "the runs read 2 different corpora"),
        ),
        (
            data_untouched,
            put("fingerprint", "0", "1", "2", arm="base"),
            ("fails", "arm and baseline read different tokens"),
        ),
        (data_untouched, no_baseline(), ("cannot be known", "fingerprint 0123")),
        (
            data_untouched,
            give("a", "data", "order", None),
            ("cannot be known", "fingerprint 0123"),
        ),
        (
            data_untouched,
            give("a1", "data", "order", "shuffled"),
            ("fails", "data.order is not sequential"),
        ),
        (
            data_untouched,
            give("a", "data", "corpus", None),
            ("fails", "the runs were trained on 'stdlib', the benchmark's data are"),
        ),
        (data_untouched, put("imported", True, False, False), ("cannot be known", "a log does no")),
        (
            validation_tokens,
            None,
            ("passes", "validated on 10485760 tokens; the rule is 10485760"),
        ),
        (
            validation_tokens,
            give("a1", "data", "val_tokens", 65536),
            ("fails", "validated on 65536, 10485760 tokens; the rule is 10485760"),
        ),
        (
            validation_tokens,
            give("a1", "data", "val_tokens", None),
            ("cannot be known", "the number of validation tokens was not recorded"),
        ),
        (compile_flags, None, ("passes", "none in the configuration or the environment")),
        (
            compile_flags,
            all_of(
                give("", "system", "coordinate_descent", True), variable("", TORCHINDUCTOR_X="1")
            ),
            (
                "passes",
                f"none beyond the baseline's own: TORCHINDUCTOR_X=1, {TUNED} is set in all its",
            ),
        ),
        (
            compile_flags,
            all_of(variable("", TORCHINDUCTOR_X="1"), variable("base1", TORCHINDUCTOR_X="2")),
            ("fails", "set here and not in every run of the baseline: TORCHINDUCTOR_X=1"),
        ),
        (
            compile_flags,
            give("a1", "system", "coordinate_descent", True),
            ("fails", f"set here and not in every run of the baseline: {TUNED}"),
        ),
        (compile_flags, give("base", "system", "coordinate_descent", True), ("passes", "none in")),
        (
            compile_flags,
            all_of(give("", "system", "coordinate_descent", True), forget("base1", "variables")),
            ("cannot be known", f"set: {TUNED}; whether the baseline's runs had the same was not"),
        ),
        (
            compile_flags,
            all_of(give("", "system", "coordinate_descent", True), no_baseline()),
            ("cannot be known", f"set: {TUNED}; whether the baseline's"),
        ),
        (
            compile_flags,
            forget("a1", "variables"),
            ("cannot be known", "the compiler's settings or the environment variables of some"),
        ),
        (
            compile_flags,
            give("a2", "system", "coordinate_descent", None),
            ("cannot be known", "the compiler's settings or"),
        ),
        (
            significance,
            put("status", "finished", "diverged", "finished"),
            ("fails", "1 of 3 runs diverged: the t test has no place for them"),
        ),
        (significance, put("val_loss", 3.2, 3.2, 3.2), ("fails", "rule track1: all 3 losses are")),
        (hardware_as_baseline, None, ("passes", "8 x H100, 3 shared nodes")),
        (
            hardware_as_baseline,
            put("node", "n0", "m1", None),
            ("passes", "8 x H100, 1 shared node"),
        ),
        (
            hardware_as_baseline,
            put("node", "m0", "m1", "m2"),
            ("passes", "8 x H100, no shared node: times also differ by node (up to 8 %)"),
        ),
        (
            hardware_as_baseline,
            put("gpu", "H100", "A100", "H100"),
            ("fails", "8 x A100; 8 x H100, 3 shared"),
        ),
        (
            hardware_as_baseline,
            all_of(
                put("gpu", "H100", "A100", "H100"), put("gpu", "H100", "A100", "A100", arm="base")
            ),
            ("fails", "8 x A100; 8 x H100, 3 shared"),
        ),
        (
            hardware_as_baseline,
            put("gpu", "H100", None, "H100", arm="base"),
            ("cannot be known", "the hardware of some runs was not recorded"),
        ),
        (
            hardware_as_baseline,
            forget("a1", "world_size"),
            ("cannot be known", "the hardware of some runs was not recorded"),
        ),
        (
            hardware_as_baseline,
            no_baseline(),
            ("cannot be known", "the baseline has no finished run here"),
        ),
        (
            faster_than_baseline,
            put("gpu", "H100", "A100", "H100"),
            ("cannot be known", "times are compared on the same hardware alone: 8 x A100; 8 x"),
        ),
        (
            faster_than_baseline,
            put("train_time_s", NAN, NAN, 9.0),
            ("cannot be known", "a t test of times needs 2 runs of each, got 1 and 3"),
        ),
        (
            faster_than_baseline,
            put("train_time_s", NAN, 90.0, 91.0),
            ("passes", "-10.500 s (-10.40 %), p = 0.00051 (Welch, one-sided), n = 2 and 3"),
        ),
        (independent_seeds, None, ("passes", "3 different seeds, every planned run counted")),
        (
            independent_seeds,
            put("status", "finished", "running", "failed"),
            ("cannot be known", "2 of 3 planned runs have no outcome: the list could have been"),
        ),
        (
            independent_seeds,
            put("status", "finished", "diverged", "finished"),
            ("passes", "2 different seeds, every planned run counted"),
        ),
        (
            independent_seeds,
            put("metrics_digest", "m", "n", "m"),
            ("fails", "two runs have the same metrics file"),
        ),
        (independent_seeds, put("metrics_digest", None, None, "m"), ("passes", "3 different")),
        (independent_seeds, put("seed", 0, None, 2), ("cannot be known", "runs have no recorded")),
        (independent_seeds, put("seed", 0, 1, 0), ("fails", "a seed was used twice")),
        (
            independent_seeds,
            all_of(put("seed", 0, 0, 0), put("replicate", 0, 1, 2)),
            ("passes", "3 different"),
        ),
        (one_code, None, ("passes", "all runs executed d1")),
        (one_code, forget("a1", "source"), ("cannot be known", "the code of the runs was not")),
    ],
)
def test_a_rule_answers_with_its_reason(
    rule: Any, edit: Edit | None, answer: Any, kept_line: Callable[[str], None]
) -> None:
    said, reason = rule(case(edit))
    assert (said, reason[: len(answer[1])]) == answer
    kept_line(reason)


def test_two_versions_of_the_code_are_counted() -> None:
    def edit(runs: Any, configs: dict[str, Any], environments: Any) -> None:
        configs["a1"]["source"] = {"digest": "d2"}

    assert one_code(case(edit)) == ("fails", "the runs executed 2 versions of the code")


def test_every_rule_is_asked_once() -> None:
    checks = lint(case())
    assert len(checks) == len({check.rule for check in checks}) == 9
    said = [check.said for check in checks]
    assert said == ["cannot be known", "passes", "passes", "fails", *["passes"] * 5]


# ---------------------------------------------------------------- of numbers


def test_the_p_of_a_record_is_that_of_its_losses_below_the_target() -> None:
    p = stats.ttest_1samp(LOSSES["a"], TARGET, alternative="less").pvalue
    assert p > 0.01
    words = f"p = {p:.2g} for a mean below 3.28, n = 3, loss buffer 0.0032"
    assert significance(case()) == ("fails", words)
    assert buffer_of(case()) == pytest.approx(TARGET - np.mean(LOSSES["a"]))
    said, reason = significance(case(target=3.3))
    assert (said, "n = 3, loss buffer 0.0232" in reason) == ("passes", True)
    assert "looks" not in reason
    said, reason = significance(case(target=3.3, looks=2))
    assert (said, reason.endswith("at 2 looks: each further look adds false passes")) == (
        "passes",
        True,
    )


def test_what_changes_systems_alone_is_waived_unless_its_loss_is_worse() -> None:
    claimed: dict[str, Any] = {"target": 3.0, "systems_only": True}
    said, reason = significance(case(**claimed))
    p = stats.ttest_ind(LOSSES["base"], LOSSES["a"], equal_var=False, alternative="less").pvalue
    gap = np.mean(LOSSES["a"]) - np.mean(LOSSES["base"])
    assert said == "waived"
    start = f"claimed as systems only: its loss is {gap:+.4f} against the baseline's (p = {p:.2g})"
    assert reason.startswith(f"{start}; p = 1")
    said, reason = significance(case(put("val_loss", 3.31, 3.311, 3.3105), **claimed))
    assert said == "fails"
    assert reason.startswith("claimed as systems only, but its loss is +0.0315 against")
    said, reason = significance(case(no_baseline(), **claimed))
    assert said == "cannot be known"
    assert "claimed as systems only, a t test of losses needs 2 runs of each, got 0 and 3" in reason
    assert significance(case(target=3.3, systems_only=True))[0] == "passes"


def test_faster_is_welchs_test_of_the_clocks_with_the_gap_in_seconds_and_percent() -> None:
    p = stats.ttest_ind(TIMES["a"], TIMES["base"], equal_var=False, alternative="less").pvalue
    gap = np.mean(TIMES["a"]) - np.mean(TIMES["base"])
    assert p < 0.01
    words = f"{gap:+.3f} s ({gap / 1.01:+.2f} %), p = {p:.2g} (Welch, one-sided), n = 3 and 3"
    assert faster_than_baseline(case()) == ("passes", words)
    close = put("train_time_s", 99.0, 100.5, 101.0)
    assert faster_than_baseline(case(close))[0] == "fails"


def test_a_clock_that_counts_otherwise_is_not_compared() -> None:
    hints = tuple(
        ClockHint(line=n, text=f"text {n}", compared=n > 1, doubt=n < 3) for n in (1, 2, 3)
    )
    arm = PlanArm(name="a", hints=hints)
    assert faster_than_baseline(case(arm=arm)) == (
        "cannot be known",
        "its clock counts other things than the baseline's: line 2, 3",
    )
    for column in ("self_reported", "imported"):
        said, reason = clock_covers(case(put(column, False, True, False), arm=arm))
        assert said == "cannot be known"
        assert reason == (
            "the clock is the script's own (self-reported); line 1: text 1; line 2: text 2"
        )


def test_the_clock_is_the_sum_of_the_steps_that_it_counts() -> None:
    said, reason = clock_covers(case())
    assert (said, reason) == (
        "passes",
        "training steps alone (whole); the sum of the step times is within 0.0 % of the clock",
    )
    for factor, within in (
        (1.019, "passes"),
        (1.022, "fails"),
        (0.981, "passes"),
        (0.979, "fails"),
    ):
        times = [t / factor for t in TIMES["a"]]
        times[1:] = TIMES["a"][1:]
        said, reason = clock_covers(case(put("train_time_s", *times)))
        assert said == within
        assert f"is within {100 * abs(factor - 1):.1f} % of" in reason
    doubled = put("step_ms", *(2 * t for t in TIMES["a"]))
    assert "is within 100.0 % of the clock" in clock_covers(case(doubled))[1]
    unknown = clock_covers(case(put("step_ms", NAN, NAN, NAN)))
    assert unknown == ("cannot be known", "step times were not recorded")


def test_steps_that_a_protocol_does_not_time_are_not_summed() -> None:
    assert [untimed_steps(p) for p in ("skip10", "whole", None)] == [10, 0, 0]
    skips = give("a", "timing", "protocol", "skip10")
    assert "within 1.0 %" in clock_covers(case(skips))[1]
    counted = put("train_time_s", *(t * 0.99 for t in TIMES["a"]))
    said, reason = clock_covers(case(all_of(skips, counted)))
    assert (said, "(skip10); the sum of the step times is within 0.0 %" in reason) == (
        "passes",
        True,
    )
    mixed = give("a1", "timing", "protocol", "skip10")
    assert "within 0.0 %" in clock_covers(case(mixed))[1]


# ---------------------------------------------------------------- machines


def test_a_machine_without_gpus_is_its_processor() -> None:
    def edit(runs: pd.DataFrame, configs: dict[str, Any], environments: dict[str, Any]) -> None:
        runs["device"], runs["gpu"] = "cpu", None
        for name in configs:
            configs[name]["world_size"] = 1
            environments[name]["cpu"] = "EPYC"

    def other(runs: pd.DataFrame, configs: Any, environments: dict[str, Any]) -> None:
        environments["a1"]["cpu"] = "Xeon"

    assert hardware_as_baseline(case(edit))[1].startswith("1 x EPYC, ")
    assert hardware_as_baseline(case(all_of(edit, other)))[0] == "fails"


def test_gpus_of_imported_runs_are_those_that_their_logs_list() -> None:
    def edit(runs: pd.DataFrame, configs: Any, environments: dict[str, Any]) -> None:
        runs["imported"] = True
        for environment in environments.values():
            environment["gpus"] = [{}] * 4

    assert hardware_as_baseline(case(edit)) == ("passes", "4 x H100, 3 shared nodes")
    imported = put("imported", True, True, True)
    assert hardware_as_baseline(case(imported))[0] == "cannot be known"
