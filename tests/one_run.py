"""One run that no trainer makes, for tests of what is done with it."""

from harness.run.measured import Measured
from harness.run.metrics import Validation
from harness.run.spec import Outcome, RunSpec
from harness.store.attempt import RunWriter, claim
from harness.store.store import Store

SPEC = RunSpec(
    config={"model": {"n_layer": 2}},
    seed=3,
    budget=10,
    data_name="stdlib",
    data_fingerprint="f" * 64,
    source_digest="a" * 16,
    environment_digest="b" * 16,
    source_files={"model/gpt.py": "c" * 16},
    toggles=("the baseline: nothing is changed",),
)
DONE = Outcome(status="finished", final=Measured(val_loss=1.5, steps=10), wall={"train_s": 1.0})


def claimed(store: Store) -> RunWriter:
    out = claim(store, SPEC)
    assert out is not None
    return out


def finish(out: RunWriter, outcome: Outcome = DONE) -> None:
    out.describe({"host": "here"})
    out.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
    out.finish(outcome)
