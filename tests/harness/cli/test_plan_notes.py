"""What a plan says beside its table."""

from pathlib import Path
from typing import Any

import pytest

from harness.cli.plan import PlanQuestion, arm_facts, changes_of, plan_facts, print_notes
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
