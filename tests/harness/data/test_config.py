"""The fields of data: what they are where nobody says anything, and the least and the most that they may be."""

from dataclasses import asdict

import pytest

from harness.data.config import DataConfig
from harness.errors import UserError
from harness.experiment.values import check_values

LIMITS = {
    "batch_tokens": (1, 2**34),
    "seq_len": (2, 2**24),
    "micro_tokens": (2, 2**28),
    "ranks": (1, 1024),
    "val_tokens": (1, None),
    "val_seq_len": (2, 2**24),
    "val_every": (1, None),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_number_is_within_its_limits(name: str) -> None:
    field = f"data.{name}"
    least, most = LIMITS[name]
    for value in filter(None, (least, most)):
        assert check_values({field: value}, str) == {field: value}
    with pytest.raises(UserError, match=f"is {least - 1}, but must be at least {least}$"):
        check_values({field: least - 1}, str)
    if most is None:
        assert check_values({field: 2**40}, str) == {field: 2**40}
        return
    with pytest.raises(UserError, match=f"is {most + 1}, but must be at most {most}$"):
        check_values({field: most + 1}, str)


def test_where_nothing_is_said_the_data_are_those_of_record_2() -> None:
    assert asdict(DataConfig()) == {
        "corpus": "stdlib",
        "batch_tokens": 524288,
        "seq_len": 1024,
        "micro_tokens": 65536,
        "ranks": 8,
        "loader": "per_rank",
        "shard_switch": "exceeds",
        "first_batch_twice": False,
        "order": "sequential",
        "alignment": None,
        "max_doc_len": (),
        "val_tokens": 10_485_760,
        "val_seq_len": None,
        "val_every": 128,
        "input_dtype": "int64",
        "pinned": False,
        "heldout": None,
        "cache": "none",
    }


def test_a_validation_passes_one_sequence_where_it_has_a_length_of_its_own() -> None:
    sizes = {"micro_tokens": 4096, "seq_len": 512}
    assert DataConfig(**sizes).val_portion == (4096, 512)
    assert DataConfig(**sizes, val_seq_len=2048).val_portion == (2048, 2048)
