"""What each rung of a ladder adds to the one before it: of constructed losses, with intervals of its own."""

import html
import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from reports.analysis.compare import compare_all
from reports.analysis.increments import judged_pairs, own_words, rungs_of
from reports.analysis.types import OwnWords
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.page.embed import table_rows
from reports.page.write import write_report
from reports.stats.contrasts import Method, Sample
from reports.stats.increments import increment_sequences, increments
from reports.stats.sequential import t_mixture
from reports.verify.increments import planned_pairs
from reports.verify.page import read_page
from reports.verify.verify import check_statistics, verify
from tests.proof.batch import contrast_half
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

PAIRS = [(f"rung {i + 1}", f"rung {i}") for i in range(3)]


def chain_of(values):
    """Rows of losses, a rung each, in blocks."""
    blocks = tuple(range(values.shape[1]))
    return {
        f"rung {i}": Sample(values=row, blocks=blocks) for i, row in enumerate(np.asarray(values))
    }


def drawn(n_rungs=4, n_blocks=6, seed=1):
    rng = np.random.default_rng(seed)
    effects = np.array([0.0, 0.1, 0.094, 0.0])[:n_rungs, None]
    return effects + rng.normal(0, 0.01, (n_rungs, n_blocks)) + rng.normal(0, 0.05, n_blocks)


def test_a_rungs_own_part_is_judged_and_not_its_sum_with_those_below():
    """The second rung lies far above the first one, and yet adds nothing."""
    found = increments(chain_of(drawn()), PAIRS, level=0.95, m=3)
    assert [*found] == [("rung 1", "rung 0"), ("rung 2", "rung 1"), ("rung 3", "rung 2")]
    first, second, third = found.values()
    assert first.low > 0 and third.high < 0
    assert second.low < 0 < second.high and abs(second.delta) < 0.03


def test_complete_blocks_are_judged_by_the_larger_error_of_the_whole_ladder():
    y = drawn()
    k, n = y.shape
    residuals = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    df = (n - 1) * (k - 1)
    se = np.sqrt(2 * (residuals**2).sum() / df / n)
    for i, effect in enumerate(increments(chain_of(y), PAIRS, level=0.95, m=3).values()):
        assert effect.method is Method.TWO_WAY_SHARED
        assert effect.delta == pytest.approx(y[i + 1].mean() - y[i].mean())
        assert effect.high - effect.delta >= stats.t.isf(0.05 / 6, df) * se - 1e-12
        assert (effect.p < 0.05) == (effect.low > 0 or effect.high < 0)


def test_of_losses_without_noise_each_part_is_a_difference_alone():
    exact = np.arange(4.0)[:, None] ** 2 + np.arange(5.0)
    found = increments(chain_of(exact), PAIRS, level=0.95, m=3)
    assert [effect.delta for effect in found.values()] == pytest.approx([1.0, 3.0, 5.0])
    for effect in found.values():
        assert (effect.method, effect.low, effect.high, effect.p, effect.n_blocks) == (
            *(Method.DIFFERENCE, None, None, None, 5),
        )


@pytest.mark.parametrize("noisy", [0, 2, 3])
def test_the_study_computes_the_same_intervals(noisy):
    y = drawn(n_blocks=5)
    y[noisy] += np.array([0.3, -0.2, 0.1, -0.4, 0.2])
    for (i, rung), effect in zip(
        enumerate(np.diff(np.eye(4), axis=0)),
        increments(chain_of(y), PAIRS, level=0.95, m=3).values(),
    ):
        half = contrast_half(y.T[None], rung, 0.05 / 3)[0]
        assert effect.high - effect.delta == pytest.approx(half), i


