"""Budgets in tokens are the fewest steps that read them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.config.run import RunConfig, with_fields
from harness.config.schedule import tokens_trained
from harness.data.positions import refuse_short_train
from harness.errors import UserError
from harness.experiment.budgets import steps_for, tokens_of, trained_in
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs

TEXT = """
name: exp
question: q?
base: r08
scale: tiny
set: {data.batch_tokens: 4096, data.micro_tokens: 2048, data.ranks: 2, data.seq_len: 128}
budgets: [BUDGETS]
"""


SCALED = "changes:\n  scaled: {model.attn_scale: 0.12}\n"


def budgets(tmp_path: Path, written: str, changes: str = SCALED) -> tuple[int, ...]:
    file = tmp_path / "exp.yaml"
    file.write_text(TEXT.replace("BUDGETS", written) + changes)
    return load_experiment(str(file), device="cpu").budgets


def test_a_number_of_tokens_has_a_unit() -> None:
    numbers = {"100M tokens": 10**8, "1.5K tokens": 1500, "2B tokens": 2 * 10**9, "7 tokens": 7}
    for text, number in numbers.items():
        assert tokens_of(text) == number
    for other in (100, "100M", "tokens", "1e6 tokens", "-1 tokens", "x2"):
        assert tokens_of(other) is None


def test_a_budget_is_the_fewest_steps_that_read_its_tokens(tmp_path: Path) -> None:
    assert budgets(tmp_path, "409600 tokens, 409601 tokens, 8192K tokens") == (100, 101, 2000)


def test_batches_that_grow_are_counted() -> None:
    """Three stages of one, two and three batches; the extension's are the last one's."""
    config = with_fields(
        RunConfig(),
        {
            "data.batch_tokens": 1000,
            "schedule.steps": 40,
            "schedule.extension_steps": 4,
            "schedule.stages": 3,
            "schedule.batch_growth": (1, 2, 3),
        },
    )
    assert trained_in(config, 40) == tokens_trained(config, range(40)) == 1000 * (12 * 6 + 4 * 3)
    for tokens in (1, 1000, 84_000, 84_001, 500_000):
        steps = steps_for(config, tokens)
        assert trained_in(config, steps) >= tokens
        assert steps == 1 or trained_in(config, steps - 1) < tokens
    assert steps_for(config, 84_000) == 40


def test_an_arm_that_reads_other_tokens_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    own_batch = TEXT.replace("data.batch_tokens: 4096, ", "")
    monkeypatch.setattr("tests.harness.experiment.test_budgets.TEXT", own_batch)
    change = "changes:\n  larger: {data.batch_tokens: 1048576}\n"
    reads = r"reads \d+ tokens where the baseline reads \d+: give budgets in steps"
    instead = "a single number of tokens, which each arm reads in steps of its own"
    with pytest.raises(UserError, match=f"arm 'larger' {reads}, or {instead}$") as refused:
        budgets(tmp_path, "1M tokens, 2M tokens", change)
    said = [str(refused.value)]
    axis = "axes: {data.batch_tokens: [x1, x2, x4]}\n"
    retuned = "changes: {slow: {optim.muon_lr: 0.01}}\nestimand: retuned\n"
    for refuses_a_single_one in ("halving: 2\n", retuned):
        with pytest.raises(UserError, match=f"{reads}$") as refused:
            budgets(tmp_path, "1M tokens, 2M tokens", axis + refuses_a_single_one)
        said.append(str(refused.value))
    kept_line("\n".join(said))
    assert budgets(tmp_path, "100", change) == (100,)


def test_one_number_of_tokens_is_read_by_every_arm_in_steps_of_its_own(tmp_path: Path) -> None:
    """Where arms read alike nothing of an arm is changed."""
    file = tmp_path / "exp.yaml"
    set_for_r58 = "set: {data.micro_tokens: 512, data.ranks: 2, data.seq_len: 512}"
    text = "\n".join(
        set_for_r58 if line.startswith("set:") else line
        for line in TEXT.replace("BUDGETS", "819200 tokens").replace("r08", "r58").split("\n")
    )
    grown = "changes: {even: {schedule.batch_growth: []}, small: {data.batch_tokens: 2048}}\n"
    file.write_text(text + grown)
    loaded = load_experiment(str(file), device="cpu")
    assert loaded.budgets == () and loaded.budgets_in_tokens
    steps = {arm.name: arm.config.schedule.steps for arm in loaded.arms}
    assert steps == {"baseline": 100, "even": 200, "small": 199}
    for arm in loaded.arms:
        assert 819200 <= trained_in(arm.config, steps[arm.name]) < 1.01 * 819200
    even = loaded.arms[1]
    assert even.fields["schedule.steps"] == 200 and "schedule.batch_growth" in even.fields
    planned = plan_runs(loaded, need_data=False)
    assert {(run.arm, run.spec.budget) for run in planned} == {*steps.items()}
    file.write_text(text + grown.replace("even: {schedule.batch_growth: []}, ", ""))
    alone = load_experiment(str(file), device="cpu")
    assert alone.arms == (loaded.arms[0], loaded.arms[2])  # whichever arms there are beside it


def test_one_number_of_tokens_in_too_many_steps_or_moved_by_a_rate_axis_is_refused(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    own_batch = TEXT.replace("data.batch_tokens: 4096, ", "").replace("2048", "128")
    file = tmp_path / "exp.yaml"
    small = "changes: {small: {data.batch_tokens: 256}}\n"
    file.write_text(own_batch.replace("BUDGETS", "10B tokens") + small)
    with pytest.raises(UserError, match="arm 'small' reads '10B tokens' in more") as too_many:
        load_experiment(str(file), device="cpu")
    axis = "estimand: retuned\naxes: {data.batch_tokens: [x0.5, x1, x2]}\n"
    file.write_text(own_batch.replace("BUDGETS", "1M tokens") + SCALED + axis)
    with pytest.raises(UserError, match=r"other steps along data.batch_tokens") as other:
        load_experiment(str(file), device="cpu")
    kept_line(f"{too_many.value}\n{other.value}")


@pytest.mark.parametrize("written", ["0 tokens", "100M", "100 tokens, 200 tokens"])
def test_what_is_no_budget_is_refused(
    tmp_path: Path, written: str, kept_line: Callable[[str], None]
) -> None:
    """Two that are one step are no two budgets."""
    with pytest.raises(UserError, match=r"or tokens such as 100M tokens") as refused:
        budgets(tmp_path, written)
    kept_line(str(refused.value))


def test_text_must_suffice_for_the_stage_of_the_largest_batches(tmp_path: Path) -> None:
    """One round of the first stage fits into a shard of 100 tokens, one of the third does not."""
    asked = {"batch_tokens": 64, "micro_tokens": 32, "ranks": 2, "loader": "global"}
    shards = [tmp_path / "train.bin"]
    refuse_short_train(shards, [100], **asked, order="file")
    refuse_short_train(shards, [193], **asked, order="file", growth=3)
    with pytest.raises(
        UserError, match=r"192 \+ 1 in the stage of batches 3 times as large: .*batch_growth"
    ):
        refuse_short_train(shards, [192], **asked, order="file", growth=3)
