"""Axes, keys per scale, bundled changes: what an experiment file with them resolves to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.plan import plan_runs

GOOD = """
name: good
base: r07
scale: tiny
changes:
  untied_head: r08.untied_head
  post_embed_norm: r08.post_embed_norm
"""


def load(folder: Path, text: str, device: str = "cpu", **overrides: object) -> Experiment:
    path = folder / "exp.yaml"
    path.write_text(text)
    return load_experiment(str(path), device=device, overrides=overrides)


def test_every_arm_crosses_the_axes_and_the_baseline_too(tmp_path: Path) -> None:
    e = load(
        tmp_path,
        GOOD + "design: factorial\naxes: {optim.muon_lr: [x0.5, x1], model.n_layer: [4, 8]}\n",
    )
    assert len(e.arms) == 4 * 4
    own = e.baseline.config.optim.muon_lr
    assert (e.baseline.name, e.baseline.config.model.n_layer) == ("baseline", 8)
    at = {a.name: a for a in e.arms}["untied_head @ muon_lr x0.5, n_layer 4"]
    assert (at.of, at.point) == ("untied_head", {"optim.muon_lr": "x0.5", "model.n_layer": "4"})
    assert (at.config.optim.muon_lr, at.config.model.n_layer) == (own / 2, 4)
    runs = plan_runs(e)
    assert len({r.spec.run_id for r in runs}) == len(runs) == 16 * 3


def test_a_pattern_moves_every_rate_that_is_on(tmp_path: Path) -> None:
    text = GOOD.replace(
        "r08.post_embed_norm", "[r08.post_embed_norm, r08.untied_head, r08.optimizer_split]"
    )
    arms = {
        a.name: a.config.optim for a in load(tmp_path, text + "axes: {optim.*_lr: [x1, x2]}\n").arms
    }
    for arm in ("baseline", "untied_head", "post_embed_norm"):
        once, twice = arms[arm], arms[f"{arm} @ *_lr x2"]
        assert (twice.muon_lr, twice.adam_lr) == (2 * once.muon_lr, 2 * once.adam_lr)
        assert twice.embed_lr == (None if once.embed_lr is None else 2 * once.embed_lr)
    assert arms["post_embed_norm"].embed_lr == 0.3  # a bundle sets what each of its changes sets


def test_the_baseline_as_it_is_stays_first_where_the_grid_lacks_it(tmp_path: Path) -> None:
    names = [a.name for a in load(tmp_path, GOOD + "axes: {optim.muon_lr: [x0.5, x2]}\n").arms]
    assert names[:3] == ["baseline", "baseline @ muon_lr x0.5", "baseline @ muon_lr x2"]
    assert "untied_head" not in names


def test_keys_of_a_scale_hold_at_that_scale_alone(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    text = (
        GOOD
        + "seeds: 4\nset: {data.val_every: 7}\nat_scale:\n  small: {seeds: 2, set: {schedule.steps: 90}, budgets: [x0.5, 100]}\n"
    )
    tiny, small = load(tmp_path, text), load(tmp_path, text, scale="small")
    assert (len(tiny.seeds), tiny.budgets) == (4, ())
    assert (len(small.seeds), small.budgets) == (2, (45, 100))
    assert (small.baseline.config.data.val_every, small.baseline.config.schedule.steps) == (7, 90)
    assert len(load(tmp_path, text, scale="small", seeds=9).seeds) == 9  # --set wins
    with pytest.raises(UserError, match=r"exp\.yaml:11: model\.n_layer is 'two'") as refused:
        load(tmp_path, text.replace("schedule.steps: 90", "model.n_layer: two"), scale="small")
    kept_line(str(refused.value))


def test_what_cannot_stand_alone_is_named_with_the_reason(tmp_path: Path) -> None:
    e = load(tmp_path, GOOD + "  zero_head: r08.zero_head\n")
    assert [a.name for a in e.arms] == ["baseline", "untied_head", "post_embed_norm"]
    assert len(e.left_out) == 1
    assert e.left_out[0].startswith(
        "zero_head, which cannot stand: model.head_init=zeros requires model.tied_head"
    )


def test_a_rung_that_cannot_stand_on_those_below_is_named_with_the_reason(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    changes = "  fixed: {model.value_residual: fixed}\n  each: {model.value_embed: each}\n"
    e = load(tmp_path, GOOD.partition("  untied")[0] + changes + "design: ladder\n")
    assert [arm.name for arm in e.arms] == ["baseline", "+fixed"]
    kept_line("\n".join(e.left_out))


def test_gpu_only_changes_are_left_out_without_cuda_alone(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    text = (
        GOOD
        + "  cudnn: r08.cudnn_attention\ngpu_only: [cudnn]\ndesign: explicit\narms: [[untied_head], [untied_head, cudnn]]\n"
    )
    assert [a.name for a in load(tmp_path, text).arms] == ["baseline", "untied_head"]
    assert [a.name for a in load(tmp_path, text, device="cuda").arms][-1] == "untied_head + cudnn"
    with pytest.raises(
        UserError, match="arms 'untied_head' and 'untied_head \\+ cudnn' are one and the same"
    ) as refused:
        load(tmp_path, text.replace("gpu_only: [cudnn]\n", ""))
    kept_line(str(refused.value))


@pytest.mark.parametrize(
    ("more", "who"),
    [
        ("axes: {model.n_layer: [4, 8]}\n", "an axis moves in"),
        ("set: {model.n_layer: 8}\n", "`set` fixes for"),
    ],
)
def test_what_is_the_same_in_every_arm_is_no_arms_change(
    tmp_path: Path, more: str, who: str, kept_line: Callable[[str], None]
) -> None:
    text = GOOD + "  deep: {model.n_layer: 6}\n"
    said = rf"exp\.yaml:8: change 'deep' sets model\.n_layer, which {who} every arm"
    with pytest.raises(UserError, match=said) as refused:
        load(tmp_path, text + more)
    kept_line(str(refused.value))
    factors = load(tmp_path, text + "axes: {model.n_layer: [x0.5, x1]}\n")  # of the arm's own
    layers = {arm.name: arm.config.model.n_layer for arm in factors.arms}
    assert (layers["deep"], layers["deep @ n_layer x0.5"]) == (6, 3)


CHAIN = (
    GOOD
    + "  cudnn: r08.cudnn_attention\ngpu_only: [cudnn]\ndesign: chain\n"
    + "arms: {a: [untied_head], b: [cudnn], c: [cudnn, untied_head], d: [post_embed_norm]}\n"
)


def test_a_parent_that_needs_cuda_leaves_its_place_to_its_own(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    text = CHAIN + "parents: {b: baseline, d: c, c: b}\n"
    with_cuda = {"a": "baseline", "b": "baseline", "c": "b", "d": "c"}
    assert load(tmp_path, text, device="cuda").parents == with_cuda
    assert load(tmp_path, text).parents == {"a": "baseline", "d": "baseline"}
    assert load(tmp_path, CHAIN).parents == {"a": "baseline", "d": "a"}
    with pytest.raises(UserError, match="'e' is no arm; there is: baseline, a, b, c, d") as refused:
        load(tmp_path, CHAIN + "parents: {d: e}\n")
    kept_line(str(refused.value))


def test_a_ladders_rung_that_needs_cuda_may_be_a_parent(tmp_path: Path) -> None:
    text = GOOD.replace("changes:", "changes:\n  cudnn: r08.cudnn_attention")
    text += "gpu_only: [cudnn]\ndesign: chain\nparents: {+post_embed_norm: +cudnn}\n"
    expected = {"+untied_head": "baseline", "+post_embed_norm": "baseline"}
    assert load(tmp_path, text).parents == expected


def test_a_chain_has_no_axes_but_those_of_its_rates(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    text = GOOD + "design: chain\naxes: {optim.*_lr: [x0.5, x1, x2]}\n"
    with pytest.raises(
        UserError, match=r"exp\.yaml:9: design chain and axes do not go together"
    ) as refused:
        load(tmp_path, text)
    kept_line(str(refused.value))
    retuned = load(tmp_path, text + "estimand: retuned\n")
    assert retuned.parents["+post_embed_norm"] == "+untied_head"


NOISE = "prior_noise: {sd: 0.02, source: 38 runs of this scale}\n"


@pytest.mark.parametrize(
    ("more", "beside"),
    [
        ("design: ladder\n", "design ladder"),
        ("design: factorial\n", "design factorial"),
        ("design: shapley\n", "design shapley"),
        ("axes: {optim.muon_lr: [x0.5, x1]}\n", "axes"),
    ],
)
def test_a_declared_noise_is_refused_where_the_question_is_judged_without_it(
    tmp_path: Path, more: str, beside: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=f"prior_noise has no place beside {beside}") as refused:
        load(tmp_path, GOOD + NOISE + more)
    kept_line(str(refused.value))


def test_a_declared_noise_is_for_the_measurement_of_a_retuned_experiment(tmp_path: Path) -> None:
    """Its grid only finds the rates."""
    rates = "estimand: retuned\naxes: {optim.*_lr: [x0.5, x1, x2]}\n"
    e = load(tmp_path, GOOD + NOISE + rates)
    assert e.prior_noise is not None and (e.prior_noise.sd, e.prior_noise.df) == (0.02, 4.0)
    assert e.grid is not None and e.grid.prior_noise is None


def test_numbers_move_one_field_and_factors_as_many_as_there_are(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    two = "optim.[am]*[mn]_lr"  # Muon's and Adam's rate
    with pytest.raises(
        UserError, match="moves several fields together: give factors such as"
    ) as refused:
        load(tmp_path, GOOD + f'axes: {{"{two}": [0.01, 0.02]}}\n')
    kept_line(str(refused.value))
    e = load(tmp_path, GOOD + f'axes: {{"{two}": [x1, x2]}}\n')
    assert [len(axis.fields) for axis in e.axes] == [2]
