"""One arm of an experiment with foreign trainers: its code collected, patched and looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.experiment.designs import Changes
from harness.foreign.clock_compare import compare_clocks
from harness.foreign.clock_hints import audit
from harness.foreign.collect import Tree, collect
from harness.foreign.command import ForeignTrainer, check_start
from harness.foreign.commits import CommittedTree, commit_of, patched
from harness.provenance import interpreters
from harness.provenance.code import Code
from harness.provenance.redact import line_with_secret, without_bare_keys
from harness.run.document import Content, Fields
from harness.run.foreign import ClockHint, TrainerSpec

SCRIPT = "train_gpt.py"


@dataclass(frozen=True, kw_only=True)
class ForeignArm:
    """One trainer as it will run."""

    name: str
    changes: Changes
    written: TrainerSpec
    trainer: ForeignTrainer
    code: Code
    environment_digest: str
    fields: Fields  # what differs from the baseline
    hints: tuple[ClockHint, ...]


def tree_of(spec: TrainerSpec, *, where: str) -> Tree:
    """Where a trainer's code is, a ref as the commit that it names now."""
    if spec.file is not None:
        return Tree(root=spec.file.parent)
    assert spec.repo is not None
    ref = spec.ref or "HEAD"
    commit = commit_of(spec.repo, ref)
    if commit is None:
        raise UserError(
            f"{where}: no commit '{ref}' in the repository {spec.repo}: fetch it, or name another"
        )
    return CommittedTree(root=spec.repo, commit=commit)


def code_of(spec: TrainerSpec, *, where: str) -> Code:
    """A trainer's code as it is now, patched; raises UserError where it is not to be had."""
    tree = tree_of(spec, where=where)
    code = collect(spec.script_name, tree, where=where, extra=spec.extra)
    code = patched(code, spec.patches)
    refuse_secrets_in(code, where=where)
    return code


def edited_since(arms: Sequence[ForeignArm]) -> tuple[str, ...]:
    """The arms whose code is another one now than when it was read, or gone."""
    names = []
    for arm in arms:
        try:
            now = code_of(arm.written, where=arm.name).source.digest
        except UserError:
            now = ""
        if now != arm.code.source.digest:
            names.append(arm.name)
    return tuple(names)


def refuse_secrets_in(code: Code, *, where: str) -> None:
    """Raises UserError where the code, which results keep, holds a secret."""
    for name, content in code.files.items():
        line = line_with_secret(content.decode("utf-8", "replace"))
        if line is not None:
            raise UserError(
                f"{where}: {name}, line {line} holds a secret, and the code of a run is kept with "
                "its results: let it read an environment variable, a trainer inherits them"
            )


def refuse_secrets(spec: TrainerSpec, *, where: str) -> None:
    """Raises UserError where what is asked of the trainer, which results tell, holds a secret."""
    asked = [f"{name}={value}" for name, value in spec.env.items()]
    asked += [spec.command, " ".join(spec.args), *spec.environment.values()]
    for text in asked:
        shown = without_bare_keys(text)
        if shown != text:
            raise UserError(
                f"{where}: {shown} holds a secret, and what is asked of a trainer is kept with its "
                "results: export it in the shell that starts ablate, a trainer inherits its "
                "environment"
            )


def make_arm(
    name: str,
    spec: TrainerSpec,
    *,
    changes: Changes = (),
    baseline: ForeignArm | None = None,
    where: str,
    code: Code | None = None,
) -> ForeignArm:
    """The arm with its code, its environment asked; raises UserError for whatever does not fit.

    spec: the trainer as it was written; baseline: None makes the baseline itself;
    where: the place that errors name; code: where it is known, else it is collected."""
    if code is None:
        code = code_of(spec, where=where)
    trainer = ForeignTrainer.of(spec)
    check_start(trainer, code, where=where)
    refuse_secrets(spec, where=where)
    fields: Content = {}
    hints = audit(code)
    if baseline is not None:
        hints += compare_clocks(baseline.code, code)
        base = _identity(baseline.written, baseline.trainer, baseline.code)
        for key, value in _identity(spec, trainer, code).items():
            if value != base[key]:
                fields[f"trainer.{key}"] = value
    return ForeignArm(
        name=name,
        changes=changes,
        written=spec,
        trainer=trainer,
        code=code,
        environment_digest=interpreters.lock_of(spec.environment).digest,
        fields=fields,
        hints=hints,
    )


def _identity(spec: TrainerSpec, trainer: ForeignTrainer, code: Code) -> Content:
    """What tells two arms apart."""
    return {**trainer.to_mapping(), "ref": spec.ref, "code": code.source.digest}


# ---------------------------------------------------------------- data


def linked(texts: Sequence[str], folder: Path) -> dict[str, str]:
    """Data as links: place in the clean copy -> path.

    texts: PATH or NAME=PATH; a relative path keeps its place in the copy, NAME=PATH has the place
    NAME, any other path its own name. folder: what relative paths are relative to."""
    links = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        path = Path(rest if equals else text)
        target = (folder / path).absolute()
        if not target.exists():
            raise UserError(
                f"data {text}: {target} does not exist: name the data that the script reads"
            )
        if equals:
            place = Path(name)
        elif path.is_absolute() or ".." in path.parts:
            place = Path(path.name)
        else:
            place = path
        if place.is_absolute() or ".." in place.parts or place == Path("."):
            raise UserError(
                f"data {text}: its place in the clean copy must be a relative path, "
                f"as in data={target}"
            )
        links[str(place)] = str(target)
    return links


def default_data(*folders: Path) -> dict[str, str]:
    """The folder data/ beside the script, else in the working directory, if there is one."""
    for folder in folders:
        if (folder / "data").is_dir():
            return {"data": str((folder / "data").absolute())}
    return {}