@pytest.mark.slow
def test_all_intervals_of_a_ladder_hold_at_once():
    """400 ladders of four equal rungs in five blocks: one that leaves zero in at most 5 % and three standard errors."""
    wrong = 0
    for seed in range(400):
        y = np.random.default_rng(seed).normal(size=(4, 5))
        effects = increments(chain_of(y), PAIRS, level=0.95, m=3)
        wrong += any(e.low > 0 or e.high < 0 for e in effects.values())
    assert wrong / 400 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_a_rung_with_a_variance_of_its_own_is_compared_alone():
    chain = chain_of(drawn(n_blocks=8))
    found = increments(chain, PAIRS, level=0.95, m=3, alters_noise=frozenset({"rung 2"}))
    d = chain["rung 2"].values - chain["rung 1"].values
    own = found["rung 2", "rung 1"]
    half = stats.t.isf(0.05 / 6, 7) * d.std(ddof=1) / np.sqrt(8)
    assert own.high - own.delta == pytest.approx(half)


def test_before_the_planned_runs_are_there_each_pair_has_a_sequence():
    chain = chain_of(drawn(n_blocks=9))
    found = increment_sequences(chain, PAIRS, level=0.95, m=3)
    own = found["rung 2", "rung 1"]
    low, high, _ = t_mixture(chain["rung 2"].values - chain["rung 1"].values, 0.05 / 3)
    assert (own.low, own.high) == (low, high) and own.method is Method.SEQUENCE


def test_only_a_ladder_has_rungs(tmp_path):
    write_experiment(tmp_path, n_seeds=3)
    plan = load("split", tmp_path).plan
    names = [arm.name for arm in plan.arms]
    assert judged_pairs(plan) == tuple((arm, before) for before, arm in pairwise(names))
    assert judged_pairs(replace(plan, design="add-one")) == ()
    assert judged_pairs(replace(plan, axes={"optim.muon_lr": ("x1", "x2")})) == ()
    assert judged_pairs(replace(plan, arms=plan.arms[:2])) == ()
    assert judged_pairs(replace(plan, arms=(*plan.arms[:2], plan.arms[4], plan.arms[3]))) == ()


