"""What a point of a run's curve says of the tokens that were read."""

from collections.abc import Callable

from harness.run.metrics import Validation
from harness.run.spec import RunSpec
from harness.training.train import train
from tests.one_training import STEPS, Recorder

GROWS = {
    "data__alignment": "packed",
    "data__loader": "global",
    "model__attn_mask": "document",
    "model__attn_kernel": "dense",
    "data__seq_len": 64,
    "data__micro_tokens": 64,
    "data__batch_tokens": 128,
    "schedule__stages": 2,
    "schedule__batch_growth": [1, 3],
}


def points(spec: RunSpec) -> list[Validation]:
    out = Recorder()
    outcome = train(spec, out=out, device="cpu", stop=lambda: False)
    assert outcome.status == "finished"
    return [Validation.from_json(row) for row in out.rows if row["kind"] == "val"]


def test_where_batches_grow_a_point_says_how_many(spec_of: Callable[..., RunSpec]) -> None:
    """Seven updates of 128 tokens, then seven of 384; validations after every fifth."""
    assert STEPS == 14
    told = {point.step: point.tokens for point in points(spec_of(**GROWS))}
    assert told == {0: 0, 5: 5 * 128, 10: 7 * 128 + 3 * 384, 14: 7 * 128 + 7 * 384}


def test_where_every_step_reads_as_many_no_point_does(spec_of: Callable[..., RunSpec]) -> None:
    assert {point.tokens for point in points(spec_of())} == {None}
