"""The scripts that `ablate split` is told: OLD, NEW, and candidates for OLD."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.cli.split_options import SplitOptions
    from harness.provenance.code import Code

MOST_CANDIDATES = 500  # scripts among which a parent is looked for
LOGS = (".txt", ".log")


def code_of(text: str, where: str, options: "SplitOptions") -> "Code":
    """The script that OLD or NEW names, with what it imports from its folder."""
    from harness.foreign.collect import Tree, collect
    from harness.foreign.commits import CommittedTree, commit_of

    path = Path(text)
    if path.is_dir():
        scripts = sorted(path.glob("*.py"))
        if not scripts:
            return _script_of_logs(path, f"{where} {text}", options)
        if len(scripts) > 1:
            names = ", ".join(file.name for file in scripts)
            raise UserError(f"{where} {text}: holds several scripts ({names}): name one")
        path = scripts[0]
    if path.is_file():
        if path.suffix in LOGS:
            return _script_of_logs(path, f"{where} {text}", options)
        if path.suffix not in (".py", ""):
            raise UserError(f"{where} {text}: is no Python script: `split` takes those apart")
        return collect(path.name, Tree(root=path.parent), where=f"{where} {text}")
    ref, _, inside = text.partition(":")
    commit = commit_of(options.repo, ref)
    if commit is None or (path.suffix == ".py" and not inside):
        raise UserError(
            f"{where} {text}: no such script, folder or commit of {options.repo.absolute()}: "
            "name one"
        )
    named = Path(inside or options.script)
    tree = CommittedTree(root=options.repo / named.parent, commit=commit)
    if not tree.names(named.name):
        raise UserError(
            f"{where} {text}: that commit has no {named}: name its script, as {ref}:PATH or by "
            "--script"
        )
    return collect(named.name, tree, where=f"{where} {text}")


def _script_of_logs(path: Path, where: str, options: "SplitOptions") -> "Code":
    """The script at the head of a log, or of all logs of a record's folder."""
    from harness.foreign.log_code import LogProgram, program_in
    from harness.foreign.log_lines import LogError
    from harness.provenance.code import Code

    logs = [path] if path.is_file() else [f for f in sorted(path.rglob("*")) if f.suffix in LOGS]
    scripts: dict[str, tuple[Path, LogProgram]] = {}  # by what they do
    for log in logs:
        with suppress(LogError):
            program = program_in(log)
            if program is not None:
                scripts.setdefault(program.digest, (log, program))
    if not scripts:
        raise UserError(f"{where}: holds no script, and no log that opens with one: name a script")
    if len(scripts) > 1:
        first, second = [str(log) for log, _ in scripts.values()][:2]
        raise UserError(f"{where}: its logs are of several scripts ({first}, {second}): name one")
    [(_, program)] = scripts.values()
    name = Path(options.script).name
    return Code(script=name, files={name: program.script, **program.modules})


def candidates_of(options: "SplitOptions") -> tuple[dict[str, bytes], dict[str, str]]:
    """The scripts that --parents names by how OLD would name them, and those that cannot be read.

    Raises UserError where nothing is named, or far too much."""
    names = [name for given in options.parents or () for name in _named(given, options)]
    if len(names) > MOST_CANDIDATES:
        raise UserError(
            f"--parents: names {len(names)} candidates: at most {MOST_CANDIDATES}: name fewer"
        )
    candidates: dict[str, bytes] = {}
    skipped: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            code = code_of(name, "--parents", options)
        except (UserError, OSError) as error:
            skipped[name] = str(error).removeprefix("--parents ")
        else:
            candidates[name] = code.files[code.script]
    return candidates, skipped


def _named(given: str, options: "SplitOptions") -> list[str]:
    """The candidates that one --parents names."""
    from harness.foreign.commits import commits_of

    path = Path(given)
    if os.path.isdir(given):  # a long list of refs is no file's name, which pathlib refuses
        scripts = sorted(path.glob("*.py")) or sorted(path.glob("*/*.py"))
        if not scripts:
            raise UserError(f"--parents {given}: holds no Python script: name another folder")
        return [str(script) for script in scripts]
    if os.path.isfile(given):
        return [given]
    if ".." not in given:
        return [ref for ref in given.split(",") if ref]
    commits = commits_of(options.repo, given, options.script)
    if not commits:
        raise UserError(
            f"--parents {given}: no commit of {options.repo.absolute()} in it changes "
            f"{options.script}: name refs or a folder"
        )
    return [commit[:12] for commit in commits]


def short_name(text: str) -> str:
    """A side's name in a name."""
    path = Path(text)
    name = path.stem if path.exists() else text
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "script"


def data_line(*sides: str) -> str:
    """The line of the experiment that links the data of the scripts, where they have some."""
    for folder in (*(Path(side).parent for side in sides), Path.cwd()):
        if (folder / "data").is_dir():
            return f"\n  data: {str((folder / 'data').absolute())!r}"
    return ""
