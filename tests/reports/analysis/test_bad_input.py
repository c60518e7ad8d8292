"""What runs cannot answer: each case with its own sentence, shown where the number would have stood."""

import shutil

import numpy as np
import pytest

from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from tests.report_fixtures import Arm, write_experiment
from tests.sealing import seal_again

ARMS = (
    Arm(name="base"),
    Arm(name="good", loss_effect=-0.05, step_factor=0.8, fields=(("model.untied_head", True),)),
)


def loaded(root, **how):
    write_experiment(root, **{"arms": ARMS, "sd": 0.001, **how})
    return load("split", root)


def copied(experiment, root):
    runs = experiment.runs
    first, second = runs.loc[runs["arm"] == "good", "run_id"].iloc[:2]
    for file in ("metrics.jsonl", "result.json"):
        shutil.copy(root / "runs" / first / file, root / "runs" / second / file)
    seal_again(root / "runs" / second, run_id=second)
    return load("split", root)


def other_hardware(experiment, root):
    experiment.runs.loc[experiment.runs["arm"] == "good", "gpu"] = "another"
    return experiment


def equal(experiment, root):
    experiment.runs["val_loss"] = np.where(experiment.runs["arm"] == "good", 1.5, 1.6)
    return experiment


def not_a_number(experiment, root):
    experiment.runs.loc[experiment.runs["arm"] == "good", "val_loss"] = [
        np.nan,
        *[1.5 + i / 1e3 for i in range(4)],
    ]
    return experiment


def as_it_is(experiment, root):
    return experiment


@pytest.mark.parametrize(
    ("change", "how", "warning", "sentence"),
    [
        (copied, {}, Caution.DUPLICATE_RUN, "The same run appears twice and is counted once"),
        (
            other_hardware,
            {},
            Caution.MIXED_HARDWARE,
            "Runs come from different hardware, or of one block from different drivers or from two makings",
        ),
        (
            equal,
            {},
            Caution.ZERO_VARIANCE,
            "The losses or times of several runs are equal to the last digit",
        ),
        (
            not_a_number,
            {},
            Caution.NOT_A_NUMBER,
            "A finished run's loss is not a number: it counts as diverged",
        ),
        (
            as_it_is,
            {"budgets": (280, 300), "target": 1.40},
            Caution.NOT_BRACKETED,
            "The budgets do not bracket the target",
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_doubtful_input_is_spoken_of(tmp_path, change, how, warning, sentence):
    experiment = change(loaded(tmp_path, **how), tmp_path)
    outcome = compare_all(experiment)
    every = {*outcome.warnings, *(w for c in outcome.comparisons.values() for w in c.warnings),
             *(w for t in outcome.times.values() for w in t.warnings)}  # fmt: skip
    assert warning in every and warning.text.startswith(sentence)


def test_fewer_runs_than_a_rule_needs(tmp_path):
    one = compare_all(loaded(tmp_path, n_seeds=1)).of("good", "val_loss")
    assert (one.verdict, one.low, one.p, one.next_action, one.next_runs) == (
        "too few runs",
        None,
        None,
        "ablate confirm: 2 fresh seeds or more (4 runs)",
        4,
    )


def test_losses_on_different_data_are_not_compared(tmp_path):
    experiment = loaded(tmp_path)
    experiment.runs.loc[0, "fingerprint"] = "0" * 64
    with pytest.raises(
        ValueError, match=r"mixes runs of 2 different data sets .*run all arms on one corpus"
    ):
        compare_all(experiment)


def test_a_loss_that_is_no_number_is_an_outcome_and_not_dropped(tmp_path):
    effect = compare_all(not_a_number(loaded(tmp_path), tmp_path)).of("good", "val_loss")
    assert effect.n_arm == 5 and "trimmed" in effect.method


def test_every_sentence_is_its_own_and_names_a_cure():
    texts = [w.text for w in Caution]
    assert len(set(texts)) == len(texts) and all(t.endswith(".") and len(t) > 40 for t in texts)
