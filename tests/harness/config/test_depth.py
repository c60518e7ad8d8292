"""What is said of layers in a network that keeps some of them, and what a scale makes of a list."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.config.depth import BETWEEN, LISTS, TABLES, at_depth
from harness.config.presets import preset_values
from harness.config.run import hint_of, toggles
from harness.config.scales import load_scale
from harness.errors import UserError

KEPT = [0, 1, 3, 6, 8]  # of nine layers
CASES = {
    "key_offset": ((3, 7, 8), (2, 4)),
    "attn_free_layers": ((2,), ()),
    "mlp_free_layers": ((0, 6), (0, 3)),
    "value_embed": ((0, 1, 2, None, None, None, 2, 1, 3), (0, 1, None, 2, 3)),
    "backout": (5, 2),
    "skip_layers": ((4, 5), (2, 3)),
    "lanes": (7, 4),
    "paired_heads": ((0, 2, 8), (0, 4)),
    "attn_window_layers": ((), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_that_is_kept_brings_along_what_is_said_of_it(name: str) -> None:
    before, after = CASES[name]
    assert at_depth({f"model.{name}": before}, KEPT) == {f"model.{name}": after}


@pytest.mark.parametrize("name", ["backout", "lanes", "mudd_gate"])
def test_a_layer_that_is_kept_itself_is_the_one_that_is_meant(name: str) -> None:
    assert at_depth({f"model.{name}": 6}, KEPT) == {f"model.{name}": 3}
    assert at_depth({"model.skip_layers": (3, 6)}, KEPT) == {"model.skip_layers": (2, 3)}
    assert at_depth({"model.skip_layers": ()}, KEPT) == {"model.skip_layers": ()}


def test_patterns_and_what_is_off_stay() -> None:
    values = {"model.attn_free_layers": "after_middle", "model.value_embed": None, "model.x": 3}
    assert at_depth(values, KEPT) == values


@pytest.mark.parametrize("scale", ["small", "tiny"])
def test_a_scale_keeps_the_layers_of_which_something_is_said(scale: str) -> None:
    """Of twelve and of eleven layers: long windows, tables, the skip's ends, those without a part."""
    loaded = load_scale(scale, "r20")
    assert set(loaded.layers) == {11, 12}
    values = {
        **preset_values("r20")[0],
        "model.n_layer": 11,
        "model.attn_window_layers": (3, 10),
        "model.attn_free_layers": (6,),
        "model.skip_layers": (3, 6),
        "model.value_embed": (1, 2, *[None] * 6, 0, 1, 2),
    }
    at = loaded.apply(values)
    assert at["model.n_layer"] == 8
    assert at["model.attn_window_layers"] == (3, 7)
    assert at["model.attn_free_layers"] == (4,)
    assert at["model.skip_layers"] == (3, 4)
    assert at["model.value_embed"] == (1, 2, None, None, None, 0, 1, 2)


def test_a_scale_multiplies_every_value_of_a_list() -> None:
    windows = {"schedule.windows": (384, 896, 1408), "schedule.windows_short": (128, 384, 640)}
    at = load_scale("tiny", "r20").apply({**preset_values("r20")[0], **windows})
    assert at["schedule.windows"] == (96, 224, 352)
    assert at["schedule.windows_short"] == (32, 96, 160)


@pytest.mark.parametrize("kept", ["[0, 1, 2]", "[0, 2, 1, 3]", "[0, 0, 1, 2]"])
def test_layers_that_make_no_network_are_refused(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    scale = tmp_path / "experiments" / "scales" / "mine.yaml"
    scale.parent.mkdir(parents=True)
    scale.write_text(f"set: {{model.n_layer: 4}}\nlayers: {{12: {kept}}}\n")
    with pytest.raises(
        UserError, match=r"mine\.yaml:2: layers .* of 12 .* ascending order"
    ) as refused:
        load_scale("mine", "r20")
    kept_line(str(refused.value))


def test_every_toggle_that_lists_layers_is_known() -> None:
    lists = {name for name, _ in toggles() if "tuple[int" in str(hint_of(name))}
    known = {*LISTS, *TABLES, *BETWEEN}
    assert {name for name in lists if name.startswith("model.")} == known
