"""What a plan says beside its table."""

import pytest

from harness.cli.plan import print_notes
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
