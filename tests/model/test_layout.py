"""Which layer reads which value table, as the records' own scripts lay them out."""

import pytest

from harness.model.config import ModelConfig
from harness.model.layout import attention_free, table_of_layer

NONE = None


@pytest.mark.parametrize(
    ("pattern", "n_layer", "tables"),
    [
        ("each", 4, (0, 1, 2, 3)),
        ("mirrored", 12, (0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0)),
        ("mirrored", 5, (0, 1, 2, 1, 0)),
        ("ends", 12, (0, 1, 2, *[NONE] * 6, 0, 1, 2)),
        ("ends", 6, (0, 1, 2, 0, 1, 2)),
        ((0, NONE, 0), 3, (0, NONE, 0)),
        (NONE, 3, (NONE, NONE, NONE)),
    ],
)
def test_tables_go_to_layers_by_the_pattern(
    pattern: str | tuple[int | None, ...] | None, n_layer: int, tables: tuple[int | None, ...]
) -> None:
    assert table_of_layer(ModelConfig(n_layer=n_layer, value_embed=pattern)) == tables


@pytest.mark.parametrize(("n_layer", "layer"), [(12, 7), (6, 4), (5, 3)])
def test_after_the_middle_is_the_second_layer_of_the_second_half(n_layer: int, layer: int) -> None:
    config = ModelConfig(n_layer=n_layer, attn_free_layers="after_middle", value_embed="each")
    assert attention_free(config) == {layer}
    tables = table_of_layer(config)
    assert tables == tuple(None if i == layer else i for i in range(n_layer))
