"""Records 19 and later: their presets against the logs' steps, the scripts' schedules, and two updates of each."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.config.presets import load_preset, names, preset_values, to_config
from harness.config.run import RunConfig
from harness.config.schedule import schedule_at, scheduled_steps
from harness.model.tokens import Tokens
from harness.training.core import Batch
from tests.small_presets import LATER, SEPARATOR, VOCAB, core, tiny

# whose script the preset is of, where the history takes an earlier one of the same folder
LATER_ARMS = {"r85": "2026-05-27-MuddGatedAndDC/this_pr_v3"}
ROOT = Path(__file__).resolve().parents[3]
UNITS = ROOT / "tests" / "data" / "units"


def config(record: str) -> RunConfig:
    return to_config(preset_values(record)[0])


def test_every_later_record_is_a_delta_on_the_one_before() -> None:
    presets = names("records")
    assert presets[-len(LATER) :] == LATER
    for before, record in zip(presets[-len(LATER) - 1 :], LATER, strict=False):
        assert load_preset(record).base == before


def logged_steps() -> dict[str, set[int]]:
    """Record of the short track -> the numbers of steps in its arm's logs."""
    folder = ROOT / "results" / "published" / "history"
    with (folder / "runs.csv").open(newline="", encoding="utf-8") as file:
        by_arm: dict[str, set[int]] = {}
        for row in csv.DictReader(file):
            by_arm.setdefault(row["arm"], set()).add(int(row["steps"]))
    with (folder / "records.csv").open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["track"] == "short" and r["arm"]]
    arms = {f"r{int(row['record']):02d}": row["arm"] for row in rows} | LATER_ARMS
    return {record: by_arm[arm] for record, arm in arms.items()}


@pytest.mark.parametrize("record", LATER)
def test_steps_are_those_of_the_logs(record: str) -> None:
    assert logged_steps().get(record, {config(record).schedule.steps}) == {
        config(record).schedule.steps
    }


def test_steps_are_those_of_the_scripts_schedules() -> None:
    compared = []
    for path in sorted(UNITS.glob("lr_momentum_schedule_*.npz")):
        for name, steps in np.load(path).items():
            record, _, kind = name.partition("/")
            if kind == "steps" and record in LATER:
                c = config(record)
                assert [scheduled_steps(c), c.schedule.steps] == steps.tolist(), record
                compared.append(record)
    assert len(compared) >= 2


def batch(config: RunConfig, step: int) -> Batch:
    """One pass of update `step`: ids in which each tells the next one, separators among them."""
    T = config.data.seq_len * schedule_at(config, step).growth
    ids = torch.arange(T + 1)[None] * 7 % 83
    ids[:, ::190] = SEPARATOR
    return ids[None, :, :-1], ids[None, :, 1:]


@pytest.mark.slow
@pytest.mark.parametrize("record", LATER)
def test_two_updates_teach_something(record: str) -> None:
    """From the first two, and from two more where the last stage begins, as the schedule has it."""
    made = tiny(record)
    tokens = Tokens(vocab_size=VOCAB, separator=SEPARATOR, seq_len=3 * made.data.seq_len)
    trained = core(made, tokens=tokens)
    x, y = batch(made, 0)
    first = float(trained.evaluate(0, [(x[0], y[0])]))
    last = scheduled_steps(made) - 2
    for step in (0, 1, last, last + 1):
        losses = trained.update(step, [batch(made, step)])
        assert all(map(math.isfinite, losses.tolist()))
    after = float(trained.evaluate(made.schedule.steps, [(x[0], y[0])]))
    assert math.isfinite(after)
    assert after < first
