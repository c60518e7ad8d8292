"""One arm of an experiment with foreign trainers: where its code is and what is asked of it; collected, patched, looked at."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.experiment.designs import Changes
from harness.foreign.clock_hints import Hint, audit
from harness.foreign.collect import Tree, collect, commit_of, patched
from harness.foreign.command import COMMAND, check_start
from harness.provenance import interpreters
from harness.provenance.code import Code
from harness.provenance.interpreters import asks_for
from harness.provenance.redact import redact

SCRIPT = "train_gpt.py"


@dataclass(frozen=True, kw_only=True)
class ForeignArm:
    """One trainer as it will run. trainer: what is asked of it, part of its identity; fields: what differs from the baseline."""

    name: str
    changes: Changes
    side: "Side"
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

    @property
    def script_name(self) -> str:
        """The script's path in a clean copy."""
        return self.script if self.file is None else self.file.name

    def tree(self, where: str) -> Tree:
        """Where the code is, a ref as the commit that it names now."""
        if self.file is not None:
            return Tree(root=self.file.parent)
        assert self.repo is not None
        ref = self.ref or "HEAD"
        commit = commit_of(self.repo, ref)
        if commit is None:
            raise UserError(f"{where}: no commit '{ref}' in the repository {self.repo}: fetch it, or name another")
        return Tree(root=self.repo, commit=commit)

    def code(self, where: str) -> Code:
        """The code as it is now, patched. Raises UserError where it is not to be had."""
        return patched(collect(self.script_name, self.tree(where), where=where, extra=self.extra), self.patches)

    def refuse_secrets(self, where: str) -> None:
        """Raises UserError where what is asked of the trainer, which its results tell, looks like a secret."""
        asked = (*(f"{k}={v}" for k, v in self.env.items()), self.command, " ".join(self.args), *self.environment.values())
        for text in asked:
            if (shown := redact(text)) != text:
                raise UserError(
                    f"{where}: {shown} holds a secret, and what is asked of a trainer is kept with its results: export it in the "
                    "shell that starts ablate, a trainer inherits its environment"
                )

    def arm(
        self,
        name: str,
        changes: Changes = (),
        *,
        baseline: "ForeignArm | None" = None,
        where: str,
        code: Code | None = None,
    ) -> "ForeignArm":
        """The arm with its code, its environment asked. Raises UserError for whatever does not fit. code: where it is known."""
        code = code or self.code(where)
        check_start(self.command, self.args, self.env, self.environment, code, where=where)
        self.refuse_secrets(where)
        trainer = {
            "command": self.command,
            "script": self.script_name,
            "args": list(self.args),
            "env": dict(self.env),
            "patches": [p.name for p in self.patches],
            "data": dict(self.data),
            "gpus": self.gpus,
            "environment": dict(self.environment),
        }
        now = {**trainer, "ref": self.ref, "code": code.source.digest}
        before = None if baseline is None else {**baseline.trainer, "ref": baseline.side.ref, "code": baseline.code.source.digest}
        return ForeignArm(
            name=name,
            changes=changes,
            side=self,
            trainer=trainer,
            code=code,
            environment_digest=interpreters.lock_of(self.environment).digest,
            fields={} if before is None else {f"trainer.{k}": v for k, v in now.items() if before[k] != v},
            hints=audit(code),
        )

    def saved(self) -> dict[str, Any]:
        """As experiment.json keeps it; `read_side` reads it."""
        return dict(json.loads(json.dumps(asdict(self), default=str)))


def read_side(saved: Mapping[str, Any]) -> Side:
    """What `saved` has written."""
    path = {k: Path(saved[k]) if saved[k] else None for k in ("file", "repo")}
    several = {"args": tuple(saved["args"]), "extra": tuple(saved["extra"]), "patches": tuple(map(Path, saved["patches"]))}
    return Side(**{**saved, **path, **several})


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
