"""Experiments whose arms are foreign trainers, read from a file and checked before anything runs.

trainer: {command: "torchrun --nproc-per-node {gpus} {script}", file: train_gpt.py, gpus: 8}
changes:
  new_lr: {args: [--lr=0.03]}
  idea: {patch: idea.diff}
  torch_nightly: {environment: {python: /opt/nightly/bin/python}}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError, near
from harness.experiment.designs import BASELINE, CHAIN, DESIGNS, Changes, Feasible, most_changes
from harness.experiment.file import ExperimentFile
from harness.experiment.keys import (
    PRIMARY,
    read_design,
    read_margin,
    read_name,
    read_seeds,
    read_target,
)
from harness.experiment.parents import read_parents
from harness.foreign.arm import SCRIPT, ForeignArm, default_data, linked, make_arm
from harness.foreign.command import COMMAND
from harness.foreign.own_metrics import check_readings, read_metric
from harness.foreign.parts import arms_of_parts, lengths_of, parts_of, script_of, sections
from harness.provenance import interpreters
from harness.provenance.data import data_fingerprint
from harness.run.document import Content, Fields
from harness.run.foreign import TrainerLimits, TrainerSpec
from harness.run.plan import SeedsRule, Target
from harness.run.readings import Readings
from harness.run.stream import StreamPlace

FOREIGN_KEYS = (
    *("name", "question", "trainer", "changes", "design", "arms", "parents"),
    *("seeds", "target", "primary", "margin", "confirm"),
)
ABOVE_ZERO = 1e-9
LIMIT_KEYS = {  # key -> field of the limits, the least that it may be
    "wall_limit": ("wall_s", ABOVE_ZERO),
    "silence_limit": ("silence_s", ABOVE_ZERO),
    "retries": ("retries", 0),
    "output_limit": ("output_mib", ABOVE_ZERO),
}
# what a trainer and a change may say: key -> the type it must have, in words
CHANGE_KEYS = {
    "command": (str, "text"),
    "file": (str, "the path of a script"),
    "ref": (str, "a git ref"),
    "args": (list, "a list of arguments"),
    "env": (dict, "a mapping of environment variables"),
    "patch": ((str, list), "the path of a patch, or a list of them"),
    "environment": (dict, "{python: PATH} or {container: COMMAND}"),
    "log": (str, "a pattern of files, as in logs/*.txt"),
}
ADDED = ("args", "env", "patch")  # those of several changes add up; the rest replaces
TRAINER_KEYS = CHANGE_KEYS | {
    "parts": (str, "a folder that `ablate split` wrote"),
    "repo": (str, "the path of a git repository"),
    "script": (str, "the script's path in the repository"),
    "data": ((str, list), "a path, or a list of them"),
    "with": ((str, list), "a path, or a list of them"),
    "gpus": (int, "a number of GPUs, 0 for a CPU run"),
    "wall_limit": ((int, float), "seconds"),
    "silence_limit": ((int, float), "seconds"),
    "retries": (int, "a number"),
    "output_limit": ((int, float), "MiB"),
    "metrics": ((str, list), "a metric, or a list of them: 'val_bpb: ([0-9.]+)'"),
    "higher": ((str, list), "the name of a metric of which higher is better, or a list of them"),
    "step_pattern": (str, "a regular expression: 'iter ([0-9]+)'"),
    "time_pattern": (str, "a regular expression: 'clock=(\\S+)'"),
    "stop_step": (int, "a step"),
}


@dataclass(frozen=True, kw_only=True)
class ForeignExperiment:
    """An experiment whose arms are foreign trainers."""

    name: str
    question: str
    design: str
    arms: tuple[ForeignArm, ...]  # the baseline first
    parents: Mapping[str, str]  # of a chain: arm -> the arm it is held against
    seeds: tuple[int, ...]
    target: Target | None
    primary: str
    margin: float | None
    confirm: bool
    fingerprint: str  # of the data that is linked
    limits: TrainerLimits
    seeds_rule: SeedsRule | None = None  # blocks are added until it stops
    stream: StreamPlace | None = None
    borrowed: tuple[int, ...] = ()  # numbers of the baseline's runs that others made; then it
    # runs in the first blocks alone
    started: str | None = None  # the command that made it, where the results folder knows it
    remarks: tuple[str, ...] = ()  # what its arms cannot tell apart

    @property
    def baseline(self) -> ForeignArm:
        return self.arms[0]


def load_foreign(path: Path, overrides: Fields, *, gpus: int | None = None) -> ForeignExperiment:
    """Read and check an experiment file with `trainer`; raises UserError with file and line.

    gpus: of one run, instead of the file's."""
    file = ExperimentFile(path, FOREIGN_KEYS, dict(overrides))
    file.mistakes.refuse()
    reader = _Reader(file)
    if gpus is not None:
        reader.trainer["gpus"] = gpus
    return reader.experiment()


