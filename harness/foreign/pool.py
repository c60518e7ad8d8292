"""Runs of a script that a results folder has, of whatever experiment: they are the same run again.

A run of the same code, arguments, variables, data and environment differs by its seed or number
alone, so that its name follows from those: it is asked for, nothing is searched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.foreign.arm import ForeignArm
from harness.foreign.experiment import ForeignExperiment
from harness.foreign.plan import spec_of
from harness.provenance.machine import describe_environment
from harness.run.document import Document
from harness.run.environment import read_environment
from harness.run.plan import Plan
from harness.run.results import Result, result_in
from harness.run.spec import RunSpec

GAP = 200  # names in a row without a run, after which none is looked for: of 100 seeds
TWINS = 2  # runs of one seed that a comparison of a script with itself has


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """A run with a result, and what was asked for."""

    spec: RunSpec
    result: Result


def borrowable(e: ForeignExperiment, results: Path, plan: Plan | None) -> list[EarlierRun]:
    """The baseline's runs that other experiments made on nodes of this kind.

    plan: of this experiment, whose runs are no borrowed ones. Of a script that takes the
    block's seed there are none: its runs are paired by it."""
    if e.baseline.trainer.seeded:
        return []
    of_own = {run.run_id for run in plan.runs if not run.borrowed} if plan else set()
    here = node_class(describe_environment().to_json())
    runs = []
    for run in earlier_runs(e, e.baseline, results):
        if run.spec.run_id in of_own:
            continue
        try:
            there = read_environment(results / "runs" / run.spec.run_id / "environment.json")
        except ValueError:
            continue
        if node_class(there) == here:
            runs.append(run)
    return runs


def node_class(environment: Document) -> tuple[str, ...]:
    """The kinds of its GPUs, of its processor where it has none.

    How many of them a run takes is in what was asked for: runs of other numbers are other runs."""
    gpus = environment.get("gpus") or ()
    names = {str(gpu if isinstance(gpu, str) else gpu.get("name")) for gpu in gpus}
    return tuple(sorted(names)) or (str(environment.get("cpu")),)


def earlier_runs(e: ForeignExperiment, arm: ForeignArm, results: Path) -> list[EarlierRun]:
    """All runs of the arm's script that have a result, by seed or number."""
    runs: list[EarlierRun] = []
    n_missing = 0
    for spec in at_every_seed(spec_of(e, arm), seeded=arm.trainer.seeded):
        result = result_in(f"{results}/runs/{spec.run_id}", spec.run_id)
        if result is not None:
            runs.append(EarlierRun(spec=spec, result=result))
        n_missing = 0 if result is not None else n_missing + 1
        if n_missing == GAP:
            break
    return runs


def at_every_seed(spec: RunSpec, *, seeded: bool) -> Iterator[RunSpec]:
    """The run at every seed and number, without end."""
    number = 0
    while True:
        if seeded:
            seed, twin = divmod(number, TWINS)
            yield replace(spec, seed=seed, replicate=twin)
        else:
            yield replace(spec, replicate=number)
        number += 1
