"""Looks at results, as they are remembered: what a command shows for the first time is noted."""

from collections.abc import Iterable
from pathlib import Path

from harness.run.files import now_iso
from harness.run.ledger import Ledger, Look, Seen, add_rows, claims_of, read_ledger
from harness.run.plan import Plan
from harness.run.results import Result, result_in
from harness.store.plans import readable_plans
from harness.store.store import Store


def note_look(results: Path, plan: Plan, by: str, ledger: Ledger | None = None) -> None:
    """Note what a look at an experiment shows that none showed before.

    Raises OSError where the folder cannot be written."""
    if plan.imported or plan.evidence:
        return  # logs have no seeds that somebody could choose
    ledger = ledger or read_ledger(results)
    claims = claims_of(plan)
    noted: set[tuple[str, str, float | None]] = set()
    last = None
    for look in ledger.looks:
        noted.update((seen.claim, seen.run_id, seen.val_loss) for seen in look.results)
        if look.experiment == plan.name and look.baseline == claims[plan.baseline]:
            last = look
    known_runs = {(claim, run_id) for claim, run_id, _ in noted}
    fresh = []
    for run in plan.runs:
        for run_id in (run.run_id, *run.older):
            claim = claims.get(run.arm, "")
            if (claim, run_id) in known_runs and run_id not in ledger.gone:
                break
            result = result_in(f"{results}/runs/{run_id}", run_id)
            if result is not None and (claim, run_id, _loss(result)) not in noted:
                seen = Seen(
                    claim=claim,
                    seed=run.seed,
                    intent_id=run.intent_id,
                    run_id=run_id,
                    val_loss=_loss(result),
                    train_time_s=result.train_time_s,
                )
                fresh.append(seen)
            if result is not None:
                break
    there = bool(fresh) or any((claims.get(r.arm), r.run_id) in known_runs for r in plan.runs)
    changed = last is None or last.seeds != plan.seeds or set(last.arms) != _others(plan, claims)
    if fresh or (there and changed):
        names = {claims[a.name]: a.name for a in plan.arms if a.name != plan.baseline}
        look = Look(
            at=now_iso(),
            by=by,
            experiment=plan.name,
            confirm=plan.confirm,
            baseline=claims[plan.baseline],
            arms=names,
            seeds=plan.seeds,
            results=tuple(fresh),
        )
        add_rows(results, [look.to_json()])


def _others(plan: Plan, claims: dict[str, str]) -> set[str]:
    return {claims[arm.name] for arm in plan.arms if arm.name != plan.baseline}


def _loss(result: Result) -> float | None:
    return result.val_loss if result.status == "finished" else None


def note_looks_at(results: Path, run_ids: Iterable[str], by: str) -> None:
    """Note a look at runs of whatever experiments: those that are not known are looked up."""
    ledger = read_ledger(results)
    noted = {seen.run_id for look in ledger.looks for seen in look.results}
    if noted.issuperset(run_ids):
        return
    for _, plan, _ in readable_plans(results):
        if plan is not None:
            note_look(results, plan, by)


def seeds_with_results(results: Path, plan: Plan) -> dict[int, str]:
    """Seed -> the experiment that has results of the plan's arms there, shown or not."""
    claims = claims_of(plan)
    wanted = set(claims.values())
    experiment_of: dict[int, str] = {}
    for look in read_ledger(results).looks:
        for seen in look.results:
            if seen.claim in wanted and seen.seed is not None:
                experiment_of.setdefault(seen.seed, look.experiment)
    store = Store(results)
    for name, other, _ in readable_plans(results):
        if other is None or other.imported:
            continue
        theirs = claims_of(other)
        for run in other.runs:
            is_asked = theirs.get(run.arm) in wanted and run.seed not in experiment_of
            if is_asked and run.seed is not None and store.is_done(run.run_id):
                experiment_of[run.seed] = name
    return experiment_of
