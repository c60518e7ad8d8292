"""One arm of an experiment with foreign trainers: where its code is and what is asked of it; collected, patched, looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.designs import Changes
from harness.errors import UserError
from harness.foreign import environments
from harness.foreign.audit import Hint, audit
from harness.foreign.braces import asks_for
from harness.foreign.command import COMMAND, check_start
from harness.foreign.source import Code, Tree, collect, commit_of, patched

SCRIPT = "train_gpt.py"


@dataclass(frozen=True, kw_only=True)
class ForeignArm:
    """One trainer as it will run. trainer: what is asked of it, part of its identity; fields: what differs from the baseline."""

    name: str
    changes: Changes
    trainer: Mapping[str, Any]
    code: Code
    environment_digest: str
    fields: Mapping[str, Any]
    hints: tuple[Hint, ...]

    @property
    def seeded(self) -> bool:
        """Whether the script is told its seed; without, its runs have no number in common with another arm's."""
        t = self.trainer
        return asks_for("seed", t["command"], *t["args"], *t["env"].values(), t["environment"].get("container", ""))


@dataclass(frozen=True, kw_only=True)
class Side:
    """What makes an arm, as it was written: where its code is, and what is asked of it."""

    file: Path | None = None
    repo: Path | None = None
    ref: str | None = None
    script: str = SCRIPT
    command: str = COMMAND
    args: tuple[str, ...] = ()
    env: Mapping[str, str]
    patches: tuple[Path, ...] = ()
    extra: tuple[str, ...] = ()
    data: Mapping[str, str]  # place in the clean copy -> path
    gpus: int = 1
    environment: Mapping[str, str]

    def arm(self, name: str, changes: Changes = (), *, baseline: "ForeignArm | None" = None, where: str) -> ForeignArm:
        """The arm with its code collected and patched, its environment asked. Raises UserError for whatever does not fit."""
        commit = None
        if self.file is not None:
            tree, script = Tree(root=self.file.parent), self.file.name
        else:
            assert self.repo is not None
            commit = commit_of(self.repo, self.ref or "HEAD")
            if commit is None:
                raise UserError(
                    f"{where}: no commit '{self.ref or 'HEAD'}' in the repository {self.repo}: fetch it, or name another"
                )
            tree, script = Tree(root=self.repo, commit=commit), self.script
        code = patched(collect(script, tree, where=where, extra=self.extra), self.patches)
        check_start(self.command, self.args, self.env, self.environment, code, where=where)
        trainer = {
            "command": self.command,
            "script": script,
            "ref": commit,
            "args": list(self.args),
            "env": dict(self.env),
            "patches": [p.name for p in self.patches],
            "data": dict(self.data),
            "gpus": self.gpus,
            "environment": dict(self.environment),
        }
        before = None if baseline is None else {**baseline.trainer, "code": baseline.code.source.digest}
        now = {**trainer, "code": code.source.digest}
        return ForeignArm(
            name=name,
            changes=changes,
            trainer=trainer,
            code=code,
            environment_digest=environments.lock_of(self.environment).digest,
            fields={} if before is None else {f"trainer.{k}": v for k, v in now.items() if before[k] != v},
            hints=audit(code),
        )


def linked(texts: Sequence[str], folder: Path) -> dict[str, str]:
    """Data paths as links: a relative path keeps its place in the clean copy, NAME=PATH has the place NAME, others their name."""
    out = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        path = Path(rest if equals else text)
        full = (folder / path).absolute()
        if not full.exists():
            raise UserError(f"data {text}: {full} does not exist: name the data that the script reads")
        inside = Path(name) if equals else path if not path.is_absolute() and ".." not in path.parts else Path(path.name)
        if inside.is_absolute() or ".." in inside.parts or inside == Path("."):
            raise UserError(f"data {text}: its place in the clean copy must be a relative path, as in data={full}")
        out[str(inside)] = str(full)
    return out


def default_data(*folders: Path) -> dict[str, str]:
    """The folder data/ beside the script, else in the working directory, if there is one."""
    return next(({"data": str((f / "data").absolute())} for f in folders if (f / "data").is_dir()), {})
