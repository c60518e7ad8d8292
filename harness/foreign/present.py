"""Whether foreign scripts are still what ran: seen by reading them, nothing is started for it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.errors import UserError
from harness.foreign.collect import Tree, collect
from harness.provenance.source import Source
from harness.run.digests import run_id_of
from harness.run.plan import Plan, PlanArm, PlanRun
from harness.run.results import read_result

UNKNOWN_STEPS = 0  # the budget of a run whose script alone knows its number of steps


def with_present_scripts(plan: Plan) -> Plan:
    """The plan with run ids of the scripts as they lie on disk now.

    What they replace is kept as older (stale) runs. Code at a ref of a repository, patched code,
    and a script that is gone count as they were last planned: `ablate run` asks git.
    """
    sources = {arm.name: _source_on_disk(arm) for arm in plan.arms}
    return with_sources(plan, {name: source for name, source in sources.items() if source})


def with_sources(plan: Plan, sources: Mapping[str, Source]) -> Plan:
    """The plan with run ids of these arms' sources; those that it had are kept as older ones."""
    arms = []
    for arm in plan.arms:
        source = sources.get(arm.name)
        arms.append(arm if source is None else replace(arm, source=source.files))
    runs = [_renamed(run, sources[run.arm]) if run.arm in sources else run for run in plan.runs]
    return replace(plan, arms=tuple(arms), runs=tuple(runs))


def _source_on_disk(arm: PlanArm) -> Source | None:
    """Digests of an arm's script as it is, None where reading alone cannot tell."""
    written = arm.side
    if written is None or written.file is None or written.patches:
        return None
    tree = Tree(root=written.file.parent)
    try:
        code = collect(written.script_name, tree, where=arm.name, extra=written.extra)
    except (UserError, OSError):
        return None
    return code.source


def _renamed(run: PlanRun, source: Source) -> PlanRun:
    """The run under the name that it has with this source."""
    present = run_id_of(
        run.intent_id, source_digest=source.digest, environment_digest=run.environment or ""
    )
    return run.renamed(present)


def with_steps(results: Path, plan: Plan) -> Plan:
    """The plan with the number of steps that each run turned out to have, maybe elsewhere."""
    rows = []
    for run in plan.runs:
        if run.budget == UNKNOWN_STEPS:
            result = read_result(results / "runs" / run.run_id)
            rows.append(replace(run, budget=(result and result.budget) or UNKNOWN_STEPS))
        else:
            rows.append(run)
    return replace(plan, runs=tuple(rows))
