"""A bundle of changes taken apart: from two scripts to an experiment with an arm per group."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.provenance.code import Code
    from harness.split.folder import Folder

SEEDS = 10
EXPERIMENT = """\
# `ablate run {path}` runs these arms: all groups, and all but each of them (add-one: each alone).
name: {name}
question: Which part of {new} carries its difference to {old}?
trainer:
  parts: .
  command: {command}
  gpus: {gpus}{data}
design: leave-one-out
seeds: {seeds}
"""


@app.command()
def split(
    old: Annotated[
        str | None,
        typer.Argument(metavar="OLD", help="a script, a git ref (REF, REF:SCRIPT), a folder"),
    ] = None,
    new: Annotated[str | None, typer.Argument(metavar="NEW", help="the same")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="the folder to write")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="DIR", help="check a folder that was edited")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", help="how to start a script: {script}, {gpus}, {seed}"),
    ] = None,
    gpus_per_run: Annotated[
        int, typer.Option("--gpus-per-run", help="GPUs of one run; 0: a CPU run", min=0)
    ] = 1,
    repo: Annotated[Path, typer.Option("--repo", help="the repository of git refs")] = Path("."),
    script: Annotated[
        str, typer.Option("--script", help="the script in the repository")
    ] = "train_gpt.py",
) -> None:
    """Take the difference of two scripts apart into groups, each a change of an experiment."""
    from harness.foreign.command import COMMAND

    if check is not None:
        if old is not None or out is not None:
            raise UserError("--check: reads a folder alone: leave OLD, NEW and -o out")
        _check(check)
        return
    if old is None or new is None:
        raise UserError("split: name OLD and NEW, or --check DIR for a folder that was edited")
    codes = [_code(old, "OLD", repo, script), _code(new, "NEW", repo, script)]
    path = out or Path(f"split-{_short(old)}-{_short(new)}")
    folder = _take_apart(codes, f"OLD {old}", f"NEW {new}", path)
    experiment = EXPERIMENT.format(
        path=path / "experiment.yaml",
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().name).strip("-.") or "split",
        old=_short(old),
        new=_short(new),
        command=repr(command or COMMAND),
        gpus=gpus_per_run,
        data=_data(old, new),
        seeds=SEEDS,
    )
    from harness.split.folder import place

    place(path, "experiment.yaml", experiment.encode())
    _tell(folder)
    print(f"{path}: changes.yaml to edit, a patch per group, experiment.yaml")
    print(f"then: ablate run {path / 'experiment.yaml'}")


def _take_apart(codes: "list[Code]", old: str, new: str, path: Path) -> "Folder":
    """The folder, written."""
    from harness.split.arms import mended
    from harness.split.check import Checker
    from harness.split.folder import write_folder
    from harness.split.groups import take_apart
    from harness.split.source import decoded, refuse_equal

    before, after = codes
    texts = [
        decoded(before.files[before.script], old),
        decoded(after.files[after.script], new),
    ]
    refuse_equal(*texts)
    modules = _modules(before, after)
    parts = mended(take_apart(*texts), Checker(*texts))
    name = Path(after.script).name
    return write_folder(path, parts, *texts, script=name, modules=modules)


def _modules(before: "Code", after: "Code") -> dict[str, bytes]:
    """What both scripts import from their own folder; refused where it differs too."""
    others = []
    for code in (before, after):
        others.append({name: text for name, text in code.files.items() if name != code.script})
    for name in sorted({*others[0], *others[1]}):
        if others[0].get(name) != others[1].get(name):
            raise UserError(
                f"{name}: differs too between OLD and NEW: `split` takes one script apart: "
                "give both the same module, or put it into the scripts"
            )
    return others[0]


def _code(text: str, where: str, repo: Path, script: str) -> "Code":
    """The script that OLD or NEW names, with what it imports from its folder."""
    from harness.foreign.collect import Tree, collect
    from harness.foreign.commits import CommittedTree, commit_of

    path = Path(text)
    if path.is_dir():
        scripts = sorted(path.glob("*.py"))
        if len(scripts) != 1:
            names = ", ".join(file.name for file in scripts) or "none"
            raise UserError(f"{where} {text}: holds several scripts or none ({names}): name one")
        path = scripts[0]
    if path.is_file():
        if path.suffix not in (".py", ""):
            raise UserError(f"{where} {text}: is no Python script: `split` takes those apart")
        tree: Tree = Tree(root=path.parent)
        return collect(path.name, tree, where=f"{where} {text}")
    ref, _, inside = text.partition(":")
    commit = commit_of(repo, ref)
    if commit is None or (path.suffix == ".py" and not inside):
        raise UserError(f"{where} {text}: no such script, folder or commit of {repo.absolute()}")
    named = Path(inside or script)
    root = repo / named.parent
    return collect(named.name, CommittedTree(root=root, commit=commit), where=f"{where} {text}")


def _short(text: str) -> str:
    """A side's name in a name."""
    path = Path(text)
    name = path.stem if path.exists() else text
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "script"


def _data(*sides: str) -> str:
    """The line of the experiment that links the data of the scripts, where they have some."""
    for folder in (*(Path(side).parent for side in sides), Path.cwd()):
        if (folder / "data").is_dir():
            return f"\n  data: {str((folder / 'data').absolute())!r}"
    return ""


def _check(path: Path) -> None:
    """Read an edited folder, check every arm, write its patches anew."""
    from harness.split.arms import alone, measured, without
    from harness.split.check import Checker
    from harness.split.folder import read_folder, write_patches

    folder = read_folder(path)
    checker = Checker(folder.old, folder.new)
    lacking = [f"the baseline: {said}" for said in checker.problems(folder.text(()))[:1]]
    for group in measured(folder.groups):
        for said, chosen in (
            (f"{group.name} alone", alone(folder.groups, group.name)),
            (f"all but {group.name}", without(folder.groups, group.name)),
        ):
            problems = checker.problems(folder.text(chosen))
            if problems:
                lacking.append(f"{said}: {problems[0]}")
    if lacking:
        more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise UserError(f"{path}: {lacking[0]}{more}: let it need the group that gives it")
    write_patches(folder)
    _tell(folder)


def _tell(folder: "Folder") -> None:
    """A line per group."""
    from harness.cli.table import print_table

    rows = []
    for group in folder.groups:
        kind = "always on" if group.always else group.kind
        needs = ", ".join(group.needs)
        about = group.about
        rows.append(
            {"group": group.name, "kind": kind, "lines": group.lines, "needs": needs, "what": about}
        )
    print_table(rows)
