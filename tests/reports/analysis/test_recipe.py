"""What a recipe says of the runs: the value that all have, a list where they differ, nothing where none tells it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.config.device import for_device
from harness.config.presets import preset_values, to_config
from harness.run.plan import Plan, PlanArm, PlanCorpus
from reports.analysis.recipe import Recipe
from reports.analysis.recipe_columns import RECIPE_COLUMNS
from reports.analysis.recipe_facts import setting_words
from reports.inputs.load import load
from tests.report_fixtures import write_experiment

BY_KEY = {column.key: column for column in RECIPE_COLUMNS}
CONFIG = {
    "model": {"n_layer": 6, "d_model": 512, "head_dim": 128, "attn_kernel": "flex", "attn_mask": None},
    "optim": {"muon_lr": 0.02, "adam_lr": 0.0081234, "embed_lr": None, "muon_backend": "newton"},
    "data": {"seq_len": 1024, "batch_tokens": 4096},
    "precision": {"mode": "record", "policy": "autocast"},
    "system": {"compile": True},
}  # fmt: skip
RUN = {
    "config": CONFIG,
    "budget": 100,
    "world_size": 8,
    "substituted": ["a by b"],
    "source": {"digest": "c0de", "files": {"plugin/x.py": "d1", "model/gpt.py": "d2"}},
}
GIT = {"commit": "0123456789abcdef", "dirty": False}
PLAN = Plan(
    name="split", base="r07", scale="tiny", baseline="base", departures={"optim.muon_lr": 0.05},
    arms=(PlanArm(name="base"), PlanArm(name="a", substituted=("x by y",))),
    corpus=PlanCorpus(name="mine", fingerprint="f" * 64, tokens=77,
                      heldout={"name": "other", "fingerprint": "e" * 64}),
)  # fmt: skip


def result(
    started: str | None = "2026-01-05T08:00:00Z",
    parameters: int | None = 9,
    tokens: int | None = None,
) -> SimpleNamespace:
    return SimpleNamespace(started=started, parameters=parameters, tokens=tokens)


def recipe(
    plan: Plan = PLAN, base=(RUN,), a=(), results=None, environments=(), budget=None
) -> Recipe:
    return Recipe(plan=plan, budget=budget, by_arm={"base": base, "a": a},
                  results_by_arm={"base": (result(),)} if results is None else results,
                  environments=environments, plugins={})  # fmt: skip


def fact(key: str, **how):
    return BY_KEY[key].of(recipe(**how))


def run(**sections) -> dict:
    return {**RUN, "config": {name: {**CONFIG[name], **sections.get(name, {})} for name in CONFIG}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base", "r07 at scale tiny"),
        ("departures", ["optim.muon_lr 0.02 (r07: 0.05)"]),
        ("layers", 6),
        ("width", 512),
        ("heads", 4),
        ("parameters", 9),
        ("seq_len", 1024),
        ("batch_tokens", 4096),
        ("steps", 100),
        ("tokens", 409600),
        ("rates", "muon_lr 0.02, adam_lr 0.008123"),
        ("precision", "fp32 weights under bf16 autocast"),
        ("kernels", "flex attention, newton in Muon, compiled"),
        ("substituted", ["a by b"]),
        ("corpus", "mine, fingerprint ffffffffffffffff"),
        ("corpus_tokens", 77),
        ("heldout", "other, fingerprint eeeeeeeeeeeeeeee"),
        ("device_count", 8),
        ("dates", "2026-01-05"),
        ("code", "c0de"),
        ("plugins", ["plugin/x.py d1"]),
    ],
)
def test_a_fact_is_what_the_runs_recorded(key, value):
    assert fact(key) == value


def test_rates_of_a_scale_say_where_they_are_from_and_rates_of_ones_own_do_not():
    told = replace(PLAN, departures={}, scale_rates="by factors tuned on record 7 alone")
    written = "muon_lr 0.02, adam_lr 0.008123"
    assert (
        fact("rates", plan=told) == f"{written}; at scale tiny by factors tuned on record 7 alone"
    )
    assert fact("rates", plan=replace(told, departures=PLAN.departures)) == written
    assert fact("rates", plan=told, base=({"config": {}},)) is None


def test_formats_are_words_and_a_policy_is_none_where_all_is_fp32():
    plain = run(precision={"mode": "fp32"})
    assert fact("precision", base=(plain,)) == "fp32 throughout"
    mixed = ["fp32 weights under bf16 autocast", "fp32 throughout"]
    assert fact("precision", base=(RUN, plain)) == mixed
    assert fact("precision", base=({"config": {}},)) is None
    told = run(model={"attn_mask": "causal"}, system={"compile": "auto"})
    words = "flex attention, causal mask, newton in Muon, {}"
    for environments, compiled in (
        ([], "compiled on CUDA alone"),
        ([{"cpu": "EPYC"}], "compiled on CUDA alone"),
        ([{"gpus": []}, {"gpus": ["H100"]}], "compiled on CUDA alone"),
        ([{"gpus": []}, {"gpus": []}], "not compiled (no CUDA)"),
    ):
        assert fact("kernels", base=(told,), environments=environments) == words.format(compiled)
    forced = run(system={"compile": "on"})
    assert fact("kernels", base=(forced,), environments=[{"gpus": []}]).endswith(", compiled")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((None, "off"), (False, "off"), (True, "on"), ("", ""), ("flex", "flex")),
        *((0, "0"), (1, "1"), (0.25, "0.25"), ({"b": 1, "a": [2, None]}, '{"a":[2,null],"b":1}')),
    ],
)
def test_a_setting_is_as_a_person_reads_it(value, words):
    assert setting_words(value) == words


def test_what_a_device_replaces_is_told_in_words():
    notes = for_device(to_config(preset_values("r08")[0]), "cpu", frozenset())[1]
    assert fact("substituted", base=({**RUN, "substituted": [*notes]},)) == [
        "sdpa attention for cudnn (no CUDA)",
        "fp32 for the record's number formats (CPU)",
    ]


def test_runs_that_differ_tell_every_value_once():
    other = run(
        model={"n_layer": 8, "d_model": 768}, optim={"muon_lr": 0.03}, data={"batch_tokens": 8192}
    )
    both = (RUN, RUN, other)
    assert fact("layers", base=both) == [6, 8] and fact("batch_tokens", base=both) == [4096, 8192]
    assert fact("heads", base=both) is None and fact("tokens", base=both) is None
    assert fact("rates", base=both) == "muon_lr 0.02 or 0.03, adam_lr 0.008123"
    assert fact("steps", a=({**RUN, "budget": 50},)) == {"base": 100, "a": 50}
    assert fact("steps", base=({**RUN, "budget": 50}, RUN)) == [50, 100]
    assert fact("steps", a=({**RUN, "budget": 50},), budget=50) == 50
    for foreign, made, told in (
        *((False, (90,), 100), (True, (90,), 90), (True, (80, 90), [80, 90]), (True, (), 100)),
    ):
        asked = recipe(plan=replace(PLAN, foreign=foreign))
        assert BY_KEY["steps"].of(replace(asked, steps=made)) == told
    between = result("2026-01-06T08:00:00Z")
    late = (result("2026-01-07T08:00:00Z", 11), result(), between, result(None, None))
    late_ones = {"base": late[:1], "a": late[1:]}
    assert fact("dates", results=late_ones) == "2026-01-05 to 2026-01-07"
    assert fact("parameters", results=late_ones) == {"base": 11, "a": 9}
    assert fact("parameters", results={"base": late}) == [9, 11]
    of_steps = {"base": (result(tokens=800),), "a": (result(tokens=804),)}
    assert fact("tokens", results=of_steps) == {"base": 800, "a": 804}
    assert fact("tokens", results={**of_steps, "a": of_steps["base"]}) == 800


@pytest.mark.parametrize("how", [{"imported": True}, {"foreign": True}, {"base": ""}])
def test_of_a_script_no_record_and_no_substitute_is_known(how):
    plan = replace(PLAN, **how)
    keys = ("base", "departures", "substituted", "heldout")
    assert [fact(key, plan=plan) for key in keys] == [None] * 4


def test_what_no_run_tells_is_unknown():
    bare = {"base": ({},), "results": {"base": (result(None, None),)}}
    keys = (
        "layers",
        "heads",
        "tokens",
        "rates",
        "kernels",
        "device",
        "device_count",
        "dates",
        "code",
        "commit",
    )
    assert [fact(key, **bare) for key in keys] == [None] * len(keys)
    assert fact("substituted", **bare) == ["x by y"]  # what the plan foresaw
    assert fact("departures", plan=replace(PLAN, departures=None)) is None
    assert fact("device_count", plan=replace(PLAN, evidence="records")) is None
    nothing = PlanCorpus()
    assert fact("corpus", plan=replace(PLAN, corpus=nothing)) is None
    assert fact("heldout", plan=replace(PLAN, corpus=nothing)) == "none"


@pytest.mark.parametrize(
    ("environments", "device"),
    [
        ([{"cpu": "EPYC"}], "EPYC"),
        ([{"cpu": "EPYC", "gpus": []}], "EPYC"),
        ([{"cpu": "EPYC", "gpus": ["H100", "H200"]}], "H100"),
        ([{"gpus": [{"name": "H100"}]}, {"gpus": ["H200"]}], ["H100", "H200"]),
        ([{"gpus": [{"name": "H100"}, {"name": "H200"}]}], "H100"),
        (
            [{"gpus": [{"name": "H100"}, "H200"]}, {"gpus": ["A100", {"name": "H200"}]}],
            ["H100", "A100"],
        ),
    ],
)
def test_the_device_is_the_accelerator_or_the_processor(environments, device):
    assert fact("device", environments=environments) == device


@pytest.mark.parametrize(
    ("git", "words"),
    [
        (None, None),
        ({}, None),
        (GIT, "0123456789ab"),
        ({"sha": "0123456789abcdef"}, "0123456789ab"),
        ({**GIT, "diff_sha256": "d"}, "0123456789ab, with changes not committed"),
        ({**GIT, "dirty": True}, "0123456789ab, with changes not committed"),
        ({**GIT, "dirty": True, "untracked": 2}, "0123456789ab, with 2 untracked files"),
        ({**GIT, "dirty": True, "untracked": 1}, "0123456789ab, with 1 untracked file"),
        (
            {**GIT, "diff_sha256": "d", "untracked": 2},
            "0123456789ab, with changes not committed, with 2 untracked files",
        ),
    ],
)
def test_a_commit_says_what_was_in_none(git, words):
    assert fact("commit", environments=[{"git": git}]) == words


def test_a_script_whose_number_of_steps_nobody_knows_made_none(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    made = load("split", tmp_path)
    of_base = made.runs["arm"] == made.plan.baseline
    unknown = made.runs["budget"].mask(of_base, 0)
    known = sorted({*made.runs.loc[~of_base, "budget"]})
    assert list(Recipe.of(made, None).steps) == known
    some = replace(made, runs=made.runs.assign(budget=unknown))
    assert list(Recipe.of(some, None).steps) == known
    none = replace(made, runs=made.runs.assign(budget=0))
    assert list(Recipe.of(none, None).steps) == []
