"""Experiments whose arms are foreign trainers: read from a file, every script, patch and ref checked before anything runs.

trainer: {command: "torchrun --standalone --nproc-per-node {gpus} {script}", file: train_gpt.py, gpus: 8}
changes: {new_lr: {args: [--lr=0.03]}, idea: {patch: idea.diff}, torch_nightly: {environment: {python: /opt/nightly/bin/python}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError, near
from harness.experiment.designs import BASELINE, DESIGNS, LIMITS, Changes
from harness.experiment.file import ExperimentFile
from harness.experiment.keys import (
    PRIMARY,
    read_margin,
    read_name,
    read_seeds,
    read_target,
    target_content,
)
from harness.foreign.arm import SCRIPT, ForeignArm, Side, default_data, linked
from harness.foreign.collect import data_fingerprint
from harness.foreign.command import COMMAND
from harness.foreign.trainer import Limits
from harness.provenance import interpreters

KEYS = ("name", "question", "trainer", "changes", "design", "arms", "seeds", "target", "primary", "margin", "confirm")
LIMIT_KEYS = {"wall_limit": "wall_s", "silence_limit": "silence_s", "retries": "retries"}
# what a trainer and a change may say: key -> the type it must have, in words
CHANGE_KEYS = {
    "command": (str, "text"),
    "file": (str, "the path of a script"),
    "ref": (str, "a git ref"),
    "args": (list, "a list of arguments"),
    "env": (dict, "a mapping of environment variables"),
    "patch": ((str, list), "the path of a patch, or a list of them"),
    "environment": (dict, "{python: PATH} or {container: COMMAND}"),
}
TRAINER_KEYS = CHANGE_KEYS | {
    "repo": (str, "the path of a git repository"),
    "script": (str, "the script's path in the repository"),
    "data": ((str, list), "a path, or a list of them"),
    "with": ((str, list), "a path, or a list of them"),
    "gpus": (int, "a number of GPUs, 0 for a CPU run"),
    "wall_limit": ((int, float), "seconds"),
    "silence_limit": ((int, float), "seconds"),
    "retries": (int, "a number"),
}


@dataclass(frozen=True, kw_only=True)
class ForeignExperiment:
    name: str
    question: str
    design: str
    arms: tuple[ForeignArm, ...]  # the baseline first
    seeds: tuple[int, ...]
    target: Mapping[str, Any] | None
    primary: str
    margin: float | None
    confirm: bool
    fingerprint: str  # of the data that is linked
    limits: Limits
    started: str | None = None  # the command that made it, where it is the results folder that knows it

    @property
    def baseline(self) -> ForeignArm:
        return self.arms[0]


def load_foreign(path: Path, overrides: Mapping[str, Any], *, gpus: int | None = None) -> ForeignExperiment:
    """Read and check an experiment file with `trainer`; raises UserError with file and line. gpus: instead of the file's."""
    reader = _Reader(ExperimentFile(path, KEYS, dict(overrides)))
    reader.trainer |= {} if gpus is None else {"gpus": gpus}
    return reader.experiment()


