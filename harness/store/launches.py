"""Which experiments of a results folder were launched here, and what going on would execute.

results/experiments/NAME/launched.json: the runs that were launched, a digest of what they execute,
and the mark of both.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.errors import UserError
from harness.provenance.launches import can_keep_key, is_mark_of, mark_of
from harness.run.digests import short_digest
from harness.run.document import Content
from harness.run.files import write_json
from harness.run.foreign import TrainerSpec
from harness.run.guarded import IN_FOLDER
from harness.run.plan import Plan
from harness.run.read import read_json

FILE = "launched.json"


def note_launch(results: Path, plan: Plan) -> None:
    """Note that this user launches a plan; what was launched under its name before stays known."""
    runs = {run.run_id for run in plan.runs} | launched_runs(results, plan.name)
    content = {"runs": sorted(runs), "executes": _executes(plan)}
    if content != _noted(results, plan.name):
        path = results / "experiments" / plan.name / FILE
        marked = {**content, "mark": mark_of([plan.name, content])}
        write_json(path, marked, below=IN_FOLDER)


def launched_runs(results: Path, name: str) -> set[str]:
    """The runs of an experiment that this user launched."""
    return set(_noted(results, name).get("runs", ()))


def is_launched(results: Path, plan: Plan) -> bool:
    """Whether this user launched a plan, and what it executes is what it executed then."""
    return _noted(results, plan.name).get("executes") == _executes(plan)


def _noted(results: Path, name: str) -> Content:
    """What was noted of an experiment, empty where nothing was, or not by this user."""
    content = read_json(results / "experiments" / name / FILE)
    if not isinstance(content, dict):
        return {}
    mark = content.pop("mark", None)
    return content if is_mark_of(mark, [name, content]) else {}


def _executes(plan: Plan) -> str:
    """A digest of everything that a plan makes a launch execute, or look at for that."""
    arms = []
    for arm in plan.arms:
        arms.append([arm.name, arm.side.to_mapping() if arm.side else None, arm.code])
    return short_digest([arms, list(plan.plugins)])


def check_launched(results: Path, plan: Plan, *, trust: bool) -> list[str]:
    """What going on with a plan executes, in words, where that is trusted and not launched here.

    Raises UserError, which says it, where it is neither.
    """
    if is_launched(results, plan):
        return []
    executed: list[str] = []
    for arm in plan.arms:
        if arm.side is not None:
            executed += commands_of(arm.side)
    return trusted(f"experiment '{plan.name}'", executed, trust=trust)


def trusted(what: str, sentences: Iterable[str], *, trust: bool) -> list[str]:
    """What would be executed; raises UserError, which says it, where it is not trusted."""
    lines = list(dict.fromkeys(sentences))
    if not trust:
        by_you = "by you"
        if not can_keep_key():
            by_you += " (what you launch is not known again: no key can be kept in your home;"
            by_you += " name a folder in XDG_STATE_HOME)"
        raise UserError(
            f"{what} was not launched here {by_you}: it would execute {'; '.join(lines)}: "
            "look at that first, then add --trust"
        )
    return lines


def commands_of(trainer: TrainerSpec) -> list[str]:
    """What a trainer executes, in words."""
    place = trainer.file or f"{trainer.repo} at {trainer.ref or 'HEAD'}"
    commands = [
        f"`{' '.join((trainer.command, *trainer.args))}` with {trainer.script_name} of {place}"
    ]
    return commands + environment_words(trainer.environment)


def command_words(env: Mapping[str, str], command: str, arguments: Iterable[str]) -> str:
    """A trainer's command as a shell would be given it."""
    return " ".join([*(f"{name}={value}" for name, value in env.items()), command, *arguments])


def environment_words(environment: Mapping[str, str]) -> list[str]:
    """The interpreter or the container of a run that has one of its own, in words."""
    return [f"the {kind} `{command}`" for kind, command in environment.items()]
