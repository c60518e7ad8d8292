"""Between the blocks of `ablate ab --until decided`: what is asked of the statistics, what is told, what it has cost by then."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from harness.cli import ab_pool, ab_until
from harness.cli.ab_options import AbOptions
from harness.cli.ab_until import Until, budget_of
from harness.experiment.cost import Cost
from harness.run.plan import SeedsRule
from reports.stats.sequential import Continue, Stop

OPEN, DECIDED = Continue(n=1, reason="open: new"), Stop(reason="decided: better")


@dataclass(frozen=True, kw_only=True)
class Scripts:
    """What of an experiment is looked at here."""

    name: str = "x"
    seeds: tuple[int, ...] = (0, 1)
    seeds_rule: Any = None
    borrowed: tuple[int, ...] = ()
    baseline: Any = None


@pytest.fixture
def until(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Until:
    """A call whose blocks are made at once, a run each, which takes an hour of a device."""
    runs = [SimpleNamespace(spec=SimpleNamespace(run_id=str(n)), arm="old") for n in range(9)]
    store = SimpleNamespace(is_done=lambda run_id: True)

    def made(e: Any, *_: object, **__: object) -> Any:
        planned = runs[: len(e.seeds)]
        statuses = {run.spec.run_id: "finished" for run in planned}
        return SimpleNamespace(statuses=statuses, stopped=None), planned, store

    cost = Cost(runs=1, slot_hours=1.0, gpu_hours=None, source=None, words="")
    for name, patched in {
        "run_foreign": made,
        "stop_if_stopped": lambda *_: None,
        "track_beside": lambda *_, **__: None,
        "cost_of_blocks": lambda e, n, results: replace(cost, runs=n, slot_hours=float(n)),
    }.items():
        monkeypatch.setattr(ab_until, name, patched)
    monkeypatch.setattr("harness.foreign.plan.plan_foreign", lambda e: [])
    monkeypatch.setattr("harness.foreign.turns.blocks_before", lambda *_: (0, 1))
    monkeypatch.setattr(
        "harness.foreign.turns.with_blocks",
        lambda e, results, n, **_: replace(e, seeds=tuple(range(n))),
    )
    monkeypatch.setattr("harness.experiment.cost.spent", lambda made, results: float(len(made)))
    e: Any = Scripts(seeds_rule=SeedsRule(least=2, most=9, stop={"decide": 0.05}))
    options = AbOptions(old="old.py", new=["new.py"], until="decided", results=tmp_path)
    return Until(options=options, experiment=e, budget=None, began=time.monotonic())


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[str]]:
    """(what the statistics say after each block, how runs ended by then)"""
    said: list[Any] = []
    statuses = ["finished"]

    def loaded(*_: object, look: str) -> SimpleNamespace:
        assert look == "ab"
        return SimpleNamespace(runs=pd.DataFrame({"status": statuses}))

    monkeypatch.setattr(ab_until, "load_as_ran", loaded)
    monkeypatch.setattr("reports.analysis.adaptive.decide", lambda experiment: said.pop(0))
    return said, statuses


@pytest.mark.usefixtures("said_at_once")
@pytest.mark.parametrize("json", [False, True])
def test_blocks_are_added_while_it_is_open_and_each_is_told(
    json: bool,
    until: Until,
    decisions: tuple[list[Any], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    decisions[0][:] = [OPEN, OPEN, DECIDED]
    until.options = replace(until.options, json=json)
    e, *_ = until.run()
    assert (e.seeds, until.why, len(until.made)) == ((0, 1, 2, 3), "decided: better", 4)
    told = [] if json else ["open: new: 1 more"] * 2
    assert capsys.readouterr().out.splitlines() == told


def test_a_run_that_diverged_ends_it_where_it_is_not_decided(
    until: Until, decisions: tuple[list[Any], list[str]]
) -> None:
    said, statuses = decisions
    statuses.append("diverged")
    for first, why in (
        (OPEN, "a run diverged: a sequence has no interval of the others' mean"),
        (DECIDED, "decided: better"),
    ):
        said[:] = [first]
        e, *_ = until.run()
        assert (e.seeds, until.why) == ((0, 1), why)


@pytest.mark.parametrize(("text", "blocks"), [("5runs", 5), ("4runs", 4), ("20price", 5)])
def test_a_block_that_the_budget_does_not_pay_for_is_not_begun(
    text: str, blocks: int, until: Until, decisions: tuple[list[Any], list[str]]
) -> None:
    """The runs of this call count with those of the next block, which has one run."""
    decisions[0][:] = [OPEN] * 9
    until.budget, until.options = budget_of(text, 4.0), replace(until.options, price=4.0)
    e, *_ = until.run()
    assert len(e.seeds) == blocks
    assert until.why == f"another block would take more than --budget {text}"


def test_what_a_call_took_has_a_price_where_an_hour_has_one(until: Until) -> None:
    runs: Any = [SimpleNamespace(spec=SimpleNamespace(run_id=name)) for name in "abc"]
    until.made = {"a", "b"}
    assert (until.spent(runs).runs, until.spent(runs).price) == (2, None)
    until.options = replace(until.options, price=2.5)
    assert (until.spent(runs).hours, until.spent(runs).price) == (2.0, 5.0)


@pytest.mark.usefixtures("said_at_once")
@pytest.mark.parametrize(
    ("loss", "status", "n_borrowed"),
    [(1.0, "finished", 5), (None, "diverged", 0), (1.0, "diverged", 0), (None, None, 0)],
)
def test_nothing_is_borrowed_where_a_fresh_run_has_no_loss(
    loss: float | None,
    status: str | None,
    n_borrowed: int,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = SimpleNamespace(status="finished", val_loss=1.0)
    pool = [SimpleNamespace(spec=SimpleNamespace(run_id="p"), result=earlier)] * 5
    monkeypatch.setattr("harness.foreign.pool.borrowable", lambda *_: pool)
    monkeypatch.setattr(ab_pool, "run_foreign", lambda e, *_, **__: ab_until.run_foreign(e))
    monkeypatch.setattr(ab_pool, "stop_if_stopped", lambda *_: None)
    fresh = None if status is None else SimpleNamespace(status=status, val_loss=loss)
    monkeypatch.setattr("harness.run.results.result_in", lambda *_: fresh)
    monkeypatch.setattr("reports.stats.pool.drift_p", lambda earlier, fresh: 0.9)
    e: Any = Scripts(borrowed=(1, 2, 3, 4, 5), baseline=SimpleNamespace(name="old"))
    agreed, made = ab_pool.where_fresh_agree(e, until.options, n=2)
    assert (len(agreed.borrowed), [*made]) == (n_borrowed, ["0", "1"])
