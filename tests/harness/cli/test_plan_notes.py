"""What a plan says beside its table."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main
from harness.cli.plan import print_notes
from harness.cli.plan_facts import PlanQuestion, arm_facts, changes_of, plan_facts
from harness.cli.power import known_of
from harness.config import plugins
from harness.corpora.text import BYTES, prepare_text
from harness.corpora.tokenizers import TokenizerChoice
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs


@pytest.mark.parametrize(
    ("device", "compiled", "told"),
    [("cuda", "auto", True), ("cuda", "off", False), ("cpu", "auto", False)],
)
def test_a_plan_says_that_fewer_logits_cost_time_where_they_are_compiled(
    capsys: pytest.CaptureFixture[str], device: str, compiled: str, told: bool
) -> None:
    overrides = {"model.loss_rows": 1024, "system.compile": compiled}
    print_notes(load_experiment("quickstart", device=device, overrides=overrides))
    assert ("model.loss_rows in " in capsys.readouterr().out) == told
    print_notes(load_experiment("quickstart", device="cuda"))
    assert "loss_rows" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "told"),
    [({}, False), ({"data.corpus": "mine"}, True), ({"data.corpus": "mine", "margin": 0.1}, False)],
)
def test_a_margin_that_was_chosen_for_another_text_is_told_as_such(
    overrides: dict[str, object],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    print_notes(load_experiment("quickstart", device="cpu", overrides=overrides))
    said = "margin 0.01: chosen for stdlib, taken as it is on mine; --set margin=X chooses another"
    assert (said in capsys.readouterr().out) == told


def test_a_margin_of_another_text_has_the_unit_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.01 nats per byte is not 0.01 nats per token."""
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    (tmp_path / "text").mkdir()
    for i in range(40):
        (tmp_path / "text" / f"{i}.txt").write_text(f"document {i} of forty\n" * 40)
    for name, choice in (("mine", BYTES), ("tokens", TokenizerChoice(name="bpe", vocab=260))):
        prepare_text([tmp_path / "text"], name=name, tokenizer=choice)
        overrides = {"data.corpus": name}
        print_notes(load_experiment("quickstart", device="cpu", overrides=overrides))
    said = capsys.readouterr().out
    assert "taken as it is on mine, in nats per byte; --set margin=X" in said
    assert "taken as it is on tokens, in nats per token; --set margin=X" in said


def test_a_plug_ins_arms_are_told_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "")
    lion = load_experiment("ideas/lion", device="cpu")
    said = {arm.arm: changes_of(arm, lion) for arm in arm_facts(lion, [], set())}
    assert said == {"baseline": "", "slow": "plugin.lion.lr=0.001", "fast": "plugin.lion.lr=0.003"}


@pytest.mark.parametrize(("scale", "told"), [("tiny", False), ("gpt2", True)])
def test_a_difference_is_told_in_steps_where_the_slope_is_of_its_scale(
    scale: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    overrides = {"scale": scale, "data.corpus": "fineweb10B"}
    e = load_experiment("r08_split", device="cuda", overrides=overrides)
    planned = plan_runs(e, world_size=8, need_data=False)
    facts = plan_facts(e, planned, tmp_path, PlanQuestion())
    assert (facts.power.steps is not None) == told
    assert any("a step is worth" in line for line in facts.power.words) == told
    assert any("a step takes" in line for line in facts.power.words) == (
        told and facts.power.seconds is not None
    )
    assert any("in loss, " in line and " steps, " in line for line in facts.power.words) == told
    assert any("in loss; in steps known after" in line for line in facts.power.words) != told


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"scale": "tiny"}, "at this scale (docs/lab-book.md))"),
        ({"scale": "tiny", "data.corpus": "fineweb10B"}, "on stdlib: another text)"),
        ({"scale": "gpt2", "data.corpus": "fineweb10B"}, "published for the era of r07)"),
        ({"scale": "gpt2", "data.corpus": "stdlib"}, "at full size on FineWeb; smaller runs"),
        (
            {"scale": "gpt2", "data.corpus": "fineweb10B", "model.n_layer": 3},
            "at full size on FineWeb; smaller runs",
        ),
    ],
    ids=str,
)
def test_noise_of_another_text_or_network_is_said_to_be_such(
    overrides: dict[str, Any], told: str, tmp_path: Path
) -> None:
    e = load_experiment("r08_split", device="cuda", overrides=overrides)
    known = known_of(e, tmp_path)
    assert f"({known.sd_source})".endswith(told) or told in known.sd_source
    own = overrides == {"scale": "gpt2", "data.corpus": "fineweb10B"}
    assert (known.step_ms is not None) == own


BATCHES = """
name: batches
question: q?
base: r08
scale: tiny
set: {data.batch_tokens: 4096, data.micro_tokens: 1024, data.ranks: 2, data.seq_len: 128, data.corpus: stdlib}
budgets: [BUDGETS]
slope: {per_step: 0.001, se: 0.0001}
changes:
  other: {CHANGE}
"""


@pytest.mark.parametrize(
    ("budgets", "change", "tokens", "told"),
    [
        ("100, 200", "data.batch_tokens: x0.5", [204_800, 409_600], True),
        ("100, 200", "model.attn_scale: 0.12", [409_600, 819_200], False),
        ("409600 tokens, 819200 tokens", "model.attn_scale: 0.12", [409_600, 819_200], True),
    ],
)
def test_a_plan_tells_tokens_where_steps_are_no_unit_or_budgets_are_of_them(
    budgets: str, change: str, tokens: list[int], told: bool, tmp_path: Path
) -> None:
    """A step of the baseline reads 4096: 0.001 of loss a step is 0.244 a million tokens."""
    file = tmp_path / "batches.yaml"
    file.write_text(BATCHES.replace("BUDGETS", budgets).replace("CHANGE", change))
    e = load_experiment(str(file), device="cpu")
    baseline, other = arm_facts(e, [], set())
    assert (baseline.tokens, other.tokens) == ([409_600, 819_200], tokens)
    facts = plan_facts(e, plan_runs(e, need_data=False), tmp_path, PlanQuestion())
    power = facts.power
    assert power.steps is not None and power.tokens == pytest.approx(4096 * power.steps)
    of_slope = "  a step is worth 0.001 of loss, a million of its tokens 0.244 (given)"
    assert e.tells_tokens == told == (of_slope in power.words)
    assert any("M tokens of the baseline)" in line for line in power.words) == told


def test_without_budgets_a_plan_has_the_tokens_of_each_arm_s_own_steps(tmp_path: Path) -> None:
    file = tmp_path / "batches.yaml"
    text = BATCHES.replace("budgets: [BUDGETS]\n", "").replace("slope", "# slope")
    file.write_text(text.replace("CHANGE", "schedule.steps: x2"))
    e = load_experiment(str(file), device="cpu")
    baseline, other = arm_facts(e, [], set())
    assert baseline.tokens == 4096 * baseline.steps and other.tokens == 2 * baseline.tokens
    assert not e.tells_tokens  # as many a step


@pytest.mark.parametrize(("budgets", "around"), [("[150]", [140, 160]), ("[100, 150]", None)])
def test_before_any_run_budgets_are_offered_around_the_only_one(
    budgets: str, around: list[int] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, results = "target={val_loss: 1.5}", str(tmp_path / "none")
    words = ["--set", target, "--set", f"budgets={budgets}", "--results", results, "--json"]
    with pytest.raises(SystemExit):
        main(["plan", "quickstart", *words])
    assert json.loads(capsys.readouterr().out)["power"]["budgets"] == around