def read_trainer(path: Path) -> TrainerSpec:
    """The trainer of a file's baseline; raises UserError with file and line."""
    return _Reader(ExperimentFile(path, FOREIGN_KEYS, {}))._written(())


class _Reader:
    """A file whose trainer and changes were checked key by key."""

    def __init__(self, file: ExperimentFile) -> None:
        self.file = file
        self.folder = file.path.parent
        if file.overrides:
            key = next(iter(file.overrides))
            raise UserError(
                f"--set {key}: a foreign trainer has no such field; "
                "put arguments into the file's trainer or changes"
            )
        trainer = file.value("trainer", dict, {}, "a mapping")
        self.trainer = dict(self._section(trainer, TRAINER_KEYS, "trainer"))
        if sum(key in self.trainer for key in ("file", "repo", "parts")) != 1:
            message = "trainer needs either `file`, a script, or `repo`, a git repository"
            raise file.fail(message, "trainer")
        changes = file.value("changes", dict, {}, "a mapping of names to changes")
        self.changes: dict[str, Content] = {}
        self.parts = parts_of(self.trainer, changes, self.folder)
        if self.parts is not None:
            self.changes = sections(self.parts)
        for name, change in changes.items():
            self.changes[str(name)] = self._section(change, CHANGE_KEYS, "changes", str(name))
        self.readings = self._readings()

    def _section(self, given: Any, keys: Mapping[str, tuple[Any, str]], *place: str) -> Content:
        """A mapping of the file, its keys and their types checked; place: its keys in the file."""
        name = place[-1]
        if not isinstance(given, dict) or not given:
            raise self.file.fail(f"{name} must be a mapping with {', '.join(keys)}", *place)
        for key, value in given.items():
            if key not in keys:
                message = f"{name}: unknown key '{key}'{near(str(key), keys)}"
                raise self.file.fail(message, *place, str(key))
            kind, in_words = keys[key]
            if not isinstance(value, kind) or isinstance(value, bool):
                message = f"{name}: {key} is {value!r}, but must be {in_words}"
                raise self.file.fail(message, *place, key)
        environment = given.get("environment")
        if environment is not None and not interpreters.is_environment(environment):
            _, in_words = keys["environment"]
            message = f"{name}: environment is {environment!r}, but must be {in_words}"
            raise self.file.fail(message, *place)
        return given

    # ------------------------------------------------------------ the experiment

    def experiment(self) -> ForeignExperiment:
        """Everything that the file says; raises UserError with file and line."""
        file = self.file
        confirm = file.value("confirm", bool, False, "true or false")
        seeds, rule = read_seeds(file, confirm=confirm)
        design = read_design(file)
        arms = self._arms(self._sets_of_changes(design))
        return ForeignExperiment(
            name=read_name(file),
            question=file.value("question", str, "", "text"),
            design=design,
            arms=arms,
            parents=read_parents(file, design, [arm.name for arm in arms]),
            seeds=seeds,
            seeds_rule=rule,
            target=read_target(file),
            primary=self._primary(),
            margin=read_margin(file),
            confirm=confirm,
            fingerprint=data_fingerprint(Path(d) for d in arms[0].trainer.data.values()),
            limits=self._limits(),
            remarks=() if self.parts is None else self.parts.inseparable,
        )

    def _primary(self) -> str:
        """The metric that decides: the one that is named, else the first of the scripts' own."""
        metrics = [] if self.readings is None else [m.name for m in self.readings.metrics]
        choices = tuple(dict.fromkeys((*metrics, *PRIMARY)))
        message = "primary '{value}' is not one of {choices}"
        return self.file.choice("primary", choices, choices[0], message)

    def _readings(self) -> Readings | None:
        """What is read of the scripts beside the benchmark's lines."""
        where = self.file.where("trainer")
        higher = _listed(self.trainer.get("higher"))
        texts = _listed(self.trainer.get("metrics"))
        readings = Readings(
            metrics=tuple(read_metric(text, higher=higher, where=where) for text in texts),
            step_pattern=self.trainer.get("step_pattern"),
            time_pattern=self.trainer.get("time_pattern"),
            stop_step=self.trainer.get("stop_step"),
        )
        check_readings(readings, higher=higher, where=where)
        return None if readings == Readings() else readings

    def _limits(self) -> TrainerLimits:
        given = {}
        for key, (field, least) in LIMIT_KEYS.items():
            if key not in self.trainer:
                continue
            given[field] = self.trainer[key]
            if given[field] < least:
                wanted = "above zero" if least == ABOVE_ZERO else f"at least {least}"
                message = f"{key} is {given[field]}, but must be {wanted}"
                raise self.file.fail(message, "trainer", key)
        return TrainerLimits(**given)

    # ------------------------------------------------------------ its arms

    def _sets_of_changes(self, design: str) -> Mapping[str, Changes]:
        """The changes of every arm but the baseline, by the arm's name."""
        if design == "explicit" or (design == CHAIN and "arms" in self.file.data):
            chosen: Mapping[str, Changes] = self._explicit()
        else:
            most, changes = most_changes(design), tuple(self.changes)
            feasible: Feasible = _always_feasible if self.parts is None else self.parts.stands
            if self.parts is not None:
                lengths = lengths_of(self.parts)
                changes = tuple(change for change in changes if change not in lengths)
            if len(changes) > most:
                message = f"design {design} takes at most {most} changes, not {len(changes)}"
                raise self.file.fail(message, "design")
            chosen = DESIGNS[design](changes, feasible)
            if self.parts is not None:
                chosen = arms_of_parts(self.parts, design, chosen, changes, self.file.where)
        if not chosen:
            raise self.file.fail("there is nothing to compare: name a change", "changes")
        return chosen

    def _explicit(self) -> dict[str, Changes]:
        given = self.file.value("arms", dict, {}, "a mapping of arm names to lists of changes")
        arms: dict[str, Changes] = {}
        for name, changes in given.items():
            listed = changes if isinstance(changes, list) else [changes]
            for change in listed:
                if change not in self.changes:
                    message = f"unknown change '{change}'{near(str(change), self.changes)}"
                    raise self.file.fail(message, "arms", str(name))
            arms[str(name)] = tuple(listed)
        return arms

    def _arms(self, chosen: Mapping[str, Changes]) -> tuple[ForeignArm, ...]:
        """The baseline and every arm."""
        baseline = make_arm(BASELINE, self._written(()), where=self.file.where("trainer"))
        others = [self._arm(name, changes, baseline) for name, changes in chosen.items()]
        return (baseline, *others)

    def _arm(self, name: str, changes: Changes, baseline: ForeignArm) -> ForeignArm:
        where = self.file.where("arms")
        if changes:
            where = self.file.where("changes", changes[0])
        try:
            written = self._written(changes)
            arm = make_arm(name, written, changes=changes, baseline=baseline, where=where)
        except UserError as error:
            if str(error).startswith(where):
                raise UserError(str(error)) from None
            raise UserError(f"{where}: arm '{name}': {error}") from None
        if not arm.fields:
            raise UserError(f"{where}: arm '{name}' is the baseline: its changes change nothing")
        return arm

    def _written(self, changes: Changes) -> TrainerSpec:
        """The trainer with these changes, in order."""
        given = dict(self.trainer)
        args = list(given.get("args", []))
        env = dict(given.get("env", {}))
        patches = _listed(given.get("patch"))
        for name in changes:
            change = self.changes[name]
            args += change.get("args", [])
            env |= change.get("env", {})
            patches += _listed(change.get("patch"))
            given |= {key: value for key, value in change.items() if key not in ADDED}
        if self.parts is not None:
            given["file"] = script_of(self.parts, changes).absolute()
        file, repo = self._place(given)
        return TrainerSpec(
            file=file,
            repo=repo,
            ref=given.get("ref"),
            script=given.get("script", SCRIPT),
            command=given.get("command", COMMAND),
            args=tuple(str(argument) for argument in args),
            env={str(variable): str(value) for variable, value in env.items()},
            patches=tuple(self.folder / patch for patch in patches),
            extra=tuple(_listed(given.get("with"))),
            data=self._data(given, file, repo),
            gpus=given.get("gpus", 1),
            environment=interpreters.located(given.get("environment", {}), self.folder),
            log=given.get("log"),
            readings=self.readings,
        )

    def _place(self, given: Content) -> tuple[Path | None, Path | None]:
        """The script on disk, if it is taken from there, and the repository, if one is named."""
        repo = self.folder / given["repo"] if "repo" in given else None
        from_repo = repo is not None and "ref" in given
        if "file" not in given or from_repo:
            return None, repo
        return self.folder / given["file"], repo

    def _data(self, given: Content, file: Path | None, repo: Path | None) -> dict[str, str]:
        if "data" in given:
            return linked(_listed(given["data"]), self.folder)
        if file is not None:
            return default_data(file.parent, self.folder)
        assert repo is not None
        return default_data(repo, self.folder)


def _always_feasible(changes: Changes) -> bool:
    """Changes of foreign trainers have no requirements."""
    return True


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    return [str(entry) for entry in value]
