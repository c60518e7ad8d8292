"""`ablate split --prune DIR`: which parts of NEW can go, tried on fresh seeds."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.run.document import Content
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.split.folder import Folder
    from reports.inputs.experiment import Experiment

FILE = "prune.yaml"
NEW = "NEW"
EXPERIMENT_OF_PRUNING = """\
# `ablate run {path}`: NEW without parts that the first runs found cheap, on fresh seeds.
"""


@dataclass(frozen=True, kw_only=True)
class PrunedGroup:
    """What leaving a group out costs."""

    group: str
    at_most: float  # of loss, for all groups at once at 95 %
    may_go: bool


@dataclass(frozen=True, kw_only=True)
class PrunedScript:
    """A smaller script against NEW."""

    arm: str
    at_most: float | None  # of loss, for all scripts at once at 95 %; None: too few runs
    passes: bool


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What `--prune` found by now."""

    folder: "Folder"
    margin: float
    experiment: str | None = None  # the file that tries the smaller scripts
    groups: list[PrunedGroup] = field(default_factory=list)  # of the first runs
    scripts: list[PrunedScript] = field(default_factory=list)  # of the runs that try them
    written: str | None = None  # the script that was confirmed

    def to_mapping(self) -> Content:
        told = {f: getattr(self, f) for f in ("margin", "experiment", "written")}
        groups, scripts = map(asdict, self.groups), map(asdict, self.scripts)
        return {**told, "groups": [*groups], "scripts": [*scripts]}


Tell = Callable[[str], None]


def prune(path: Path, margin: float | None, results: Path, tell: Tell) -> Pruned:
    """Say what can go; write the experiment that tries it, then the script that it confirms.

    tell: takes what is found, in lines."""
    from harness.split.folder import read_folder
    from harness.yamlfile import YamlFile

    if margin is None or not 0 < margin < math.inf:
        raise UserError(
            "--prune: needs --margin, a number above 0: the largest loss that does not matter, as "
            "in 0.001"
        )
    folder = read_folder(path)
    content = dict(YamlFile(path / "experiment.yaml").data)
    name = str(content["name"])
    pruned = Pruned(folder=folder, margin=margin)
    tried = _loaded(f"{name}-prune", results)
    if tried is not None:
        _check_groups(folder, tried)
        return confirmed(pruned, tried, tell)
    explored = _loaded(name, results)
    if explored is None:
        raise UserError(f"{name}: has no runs in {results}: ablate run {path / 'experiment.yaml'}")
    _check_groups(folder, explored)
    return _with_experiment(pruned, content, explored, tell)


def _loaded(name: str, results: Path) -> "Experiment | None":
    from reports.inputs.load import load

    if not (results / "experiments" / name / "experiment.json").is_file():
        return None
    return load(name, results)


def _check_groups(folder: "Folder", ran: "Experiment") -> None:
    """Raises UserError where the runs are of other groups than the folder has now."""
    from harness.split.arms import measured

    changes = {change for arm in ran.plan.arms for change in arm.changes}
    gone = sorted(changes - {group.name for group in measured(folder.groups)})
    if gone:
        raise UserError(
            f"{ran.name}: ran with '{gone[0]}', which is no group that {folder.path} measures now: "
            f"give {folder.path / 'experiment.yaml'} another name and run it"
        )


def _costs(explored: "Experiment") -> dict[str, float]:
    """Group -> the largest loss that leaving it out may cost, for all groups at once at 95 %."""
    from reports.analysis.attribution import attributions

    for table in attributions(explored):
        if table.metric == "val_loss":
            costs = {}
            for group, columns in table.shares.items():
                share = columns.get("left_out")
                if share is not None and share.low is not None:
                    costs[group] = -share.low
            if costs:
                return costs
    raise UserError(
        f"{explored.name}: its runs say nothing of what is lost without each group: it needs "
        "`design: leave-one-out` or shapley, and two finished blocks or more whose losses are not "
        "all equal (a script gets its seed by {seed} in its command)"
    )


def _with_experiment(
    pruned: Pruned, content: Content, explored: "Experiment", tell: Tell
) -> Pruned:
    """The experiment that tries smaller scripts; raises UserError where nothing can go."""
    import yaml

    from harness.foreign.parts import lengths_of
    from harness.split.arms import measured
    from harness.split.folder import place
    from harness.split.prune import smaller_scripts

    folder, margin, costs = pruned.folder, pruned.margin, _costs(explored)
    for group, cost in sorted(costs.items(), key=lambda item: item[1]):
        pruned.groups.append(PrunedGroup(group=group, at_most=cost, may_go=cost <= margin))
        what = "may go" if cost <= margin else "stays"
        tell(f"{group}: without it at most {cost:+.4g} of loss: {what}")
    scripts = smaller_scripts(folder.groups, costs, margin)
    if not scripts:
        raise UserError(
            f"{folder.path}: nothing can go: leaving out each group may cost more than {margin:g}; "
            "more seeds narrow the intervals"
        )
    lengths = lengths_of(folder)
    everything = [group.name for group in measured(folder.groups)]
    arms = {NEW: everything}
    for kept in scripts:
        gone = [name for name in everything if name not in (*kept, *lengths)]
        arms[f"without {' and '.join(gone)}"] = [n for n in everything if n not in gone]
    n_seeds = len(explored.plan.seeds)
    content |= {
        "name": f"{content['name']}-prune",
        "question": f"Which parts of {folder.script} can go for less than {margin:g} of loss?",
        "design": "chain",
        "arms": arms,
        "parents": {arm: NEW for arm in arms if arm != NEW},
        "seeds": n_seeds,
        "margin": margin,
        "confirm": True,
    }
    path = folder.path / FILE
    text = EXPERIMENT_OF_PRUNING.format(path=path)
    place(folder.path, FILE, (text + yaml.safe_dump(content, sort_keys=False)).encode())
    seeds = plural(n_seeds, "fresh seed")
    tell(f"{path}: tries {plural(len(scripts), 'smaller script')}, {seeds} each")
    tell(f"then: ablate run {path} and this command again")
    return replace(pruned, experiment=str(path))


def confirmed(pruned: Pruned, tried: "Experiment", tell: Tell) -> Pruned:
    """Write the smallest script whose loss is above NEW's by less than the margin at 95 %."""
    from harness.cli.split_page import write_page_of
    from harness.split.folder import place
    from reports.analysis.compare import compare_all

    folder, margin, outcome = pruned.folder, pruned.margin, compare_all(tried)
    if tried.plan.margin != margin:
        tell(f"{FILE} was written for a margin of {tried.plan.margin:g}: what else may go, it left")
    written = None
    for arm in tried.plan.arms:
        against_new = outcome.increments.get((arm.name, "val_loss"))
        if against_new is None or against_new.baseline == outcome.baseline:
            continue
        high = against_new.high
        passes = high is not None and high <= margin
        ends = "its runs are too few for an interval" if high is None else f"at most {high:+.4g}"
        pruned.scripts.append(PrunedScript(arm=arm.name, at_most=high, passes=passes))
        tell(f"{arm.name}: {ends} of loss against NEW, margin {margin:g}")
        if passes and written is None:
            written = arm
    if written is None:
        tell("no script is confirmed: NEW stays as it is, or more seeds")
        return pruned
    text = folder.text(written.changes)
    path = place(folder.path, f"pruned/{folder.script}", text.encode())
    write_page_of(folder)
    tell(f"{path}: NEW {written.name}, {text.count(chr(10))} lines of {folder.new.count(chr(10))}")
    return replace(pruned, written=str(path))
