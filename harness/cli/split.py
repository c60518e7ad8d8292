"""A bundle of changes taken apart: from two scripts to an experiment with an arm per group."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli import app
from harness.cli.command import takes
from harness.cli.split_options import SplitOptions
from harness.cli.split_page import write_page_of
from harness.cli.split_parents import Sides, sides_of, tell_parents
from harness.cli.split_prune import prune
from harness.cli.split_sides import code_of, data_line, short_name
from harness.cli.split_smoke import smoke_folder
from harness.cli.table import print_json, print_table
from harness.errors import UserError
from harness.run.document import Cells, Content

if TYPE_CHECKING:
    from harness.provenance.code import Code
    from harness.split.folder import Folder

SPLIT_SCHEMA = 1  # of what `split --json` prints
SEEDS = 10  # of the experiment that is written
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
@takes(SplitOptions)
def split(options: SplitOptions) -> None:
    """Take the difference of two scripts apart into groups, each a change of an experiment."""
    options.check_alone()
    if options.prune is not None:
        pruned = prune(options.prune, options.margin, options.results, _teller(options))
        if options.json:
            _tell(pruned.folder, options, prune=pruned.to_mapping())
        return
    if options.check is not None:
        checked = _check(options.check, _teller(options))
        _tell(checked, options)
        if not options.json:
            _tell_what_runs(checked)
        return
    if options.smoke is not None:
        smoked = smoke_folder(_check(options.smoke, _teller(options)), options)
        write_page_of(smoked.folder)
        _tell(smoked.folder, options, smoke=smoked.to_mapping())
        smoked.tell(options)
        raise typer.Exit(smoked.code)
    sides = sides_of(options)
    if not options.json:
        tell_parents(sides)
    folder = _written(sides, options)
    _tell(folder, options, parents=sides.parents_mapping())
    if not options.json:
        print(f"{folder.path}: changes.yaml to edit, split.html to read, experiment.yaml")
        _tell_what_runs(folder)


def _tell_what_runs(folder: "Folder") -> None:
    """The command that runs the arms, or that there are none."""
    from harness.split.arms import measured

    if measured(folder.groups):
        experiment = folder.path / "experiment.yaml"
        if experiment.exists():
            print(f"then: ablate run {experiment}")
    else:
        print("no group is an arm: all are in every arm or change nothing by themselves")


def _written(sides: Sides, options: SplitOptions) -> "Folder":
    """The folder of a new experiment."""
    from harness.foreign.command import COMMAND, check_command
    from harness.split.folder import place
    from harness.split.source import reads_itself

    old, new = sides.old, sides.new
    codes = [code_of(old, "OLD", options), code_of(new, "NEW", options)]
    command = COMMAND if options.command is None else options.command
    check_command(command, Path(codes[1].script).name, where="--command")
    path = options.out or Path(f"split-{short_name(old)}-{short_name(new)}")
    folder = _take_apart(codes, f"OLD {old}", f"NEW {new}", path)
    experiment = EXPERIMENT.format(
        path=path / "experiment.yaml",
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().name).strip("-.") or "split",
        old=short_name(old),
        new=short_name(new),
        command=repr(command),
        gpus=options.gpus_per_run,
        data=data_line(old, new),
        seeds=SEEDS,
    )
    place(path, "experiment.yaml", experiment.encode())
    write_page_of(folder)
    if reads_itself(folder.old) or reads_itself(folder.new):
        tell = _teller(options)
        tell(f"{folder.script}: opens its own file: in OLD's arm that is the normal form, without")
        tell("comments, and in each other arm another text: let nothing but a log depend on it")
    return folder


def _take_apart(codes: "list[Code]", old: str, new: str, path: Path) -> "Folder":
    """The folder, written."""
    from harness.split.arms import mended
    from harness.split.check import Checker
    from harness.split.folder import write_folder
    from harness.split.groups import merged_circles, take_apart
    from harness.split.source import decoded, refuse_empty

    before, after, modules = _modules(*codes, old=old, new=new)
    texts = [decoded(before, old), decoded(after, new)]
    refuse_empty(*texts)
    parts = merged_circles(mended(take_apart(*texts), Checker(*texts)))
    name = Path(codes[1].script).name
    return write_folder(path, parts, *texts, script=name, modules=modules)


def _modules(
    before: "Code", after: "Code", *, old: str, new: str
) -> tuple[bytes, bytes, dict[str, bytes]]:
    """Both scripts, and what both import from their own folder.

    A module that differs is put into the scripts; old, new: what errors call them."""
    from harness.split.joined import joined

    scripts, others = [], []
    for code in (before, after):
        others.append({name: text for name, text in code.files.items() if name != code.script})
    names = sorted({*others[0], *others[1]})
    differing = {name for name in names if others[0].get(name) != others[1].get(name)}
    for code, modules, where in ((before, others[0], old), (after, others[1], new)):
        mine = {name: text for name, text in modules.items() if name in differing}
        text = code.files[code.script]
        scripts.append(joined(text, mine, where=where) if mine else text)
    return scripts[0], scripts[1], {**others[1], **others[0]}


def _check(path: Path, tell: Callable[[str], None]) -> "Folder":
    """Read an edited folder, check every arm, write its patches anew.

    tell: takes what was done, in lines."""
    from harness.split.arms import alone, measured, without
    from harness.split.changes import CHANGES, GroupsFile
    from harness.split.check import Checker
    from harness.split.folder import read_folder, rewritten, write_patches
    from harness.yamlfile import YamlFile

    folder = read_folder(path)
    folder.modules()  # which refuses a link
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
    if not GroupsFile(YamlFile(path / CHANGES), folder.parts).is_told(folder.groups):
        kept = rewritten(folder, folder.groups)
        tell(f"{path / CHANGES}: says what the groups are now; as it was: {kept}")
    write_page_of(folder)
    return folder


def _teller(options: SplitOptions) -> Callable[[str], None]:
    """What takes lines for people: none where a program reads."""
    return (lambda line: None) if options.json else print


def _tell(folder: "Folder", options: SplitOptions, **more: Any) -> None:
    """A line per group, or the same as JSON; more: further keys of it."""
    rows: list[Cells] = []
    for group in folder.groups:
        rows.append(
            {
                "group": group.name,
                "kind": "always on" if group.always else group.kind,
                "lines": group.lines,
                "needs": list(group.needs),
                "what": group.about,
            }
        )
    if options.json:
        told: Content = {"folder": str(folder.path), "groups": rows}
        told |= {**dict.fromkeys(("parents", "smoke", "prune")), **more}
        print_json({"schema": SPLIT_SCHEMA, **told})
        return
    print_table([{**row, "needs": ", ".join(row["needs"])} for row in rows])
