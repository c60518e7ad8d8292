"""What does not go together is refused with a way out that can be typed."""

import pytest

from harness.config.presets import preset_values, to_config
from harness.config.requires import refusals
from harness.config.run import Values, with_fields


@pytest.mark.parametrize(
    ("base", "fields", "said"),
    [
        (
            "r02",
            {"optim.adam_every": 2},
            "optim.adam_every=2 requires optim.matrix_optimizer to be muon, but it is adamw: "
            "set optim.matrix_optimizer, or leave optim.adam_every at 1",
        ),
        (
            "r58",
            {"optim.weight_decay": 0.0},
            "optim.weight_decay_form=cautious_strict requires optim.weight_decay to be switched "
            "on, but it is 0.0: set optim.weight_decay, or leave optim.weight_decay_form at "
            "decoupled",
        ),
        (
            "r15",
            {"model.attn_lambda": "in_out"},
            "model.attn_lambda=in_out conflicts with model.value_mix=pair: "
            "leave model.attn_lambda at null or model.value_mix at lerp",
        ),
        (
            "r11",
            {"model.skip_layers": (1, 2)},
            "model.skip_layers=[1, 2] conflicts with model.unet_skip=true: "
            "leave model.skip_layers at [] or switch model.unet_skip off",
        ),
    ],
)
def test_the_way_out_is_said_in_values_that_can_be_typed(
    base: str, fields: Values, said: str
) -> None:
    assert said in list(refusals(with_fields(to_config(preset_values(base)[0]), fields)))