def test_a_missing_rung_parts_no_other_two(tmp_path):
    """Without the rung between, the difference of its neighbours is that of two parts."""
    lost = {(LADDER[2].name, seed): "failed" for seed in range(4)}
    write_experiment(tmp_path, n_seeds=4, outcome=lost)
    outcome = compare_all(load("split", tmp_path))
    has_part = [arm for arm, metric in outcome.increments if metric == "val_loss"]
    assert has_part == [LADDER[1].name, LADDER[4].name]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of a ladder."""
    folder = tmp_path_factory.mktemp("ladder")
    write_experiment(folder, budgets=(200, 300, 400), n_seeds=4, target=1.57)
    return write_report([load("split", folder)], folder / "page.html")


@pytest.fixture
def page(written, tmp_path):
    """A copy of it, which a test may forge."""
    return shutil.copy(written, tmp_path / "page.html")


@pytest.mark.slow
def test_the_verdict_and_the_headline_of_a_ladder_are_about_its_rungs_own_parts(page):
    assert verify(page) == []
    read = read_page(page)
    last = read.verdicts[0, 4]
    assert "own_val_loss.interval" in last and "val_loss.interval" in last
    assert last["own_val_loss.effect"].values != last["val_loss.effect"].values
    answer = read.sentences[0, "answer"]
    assert "the arm before it" in answer and "All parts together" in answer


def second_path(page):
    """What the second path of the statistics alone says, without the rerun."""
    read = read_page(page)
    data = read.data["experiments"][0]
    return [*check_statistics(read, 0, data, table_rows(data["runs"]))]


TAMPERED = ("own_val_loss.effect", "own_val_loss.interval", "own_val_loss.p")


@pytest.mark.slow
@pytest.mark.parametrize("key", TAMPERED)
def test_a_forged_own_part_is_found_by_the_second_path(page, key):
    text = page.read_text()
    at = text.index(f'data-key="{key}"')
    begin = text.index('data-v="', at) + len('data-v="')
    number = text[begin : text.index('"', begin)].split(",")[0]
    page.write_text(text[:begin] + str(float(number) + 0.02) + text[begin + len(number) :])
    assert any(key in sentence for sentence in second_path(page)), second_path(page)
    assert any(key in sentence for sentence in verify(page))


def test_a_forged_verdict_of_a_rung_is_found(page):
    text = page.read_text()
    assert text.count('data-key="verdict" class="verdict good">better<')
    page.write_text(text.replace(">better<", ">worse<", 1))
    assert any("does not follow from the interval" in sentence for sentence in second_path(page))


@pytest.mark.parametrize("pending", [False, True])
def test_the_second_path_knows_the_family_of_the_memory(tmp_path, pending):
    """Own parts hold for 40 changes at once; a page that says 20 is found."""
    waiting = {(LADDER[4].name, 8): "pending"} if pending else {}
    write_experiment(tmp_path, n_seeds=9, target=None, outcome=waiting)
    made = load("split", tmp_path)
    written = write_report([replace(made, memory=Memory(family=40))], tmp_path / "page.html")
    read = read_page(written)
    data = read.data["experiments"][0]
    rows = table_rows(data["runs"])
    assert [*check_statistics(read, 0, data, rows)] == []
    fewer = data | {"memory": data["memory"] | {"family": 20}}
    found = [*check_statistics(read, 0, fewer, rows)]
    assert any("own_val_loss.interval" in sentence or "sequence" in sentence for sentence in found)


BRANCHED = [("rung 1", "rung 0"), ("rung 2", "rung 1"), ("rung 3", "rung 1")]


def test_an_arm_of_a_chain_is_held_against_its_parent():
    """Two arms on one parent: each its own difference, by the errors of the whole chain."""
    y = drawn()
    found = increments(chain_of(y), BRANCHED, level=0.95, m=3)
    assert [*found] == BRANCHED
    assert found["rung 3", "rung 1"].delta == pytest.approx(y[3].mean() - y[1].mean())
    neighbours = increments(chain_of(y), PAIRS, level=0.95, m=3)
    for pair in BRANCHED[:2]:
        assert found[pair].low == pytest.approx(neighbours[pair].low)


@pytest.mark.slow
def test_all_intervals_of_a_branched_chain_hold_at_once():
    wrong = 0
    for seed in range(400):
        y = np.random.default_rng(seed).normal(size=(4, 5))
        effects = increments(chain_of(y), BRANCHED, level=0.95, m=3)
        wrong += any(e.low > 0 or e.high < 0 for e in effects.values())
    assert wrong / 400 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def chain_written(root, **case):
    """A chain: the third and the fifth arm stand on the second, the fourth on the third."""
    write_experiment(root, design="chain", **case)
    path = root / "experiments/split/experiment.json"
    plan = json.loads(path.read_text())
    names = [arm["name"] for arm in plan["arms"]]
    plan["parents"] = dict(zip(names[1:], (names[0], names[1], names[2], names[1])))
    path.write_text(json.dumps(plan))
    return names


@pytest.mark.slow
def test_a_chain_is_judged_by_named_parents_and_its_page_recomputed(tmp_path):
    names = chain_written(tmp_path)
    page = write_report([load("split", tmp_path)], tmp_path / "page.html")
    assert verify(page) == []
    outcome = compare_all(load("split", tmp_path))
    own = outcome.increments[names[4], "val_loss"]
    assert own.baseline == names[1]
    sums = [outcome.comparisons[names[i], "val_loss"].delta for i in (1, 4)]
    assert own.delta == pytest.approx(sums[1] - sums[0])
    read = read_page(page)
    assert "its parent" in read.sentences[0, "answer"]
    assert "rung" not in read.sentences[0, "answer"]
    assert f"{names[4]} against {names[1]}" in page.read_text()


def test_another_parent_is_noticed_by_the_second_path(tmp_path):
    names = chain_written(tmp_path)
    experiment = load("split", tmp_path)
    page = read_page(write_report([experiment], tmp_path / "page.html"))
    data = page.data["experiments"][0]
    data["plan"]["parents"][names[4]] = names[2]
    lines = [*check_statistics(page, 0, data, table_rows(data["runs"]))]
    assert any(f"{names[4]!r}: own_val_loss" in line for line in lines)


def test_a_chain_whose_parents_are_all_the_baseline_is_the_comparison(tmp_path):
    chain_written(tmp_path, n_seeds=3)
    plan = load("split", tmp_path).plan
    assert len(judged_pairs(plan)) == 4
    assert judged_pairs(replace(plan, parents=dict.fromkeys(plan.parents, plan.baseline))) == ()
    unknown = replace(plan, parents={**plan.parents, plan.arms[4].name: "nobody"})
    assert len(judged_pairs(unknown)) == 3


def test_a_bundles_ladder_keeps_its_rungs_beside_the_arms_of_another_length(tmp_path):
    """Those measure what steps are worth: neither is a rung, each is held against the rung without."""
    write_experiment(tmp_path, arms=LADDER[:4], n_seeds=2)
    made = load("split", tmp_path)
    beside = replace(made.plan.arms[-1], name="steps", changes=("steps",))
    every = replace(beside, name="all + steps", changes=(*made.plan.arms[-1].changes, "steps"))
    plan = replace(
        made.plan, arms=(*made.plan.arms, beside, every), foreign=True, remarks=("nothing",)
    )
    rungs = tuple(arm.name for arm in made.plan.arms)
    assert rungs_of(plan) == rungs
    lengths = (("steps", rungs[0]), ("all + steps", rungs[-1]))
    assert judged_pairs(plan) == (*judged_pairs(made.plan), *lengths)
    below_above = [(below, above) for above, below in lengths]
    assert planned_pairs(plan.to_mapping()) == [*pairwise(rungs), *below_above]
    assert judged_pairs(replace(plan, remarks=())) == ()
    assert own_words(plan).before == own_words(plan).briefly == "the same without the part"
    rungs_alone = replace(plan, arms=made.plan.arms)
    assert own_words(rungs_alone) == own_words(made.plan) == OwnWords()
    of_chain = OwnWords(arm="arm", before="its parent", briefly="its parent")
    assert own_words(replace(plan, design="chain")) == of_chain


def with_lengths(root):
    """A ladder of a bundle's parts with two arms of another length; the names of the rungs."""
    top = LADDER[3]
    lengths = (
        replace(LADDER[1], name="steps", loss_effect=0.02, fields=(("schedule.steps", 90),)),
        replace(top, name="all + steps", fields=(*top.fields, ("schedule.steps", 90))),
    )
    write_experiment(root, arms=(*LADDER[:4], *lengths), design="ladder")
    path = root / "experiments/split/experiment.json"
    plan = json.loads(path.read_text())
    plan |= {"foreign": True, "remarks": ["nothing"]}
    *rungs, steps, every = plan["arms"]
    steps["changes"], every["changes"] = ["steps"], [*rungs[-1]["changes"], "steps"]
    path.write_text(json.dumps(plan))
    return [arm["name"] for arm in rungs]


def test_arms_of_another_length_have_parts_of_their_own_and_a_page_that_is_recomputed(tmp_path):
    rungs = with_lengths(tmp_path)
    experiment = load("split", tmp_path)
    outcome = compare_all(experiment)
    assert outcome.judged("steps").baseline == rungs[0]
    assert outcome.judged("all + steps").baseline == rungs[-1]
    page = read_page(write_report([experiment], tmp_path / "page.html"))
    assert verify(tmp_path / "page.html") == []
    answer = page.sentences[0, "answer"]
    assert "the same without the part" in answer and "All parts but the length together" in answer
    held = f"Of another length: steps against {rungs[0]} and all + steps against {rungs[-1]}."
    assert held in html.unescape((tmp_path / "page.html").read_text())
    data = page.data["experiments"][0]
    data["plan"]["arms"][-1]["changes"] = [*data["plan"]["arms"][1]["changes"], "steps"]
    lines = [*check_statistics(page, 0, data, table_rows(data["runs"]))]
    assert any("'all + steps': own_val_loss" in line for line in lines)
