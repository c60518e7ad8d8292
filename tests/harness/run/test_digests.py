"""Digests: names that were given once stay what they are, whatever the order in which a mapping was filled."""

from hashlib import sha256
from pathlib import Path

import pytest

from harness.run.digests import (
    canonical,
    file_digest,
    result_digest,
    short_digest,
    spaced_digest,
    text_digest,
)
from harness.run.results import part_digest

VALUE = {"b": 1, "a": "é"}


def test_a_digest_is_what_it_has_been_from_the_first() -> None:
    assert canonical(VALUE) == '{"a":"é","b":1}'.encode()
    assert text_digest("é") == "4a99557e4033c353"
    assert short_digest(VALUE) == "aa58fba8483623be"
    whole = "d73913efb309b5986cdc9592ec8697c5a024c2240ce3217cf777d396c4e383ad"
    assert spaced_digest(VALUE) == whole


def test_the_order_of_a_mapping_is_no_part_of_its_digest() -> None:
    other = dict(reversed(VALUE.items()))
    assert [*other] != [*VALUE]
    for digest in (canonical, short_digest, spaced_digest):
        assert digest({"x": other}) == digest({"x": VALUE})
        assert digest({"x": [1, 2]}) != digest({"x": [2, 1]})


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 1])
def test_the_digest_of_a_file_is_that_of_all_its_bytes(size: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    digests = {file_digest(tmp_path / "a"), result_digest(tmp_path / "a")}
    assert len(digests) == 1
    (tmp_path / "a").write_bytes(b"x" * size + b"y")
    assert not digests & {file_digest(tmp_path / "a"), result_digest(tmp_path / "a")}


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 3, (2 << 20) + 1, (3 << 20) + 7])
def test_the_digest_of_a_part_is_that_of_its_first_bytes(size: int, tmp_path: Path) -> None:
    content = bytes(range(251)) * 13_000
    (tmp_path / "log.txt").write_bytes(content)
    assert part_digest(tmp_path / "log.txt", size) == sha256(content[:size]).hexdigest()
    assert part_digest(tmp_path / "log.txt", None) == sha256(content).hexdigest()
