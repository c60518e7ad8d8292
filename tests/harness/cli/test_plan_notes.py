"""What a plan says beside its table."""

import pytest

from harness.cli.plan import arm_facts, changes_of, print_notes
from harness.config import plugins
from harness.experiment.experiment import load_experiment


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


def test_a_plug_ins_arms_are_told_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "")
    lion = load_experiment("ideas/lion", device="cpu")
    said = {arm.arm: changes_of(arm, lion) for arm in arm_facts(lion, [], set())}
    assert said == {"baseline": "", "slow": "plugin.lion.lr=0.001", "fast": "plugin.lion.lr=0.003"}
