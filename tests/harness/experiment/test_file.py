"""Experiment files: what they resolve to, and the one line that each kind of bad input gets."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.lookup import parse_overrides
from harness.config.run import flat
from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.keys import check_name
from harness.experiment.plan import plan_runs
from harness.experiment.record import locked_plan
from harness.experiment.values import check_plugin_value, holds_number, holds_whole

GOOD = """
name: good
base: r07
scale: tiny
changes:
  untied_head: r08.untied_head
  zero_head: r08.zero_head
"""


def load(folder: Path, text: str, **arguments: object) -> Experiment:
    path = folder / "exp.yaml"
    path.write_text(text)
    return load_experiment(str(path), device="cpu", **arguments)  # type: ignore[arg-type]


def test_an_infeasible_subset_is_never_an_arm(tmp_path: Path) -> None:
    names = [a.name for a in load(tmp_path, GOOD + "design: factorial\n").arms]
    assert names == [
        "baseline",
        "untied_head",
        "untied_head + zero_head",
    ]  # a zero head needs an untied one


def test_leaving_one_out_also_leaves_out_what_needs_it(tmp_path: Path) -> None:
    arms = {a.name: a.changes for a in load(tmp_path, GOOD + "design: leave-one-out\n").arms}
    assert arms == {
        "baseline": (),
        "all": ("untied_head", "zero_head"),
        "all but zero_head": ("untied_head",),
    } | {k: v for k, v in arms.items() if k.startswith("all but untied_head")}
    assert all("zero_head" not in v for k, v in arms.items() if k.startswith("all but untied_head"))


def test_a_ladder_adds_one_change_after_the_other(tmp_path: Path) -> None:
    arms = load(tmp_path, GOOD + "design: ladder\n").arms
    assert [a.name for a in arms] == ["baseline", "+untied_head", "+zero_head"]
    assert arms[2].changes == ("untied_head", "zero_head")


def test_a_chain_is_a_ladder_or_what_the_file_lists_each_arm_with_a_parent(tmp_path: Path) -> None:
    ladder = load(tmp_path, GOOD + "design: chain\n")
    assert ladder.parents == {"+untied_head": "baseline", "+zero_head": "+untied_head"}
    listed = "arms: {a: [untied_head], b: [untied_head, zero_head], c: [softcap]}\n"
    text = GOOD + "  softcap: r09.softcap\ndesign: chain\n" + listed
    assert load(tmp_path, text).parents == {"a": "baseline", "b": "a", "c": "b"}
    named = load(tmp_path, text + "parents: {c: baseline, a: c}\n")
    assert named.parents == {"a": "c", "b": "a", "c": "baseline"}
    assert load(tmp_path, GOOD).parents == {}


def test_a_records_change_is_scaled_and_an_own_value_is_not(tmp_path: Path) -> None:
    text = GOOD.replace("r08.zero_head", "r08.muon_scale") + "  mine: {optim.muon_lr: 0.011}\n"
    arms = {a.name: a.config for a in load(tmp_path, text).arms}
    assert arms["mine"].optim.muon_lr == 0.011
    assert arms["zero_head"].optim.muon_lr == pytest.approx(0.02 * 2.4)
    # the factor acts on lr * update scale: record 7's sqrt(max) scale shrinks with the square root of the width
    assert arms["baseline"].optim.muon_lr == pytest.approx(3.6e-4 * 2.4 * (768 / 64) ** 0.5)


def test_a_budget_keeps_the_cooldowns_fraction(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD + "set: {schedule.steps: 3200}\n").baseline.config
    assert config.schedule.cooldown_steps == round(1450 / 5100 * 3200)
    fixed = load(
        tmp_path, GOOD + "set: {schedule.steps: 3200, schedule.cooldown_steps: 100}\n"
    ).baseline.config
    assert fixed.schedule.cooldown_steps == 100


def test_overrides_win_and_name_keys_of_the_file(tmp_path: Path) -> None:
    e = load(
        tmp_path,
        GOOD,
        overrides={"seeds": 2, "name": "mine", "schedule.steps": 50, "scale": "small"},
    )
    assert (e.name, e.seeds, e.scale, e.baseline.config.schedule.steps) == (
        "mine",
        (0, 1),
        "small",
        50,
    )
    assert flat(e.baseline.config)["model.d_model"] == 256


def test_confirmation_draws_from_seeds_of_its_own(tmp_path: Path) -> None:
    exploratory, confirming = load(tmp_path, GOOD), load(tmp_path, GOOD + "confirm: true\n")
    assert not set(exploratory.seeds) & set(confirming.seeds)


def test_on_and_off_are_words_in_a_file_and_in_an_override(tmp_path: Path) -> None:
    e = load(tmp_path, GOOD + "set: {system.compile: on}\n")
    assert e.baseline.config.system.compile == "on"
    e = load(tmp_path, GOOD, overrides=parse_overrides(["system.compile=off"], None))
    assert e.baseline.config.system.compile == "off"


HEAD = GOOD.partition("changes")[0]


def changes_of(n: int) -> str:
    return "".join(f"  c{i}: {{optim.muon_lr: 0.0{i}}}\n" for i in range(1, n + 1))


HALVING = HEAD + ("axes: {optim.muon_lr: [x0.5, x2]}\nbudgets: [x0.5, x1]\nhalving: 2\n")
BAD = {  # text -> what the line must say
    "": "the file is empty",
    "name: [a\n": "not valid YAML",
    "name: a\0b\n": "not valid YAML: unacceptable character #x0000",
    "- a\n- b\n": "must be a mapping",
    GOOD + "name: twice\n": "key 'name' is given twice",
    GOOD + "sedes: 3\n": "unknown key 'sedes'; did you mean 'seeds'?",
    "base: r07\nchanges: {a: r08.untied_head}\n": "the key 'name' is missing",
    GOOD.replace("r07", "r7"): "unknown record 'r7'; did you mean 'r07'?",
    GOOD.replace(
        "r08.untied_head", "r08.untied_haed"
    ): "unknown change 'untied_haed' of r08; did you mean 'untied_head'?",
    GOOD.replace("r08.untied_head", "{model.qknorm: before_rope}"): "did you mean 'model.qk_norm'?",
    GOOD.replace(
        "r08.untied_head", "{modle.qk_norm: null}"
    ): "'modle.qk_norm' is not a field of the configuration; did you mean 'model.qk_norm'?",
    GOOD.replace(
        "r08.untied_head", "{model.qk_norm: sideways}"
    ): "must be after_rope | before_rope | null",
    GOOD.replace("r08.untied_head", "{schedule.steps: many}"): "must be an integer",
    GOOD.replace(
        "r08.untied_head", "{model.tied_head: no}"
    ): "model.tied_head is 'no', but must be true or false",
    GOOD.replace("r08.untied_head", "{optim.muon_lr: -1.0}"): "must be greater than 0",
    GOOD.replace("r08.untied_head", "{model.n_layer: 1000000}"): "must be at most 1024",
    GOOD.replace(
        "r08.untied_head", "{model.n_layer: 1024, model.d_model: 65536}"
    ): "choose a smaller model",
    GOOD.replace("r08.untied_head", "{}"): "must be RECORD.CHANGE or a mapping",
    GOOD.replace(
        "  untied_head: r08.untied_head\n", ""
    ): "model.head_init=zeros requires model.tied_head to be false, but it is true",
    GOOD.replace("name: good", "name: ../../etc/passwd"): "must be a file name",
    GOOD.replace("name: good", "name: 7"): "name is 7, but must be text",
    GOOD.replace("scale: tiny", "scale: tyni"): "unknown scale 'tyni'; did you mean 'tiny'?",
    GOOD + "seeds: 0\n": "seeds is 0",
    GOOD + "seeds: {min: 3}\n": "seeds is {'min': 3}",
    GOOD + "seeds: [1, 1]\n": "must be a number from 1",
    GOOD + "seeds: [true]\n": "seeds is [True], but must be a number from 1",
    GOOD + "budgets: [0]\n": "budgets [0] must be different numbers",
    GOOD + "budgets: 300\n": "budgets must be a list of whole numbers",
    GOOD + "target: 3.28\n": "target is 3.28, but must be {val_loss: 3.28}",
    GOOD
    + "target: {val_loss: 3.28, reason: 7}\n": "target is {'val_loss': 3.28, 'reason': 7}, but",
    **{
        f"{GOOD}{key}: {value}\n": f"{key} is {said}"
        for key, form, said in (
            ("target", "{val_loss: #}", "{'val_loss': "),
            ("margin", "#", ""),
            ("slope", "{per_step: #, se: 1}", "{'per_step': "),
            ("prior_noise", "{sd: #, source: x}", "{'sd': "),
        )
        for value in (form.replace("#", far) for far in ("1.0e+200", "1" + "0" * 400))
    },
    GOOD + "budgets: [x1e400]\n": "budgets ['x1e400'] must be different numbers",
    GOOD + "budgets: [x1e307]\n": "budgets ['x1e307'] must be different numbers",
    GOOD + "branch_at: x1e400\n": "branch_at is 'x1e400', but must be a number of training steps",
    GOOD + "axes: {optim.muon_lr: [x1, x1e400]}\n": "optim.muon_lr",
    GOOD + "primary: loss\n": "primary 'loss' is not one of val_loss",
    GOOD + "margin: -1\n": "margin is -1, but must be positive",
    GOOD + "design: lader\n": "design 'lader' is unknown; did you mean 'ladder'?",
    GOOD
    + "parents: {zero_head: untied_head}\n": "design add-one has no parents: `design: chain` has",
    GOOD
    + "design: chain\nparents: {+zero_head: +softcap}\n": "parents: '+softcap' is no arm; there is: baseline, +untied_head, +zero_head",
    GOOD + "design: chain\nparents: {baseline: +zero_head}\n": "parents: 'baseline' has none",
    GOOD
    + "design: chain\nparents: {+untied_head: +zero_head}\n": "parents go in a circle: +untied_head -> +zero_head -> +untied_head",
    GOOD + "design: explicit\n": "an explicit design needs `arms`",
    GOOD
    + "design: explicit\narms: [[untied_haed]]\n": "unknown change 'untied_haed'; did you mean 'untied_head'?",
    GOOD
    + "set: {model.tied_head: false}\n": "change 'untied_head' sets model.tied_head, which `set` fixes",
    GOOD
    + "set: {data.micro_tokens: 100}\n": "data.micro_tokens=100 must be a multiple of data.seq_len=512",
    GOOD + "set: {schedule.steps: 2, schedule.cooldown_steps: 5}\n": "exceed schedule.steps=2",
    GOOD + "set: {model.attn_kernel: cudnn}\n": "model.attn_kernel=cudnn needs CUDA",
    GOOD.replace(
        "r08.untied_head", "r08.cudnn_attention"
    ): "arm 'untied_head' is the baseline on this machine",
    GOOD + "plugins: [missing.py]\n": "no such file",
    GOOD + "at_scale: {tiny: 3}\n": "at_scale: tiny must be a mapping of keys to values",
    GOOD + "phases: {time: {}}\n": "phases: 'time' is not one of loss, timing",
    GOOD + "phases: {timing: {}}\n": "phases: loss is missing",
    GOOD + "phases: {loss: 3}\n": "phases: loss must be a mapping such as {gpus_per_run: 8",
    GOOD + "phases: {loss: {gpus: 1}}\n": "phases: unknown key 'gpus' of loss",
    GOOD + "phases: {loss: {gpus_per_run: 0}}\n": "phases: gpus_per_run of loss is 0, but must",
    **{
        f"{GOOD}seeds: {value}\n": "seeds is "
        for value in (
            *("[]", "[a]", "[-1]", "[2147483648]", "{min: 1, max: 3, stop: {decide: 0.05}}"),
            *("{min: 4, max: 3, stop: {decide: 0.05}}", "{min: 2, max: x, stop: {decide: 0.05}}"),
            *("{min: 2, max: 3, stop: 0.05}", "{min: 2, max: 3, stop: {when: 1}}"),
            *("{min: 2, max: 3, stop: {decide: 0.05, half_width: 1}}", "many"),
            "{min: 2, max: 1001, stop: {decide: 0.05}}",
        )
    },
    GOOD + "seeds: {min: 2, max: 3, stop: {decide: 1}}\n": "seeds: stop decide is 1, but must",
    GOOD + "seeds: {min: 2, max: 3, stop: {decide: 0}}\n": "seeds: stop decide is 0, but must",
    GOOD + "seeds: {min: 2, max: 3, stop: {decide: yes}}\n": "seeds: stop decide is ",
    GOOD + "seeds: {min: 2, max: 3, stop: {half_width: 0}}\n": "seeds: stop half_width is 0, but",
    GOOD + "seeds: {min: 2, max: 3, stop: {half_width: .inf}}\n": "stop half_width is inf, but",
    GOOD.replace("r08.untied_head", "{model.tied_head: 1}"): "is 1, but must be true or false",
    **{
        f"{GOOD}{key}: {value}\n": f"{key} is "
        for key, values in (
            ("slope", ("3", "{per_step: 1}", "{per_step: a, se: 1}", "{per_step: 0, se: 1}")),
            ("slope", ("{per_step: 1, se: -1}", "{per_step: 1, se: 1, more: 1}")),
            ("prior_noise", ("3", "{sd: 1}", "{sd: a, source: x}", "{sd: 0, source: x}")),
            ("prior_noise", ("{sd: 1, df: 0.5, source: x}", "{sd: 1, df: 4.5, source: x}")),
            ("prior_noise", ("{sd: 1, source: 2}", "{sd: 1, source: x, more: 1}")),
        )
        for value in values
    },
    **{
        f"{GOOD}design: explicit\narms: {{{label}: [untied_head]}}\n": "must be printable and not"
        for label in ("baseline", '"a\\tb"')
    },
    **{
        HALVING + f"{key}: {value}\n": f"halving: {said}"
        for key, value, said in (
            ("changes", "{a: r08.untied_head}", "its points are those of `axes` without"),
            ("confirm", "true", "it chooses and confirms nothing"),
            ("primary", "step_ms", "the loss chooses: leave `primary` out"),
            (
                "seeds",
                "{min: 2, max: 3, stop: {decide: 0.05}}",
                "all points of a rung have the same",
            ),
            (
                "phases",
                "{loss: {}}",
                "its runs choose by their loss at the end of a budget: leave `ph",
            ),
            (
                "target",
                "{val_loss: 3.0, reason: x}",
                "its runs choose by their loss at the end of a",
            ),
            ("seeds", "1", "one seed tells no noise"),
        )
    },
    HALVING.replace("halving: 2", "halving: 1"): "halving is 1, but must be a whole number from 2",
    HALVING.replace("[x0.5, x2]", "[x2]"): "halving: one in 2 goes on, but there are 1 points",
    HALVING.replace(
        "[x0.5, x1]", "[x1]"
    ): "halving: points go on from one of `budgets` to the next",
    GOOD + "axes: {optim.muon_lr: 3}\n": "axis optim.muon_lr is 3, but must be a list of different",
    GOOD + "axes: {optim.muon_lr: [1, true]}\n": "axis optim.muon_lr is [1, True], but must be a",
    GOOD + "axes: {optim.muon_lr: []}\n": "axis optim.muon_lr is [], but must be a list of diff",
    GOOD
    + "estimand: retuned\nseeds: [1, 2]\naxes: {optim.*_lr: [x0.5, x1, x2]}\n": "estimand retuned needs `seeds` to be a number",
    GOOD.replace("r08.untied_head", "{unlike.all: 1}"): "is not a field of the configuration: see",
    **{
        f"{GOOD}{key}: {value}\n": f"{said}, but must"
        for key, value, said in (
            ("seeds", "1001", "seeds is 1001"),
            ("branch_at", "10000001", "branch_at is 10000001"),
            ("phases", "{loss: {seeds: 1001}}", "seeds of loss is 1001"),
            ("margin", "0", "margin is 0"),
        )
    },
    HEAD + "axes: {optim.muon_lr: [x1]}\n": "the axes have no point beside the baseline",
    HEAD + "changes: {}\n": "there are neither changes nor axes",
    HEAD + "changes:\n": "changes is empty: name some",
    HEAD + "design: ladder\naxes: {optim.muon_lr: [x2]}\n": "design ladder is about changes",
    HEAD
    + "gpu_only: [a]\nchanges: {a: r08.cudnn_attention}\ndesign: explicit\narms: [[a]]\n": "no arm is left on this machine: a: needs CUDA",
    **{
        f"{HEAD}changes: {{zero_head: r08.zero_head}}\ndesign: {design}\n": f"{design} needs all"
        for design in ("leave-one-out", "shapley")
    },
    **{
        f"{HEAD}design: {design}\nchanges:\n{changes_of(n)}": f"{design} takes at most {n - 1}"
        for design, n in (("factorial", 11), ("shapley", 6))
    },
    GOOD + "axes: {schedule.steps: [x0.5, x1]}\n": "axis schedule.steps: use `budgets`",
    GOOD + "axes: {model.tied_head: [1, 2]}\n": "axis model.tied_head holds no numbers",
    GOOD + "axes: {optim.muon_rl: [1, 2]}\n": "axis optim.muon_rl is no numeric field",
    **{
        f"{HEAD}changes: {{{name!r}: r08.untied_head}}\n": f"a change cannot be called {name!r}"
        for name in ("baseline", "a + b", "a @ b")
    },
    HEAD + 'changes: {"a\\tb": r08.untied_head}\n': "a change cannot be called 'a\\tb'",
    HEAD + "changes: {a: x0.5}\n": "change 'a' is a factor of no field",
    HEAD + "changes: {a: [r08.untied_head, 3]}\n": "change 'a' must be RECORD.CHANGE or a mapping",
    HEAD + "changes: {a: []}\n": "change 'a' must be RECORD.CHANGE or a mapping",
    GOOD + "at_scale: {tyni: {seeds: 2}}\n": "at_scale: unknown scale 'tyni'",
    GOOD + "at_scale: {small: {seed: 2}}\n": "at_scale may hold set, budgets",
    GOOD + "published: r8\n": "published is 'r8', which is no record",
    GOOD + "alters_noise: [untied_haed]\n": "alters_noise: unknown change 'untied_haed'",
    GOOD + "alters_noise: [3]\n": "alters_noise must be a list of names",
    GOOD + "budgets: [true]\n": "budgets must be a list of whole numbers",
    GOOD + "confirm: 1\n": "confirm is 1, but must be true or false",
    GOOD + "set: [1]\n": "set is [1], but must be a mapping of dotted fields to values",
    GOOD
    + "seeds: {min: 2, max: 3, stop: {decide: 0.05}}\nprior_noise: {sd: 1, source: x}\n": "prior_noise has no place beside a rule for seeds",
    **{
        GOOD.replace(
            "r08.untied_head", f"{{optim.muon_lr: {value}}}"
        ): f"is {said}, but must be a finite"
        for value, said in ((".inf", "inf"), (".nan", "nan"))
    },
    GOOD.replace(
        "r08.untied_head", "{optim.muon_lr: [1, 2]}"
    ): "optim.muon_lr is one number in an arm: several are an axis",
    GOOD + "steps: 300\n": "unknown key 'steps'; did you mean 'budgets'?",
    GOOD + "n_layer: 3\n": "a field stands under `set` or in a change: set: {model.n_layer: ...}",
    GOOD + "gpu_only: [zero_haed]\n": "gpu_only: unknown change 'zero_haed'",
    GOOD + "budgets: [10000001]\n": "budgets [10000001] must be different numbers",
    GOOD + "budgets: [100, x1e-9]\n": "budgets [100, 'x1e-9'] must be different numbers",
    GOOD + "confirm: true\nseeds: [1000, 999]\n": "seeds [1000, 999] are those of exploratory runs",
    GOOD + "estimand: retuned\naxes: {optim.*_lr: [x0.5, x1]}\n": "one axis of at least 3 factors",
    GOOD
    + "estimand: retuned\naxes: {optim.muon_lr: [1, 2, 3]}\n": "one axis of at least 3 factors",
    GOOD.partition("changes")[0]
    + "estimand: retuned\naxes: {optim.*_lr: [x0.5, x1, x2]}\n": "compares changes, each at",
    HALVING.replace("halving: 2", "halving: 101"): "halving is 101, but must be a whole number",
    HALVING.replace("halving: 2", "halving: 3"): "one in 3 goes on, but there are 2 points",
    GOOD
    + "arms: [[untied_head]]\n": "design add-one makes its own arms: say `design: explicit`, or leave `arms` out",
}


def test_what_just_fits_a_key_is_taken(tmp_path: Path) -> None:
    text = GOOD + (
        "seeds: [0, 2147483647]\nslope: {per_step: 0.1, se: 0, source: x}\n"
        "prior_noise: {sd: 0.1, df: 1, source: x}\nphases: {loss: {gpus_per_run: 1}, timing: {}}\n"
    )
    e = load(tmp_path, text)
    assert e.seeds == (0, 2147483647) and [*e.phases] == ["loss", "timing"]
    assert e.slope is not None and (e.slope.per_step, e.slope.se, e.slope.source) == (0.1, 0.0, "x")
    assert e.prior_noise is not None and (e.prior_noise.sd, e.prior_noise.df) == (0.1, 1.0)
    locked = locked_plan(e)
    assert locked["prior_noise"] == {"sd": 0.1, "df": 1.0, "source": "x"}
    assert (locked["seeds"], locked["seeds_rule"]) == ([0, 2147483647], None)
    rule = {"min": 2, "max": 2, "stop": {"decide": 0.05}}
    adaptive = load(tmp_path, f"{GOOD}seeds: {rule}\n")
    assert adaptive.seeds_rule is not None and len(adaptive.seeds) == 2
    later = replace(adaptive, seeds=(*adaptive.seeds, 7, 8))
    locked = locked_plan(later)  # what the rule adds is no change of plan
    assert locked["seeds"] == [*adaptive.seeds] and locked["seeds_rule"] == rule
    assert "prior_noise" not in locked


def test_the_most_of_a_key_is_taken(tmp_path: Path) -> None:
    most = load(
        tmp_path, GOOD + "seeds: 1000\nbudgets: [10000000]\nphases: {loss: {seeds: 1000}}\n"
    )
    assert (most.seeds, most.budgets) == (tuple(range(1000)), (10_000_000,))
    rule = "{min: 2, max: 1000, stop: {half_width: 7}}"
    adaptive = load(tmp_path, f"{GOOD}confirm: true\nseeds: {rule}\n")
    assert adaptive.seeds_rule is not None and adaptive.seeds_rule.most == 1000
    assert adaptive.seeds == (1000, 1001)
    confirms = load(tmp_path, GOOD + "confirm: true\nseeds: [1000, 2147483647]\n")
    assert confirms.seeds == (1000, 2147483647)
    rates = "estimand: retuned\naxes: {optim.*_lr: [x0.5, x1, x2]}\nseeds: 2\n"
    retuned = load(tmp_path, GOOD + rates + "budgets: [90, 100, 95]\n")
    assert retuned.grid is not None and (retuned.axes, retuned.grid.budgets) == ((), (100,))
    assert (retuned.seeds, retuned.grid.seeds) == ((2000, 2001), (0, 1))
    assert retuned.grid.question == "At which optim.*_lr does each arm of good learn best?"
    slope = load(tmp_path, GOOD + "slope: {per_step: 0.1, se: 0}\n").slope
    noise = load(tmp_path, GOOD + "prior_noise: {sd: 0.1, source: x}\n").prior_noise
    assert slope is not None and slope.source == "given"
    assert noise is not None and noise.df == 4.0


def test_a_halving_takes_two_budgets_and_as_many_points_as_one_goes_on_of(tmp_path: Path) -> None:
    halving = load(tmp_path, HALVING + "seeds: 2\n").halving
    assert halving is not None
    assert (halving.one_in, halving.n_points, halving.rung) == (2, 2, 0)
    assert halving.budgets == tuple(sorted(halving.budgets)) and len(halving.budgets) == 2
    factors = ", ".join(f"x{1 + n / 1000}" for n in range(1, 101))
    most = HALVING.replace("x0.5, x2", factors).replace("halving: 2", "halving: 100")
    assert load(tmp_path, most).halving is not None


def test_two_arms_that_are_the_same_runs_are_refused(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    head = GOOD.partition("changes")[0]
    same = "changes: {a: {schedule.steps: 200}, b: {schedule.steps: 100}}\nbudgets: [50, 60]\n"
    with pytest.raises(
        UserError, match=r"arms '(\w+)' and '(?!\1')\w+' are one and the same at 50 steps"
    ) as refused:
        plan_runs(load(tmp_path, head + same), need_data=False)
    kept_line(str(refused.value))


def test_what_no_toggle_declares_holds_no_number(tmp_path: Path) -> None:
    fields = ("optim.muon_lr", "model.n_layer", "model.tied_head", "model.gone", "plugin.a.b")
    assert [holds_number(field) for field in fields] == [True, True, False, False, False]
    assert [holds_whole(field) for field in fields] == [False, True, False, False, False]
    assert check_plugin_value("plugin.a.b", "as it is", "x") == "as it is"


@pytest.mark.parametrize("text", BAD, ids=BAD.values())
def test_bad_input_gets_one_line_with_the_file_and_the_way_out(
    tmp_path: Path, text: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    line = str(caught.value)
    assert BAD[text] in line
    assert "\n" not in line
    assert "exp.yaml" in line or "scale" in line or "missing.py" in line
    kept_line(line)


def test_messages_name_the_line_of_the_file(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=r"exp\.yaml:6: unknown change 'untied_haed'") as refused:
        load(tmp_path, GOOD.replace("r08.untied_head", "r08.untied_haed"))
    kept_line(str(refused.value))


def test_values_of_a_plug_in_outside_utf8_are_refused(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "exp.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(UserError, match="not UTF-8") as refused:
        load_experiment(str(tmp_path / "exp.yaml"), device="cpu")
    kept_line(str(refused.value))


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("r07", "r7") + (
        "steps: 300\nset: {model.dropout: 0.1, model.n_layer: two}\nseeds: 0\n"
        "axes: {optim.muon_rl: [x1], model.n_layer: [1, 1]}\nat_scale: {tny: {seeds: 2}}\n"
    )
    with pytest.raises(UserError) as error:
        load(tmp_path, text.replace("r08.untied_head", "r08.untied_haed"))
    places = [line.partition(": ")[0].rpartition("/")[2] for line in str(error.value).splitlines()]
    assert sorted(places) == sorted(f"exp.yaml:{n}" for n in (3, 6, 8, 9, 9, 10, 11, 11, 12))


def test_missing_keys_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, "scale: tyni\n")
    said = str(error.value)
    assert [
        key for key in ("name", "base", "changes") if f"the key '{key}' is missing" in said
    ] == [
        "name",
        "base",
        "changes",
    ]
    assert "did you mean 'tiny'?" in said


def test_a_name_has_at_most_a_hundred_characters() -> None:
    assert check_name("a" * 100, "name") == "a" * 100
    with pytest.raises(UserError, match="must be a file name"):
        check_name("a" * 101, "name")


def test_a_run_is_the_first_of_its_seed_unless_it_is_repeated(tmp_path: Path) -> None:
    """Its number is part of what a run is called: another beginning would disown every older result."""
    (tmp_path / "exp.yaml").write_text(
        "name: exp\nbase: r07\nscale: tiny\nchanges: {head: r08.untied_head}\n"
    )
    runs = plan_runs(load_experiment(str(tmp_path / "exp.yaml"), device="cpu"), need_data=False)
    assert {run.spec.asked()["replicate"] for run in runs} == {0}