class _Reader:
    def __init__(self, file: ExperimentFile) -> None:
        self.file, self.folder = file, file.path.parent
        if file.overrides:
            key = next(iter(file.overrides))
            raise UserError(f"--set {key}: a foreign trainer has no such field; put arguments into the file's trainer or changes")
        self.trainer = dict(self._section(file.value("trainer", dict, {}, "a mapping"), TRAINER_KEYS, "trainer"))
        if ("file" in self.trainer) == ("repo" in self.trainer):
            raise file.fail("trainer needs either `file`, a script, or `repo`, a git repository", "trainer")
        changes = file.value("changes", dict, {}, "a mapping of names to changes")
        self.changes = {str(n): self._section(c, CHANGE_KEYS, "changes", str(n)) for n, c in changes.items()}

    def _section(self, given: Any, keys: Mapping[str, tuple[Any, str]], *at: str) -> dict[str, Any]:
        if not isinstance(given, dict) or not given:
            raise self.file.fail(f"{at[-1]} must be a mapping with {', '.join(keys)}", *at)
        for key, value in given.items():
            if key not in keys:
                raise self.file.fail(f"{at[-1]}: unknown key '{key}'{near(str(key), keys)}", *at, str(key))
            kind, words = keys[key]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self.file.fail(f"{at[-1]}: {key} is {value!r}, but must be {words}", *at, key)
        environment = given.get("environment")
        if environment is not None and not interpreters.is_environment(environment):
            raise self.file.fail(
                f"{at[-1]}: environment is {environment!r}, but must be {{python: PATH}} or {{container: COMMAND}}", *at
            )
        return given

    def _limits(self) -> Limits:
        given = {name: self.trainer[key] for key, name in LIMIT_KEYS.items() if key in self.trainer}
        for key, name in LIMIT_KEYS.items():
            if name in given and given[name] < (0 if key == "retries" else 1e-9):
                raise self.file.fail(f"{key} is {given[name]}, but must be above zero", "trainer", key)
        return Limits(**given)

    def experiment(self) -> ForeignExperiment:
        file = self.file
        confirm = file.value("confirm", bool, False, "true or false")
        seeds, rule = read_seeds(file, confirm=confirm)
        if rule is not None:
            raise file.fail("seeds that are added by a rule need our own trainer: give a number", "seeds")
        design = file.choice("design", (*DESIGNS, "explicit"), "add-one", "design '{value}' is unknown")
        order = tuple(self.changes)
        if design != "explicit" and len(order) > LIMITS.get(design, 64):
            raise file.fail(f"design {design} takes at most {LIMITS.get(design, 64)} changes, not {len(order)}", "design")
        chosen = self._explicit() if design == "explicit" else DESIGNS[design](order, lambda changes: True)
        if not chosen:
            raise file.fail("there is nothing to compare: name a change", "changes")
        baseline = self._side(()).arm(BASELINE, where=file.where("trainer"))
        arms = [baseline]
        for name, changes in chosen.items():
            where = file.where("changes", changes[0]) if changes else file.where("arms")
            try:
                arm = self._side(changes).arm(name, changes, baseline=baseline, where=where)
            except UserError as error:
                raise UserError(str(error) if str(error).startswith(where) else f"{where}: arm '{name}': {error}") from None
            if not arm.fields:
                raise UserError(f"{where}: arm '{name}' is the baseline: its changes change nothing")
            arms.append(arm)
        data = baseline.trainer["data"].values()
        return ForeignExperiment(
            name=read_name(file),
            question=file.value("question", str, "", "text"),
            design=design,
            arms=tuple(arms),
            seeds=seeds,
            target=target_content(read_target(file)),
            primary=file.choice("primary", PRIMARY, "val_loss", "primary '{value}' is not one of {known}"),
            margin=read_margin(file),
            confirm=confirm,
            fingerprint=data_fingerprint(Path(d) for d in data),
            limits=self._limits(),
        )

    def _explicit(self) -> dict[str, Changes]:
        value = self.file.value("arms", dict, {}, "a mapping of arm names to lists of changes")
        for name, changes in value.items():
            for c in changes if isinstance(changes, list) else [changes]:
                if c not in self.changes:
                    raise self.file.fail(f"unknown change '{c}'{near(str(c), self.changes)}", "arms", str(name))
        return {str(name): tuple(changes) for name, changes in value.items()}

    def _side(self, chosen: Changes) -> Side:
        """The trainer with these changes, in order: arguments and patches add up, the rest replaces."""
        t = dict(self.trainer)
        args, env, patches = list(t.get("args", [])), dict(t.get("env", {})), _listed(t.get("patch"))
        for name in chosen:
            change = self.changes[name]
            args += change.get("args", [])
            env |= change.get("env", {})
            patches += _listed(change.get("patch"))
            t |= {k: v for k, v in change.items() if k not in ("args", "env", "patch")}
        file = self.folder / t["file"] if "file" in t and ("ref" not in t or "repo" not in t) else None
        root = file.parent if file else self.folder / t["repo"]
        data = linked(_listed(t["data"]), self.folder) if "data" in t else default_data(root, self.folder)
        return Side(
            file=file,
            repo=self.folder / t["repo"] if "repo" in t else None,
            ref=t.get("ref"),
            script=t.get("script", SCRIPT),
            command=t.get("command", COMMAND),
            args=tuple(map(str, args)),
            env={str(k): str(v) for k, v in env.items()},
            patches=tuple(self.folder / p for p in patches),
            extra=tuple(_listed(t.get("with"))),
            data=data,
            gpus=t.get("gpus", 1),
            environment=interpreters.located(t.get("environment", {}), self.folder),
        )


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else [str(v) for v in value]
