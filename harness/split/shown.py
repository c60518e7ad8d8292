"""What the page of a folder shows: the groups, and the difference with the groups of each line."""

import ast
import difflib
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from harness.run.document import Content
from harness.run.guarded import read_bytes
from harness.split.atoms import Atom
from harness.split.folder import Folder
from harness.split.groups import ChangeGroup

AROUND = 2  # unchanged lines beside changed ones
Owners = Mapping[int, Collection[str]]  # line from 1 -> groups, in their order


def shown(folder: Folder) -> Content:
    """The groups and the hunks of a folder, as the page takes them."""
    groups, atoms = folder.groups, {atom.number: atom for atom in folder.parts.atoms}
    return {
        "name": folder.path.resolve().name,
        "script": folder.script,
        "n_lines": sum(group.lines for group in groups),
        "groups": [_group(group, groups, atoms) for group in groups],
        "hunks": _hunks(folder, atoms),
        "inseparable": folder.inseparable,
        "pruned": _pruned(folder),
    }


def _group(group: ChangeGroup, groups: Sequence[ChangeGroup], atoms: Mapping[int, Atom]) -> Content:
    always = {other.name for other in groups if other.always}
    said = []
    for number in group.atoms:
        atom = atoms[number]
        said.append([number, f"{atom.place}: {atom.what}" if atom.place else atom.what])
    return {
        "name": group.name,
        "about": group.about,
        "kind": "always on" if group.always else group.kind,
        "lines": group.lines,
        "atoms": said,
        "needs": [name for name in group.needs if name not in always],
        "direct": direct_needs(group, groups),
        "conflicts": list(group.conflicts),
    }


def direct_needs(group: ChangeGroup, groups: Sequence[ChangeGroup]) -> list[str]:
    """What a group needs and what nothing else that it needs needs; without what is always on."""
    by_name = {other.name: other for other in groups}
    through: set[str] = set()
    for name in group.needs:
        through |= set(by_name[name].needs)
    return [name for name in group.needs if name not in through and not by_name[name].always]


def _pruned(folder: Folder) -> Content | None:
    """The script that `--prune` confirmed; None before that."""
    name = f"pruned/{folder.script}"
    if not (folder.path / name).is_file():
        return None
    content = read_bytes(folder.path / name, below=2)
    return {
        "href": f"data:text/x-python;base64,{b64encode(content).decode()}",
        "file": f"pruned_{folder.script}",
        "lines": content.count(b"\n"),
        "of": folder.new.count("\n"),
    }


# ---------------------------------------------------------------- the difference, line by line


def _hunks(folder: Folder, atoms: Mapping[int, Atom]) -> list[Content]:
    """Changed lines with their groups and those around them, a hunk within one definition."""
    old, new = folder.old.splitlines(), folder.new.splitlines()
    owners = _owners(folder.groups, atoms)
    of_no_atom = _of_no_atom(folder)
    places = {"-": _definitions(folder.old), "+": _definitions(folder.new)}
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    hunks: list[Content] = []
    for opcodes in matcher.get_grouped_opcodes(AROUND):
        before: list[Content] = []  # unchanged lines at the head of a hunk
        hunk: Content = {}
        for tag, i, i_end, j, j_end in opcodes:
            if tag == "equal":
                same = [{"sign": " ", "text": text, "groups": []} for text in new[j:j_end]]
                hunk.get("lines", before).extend(same)
                continue
            spans = (("-", old, range(i, i_end)), ("+", new, range(j, j_end)))
            for sign, texts, span in spans:
                for n in span:
                    place = places[sign].get(n + 1, "")
                    if not hunk or hunk["place"] != place:
                        hunk = {"place": place, "line": j + 1, "lines": before}
                        hunks.append(hunk)
                        before = []
                    groups = list(owners[sign].get(n + 1, ())) or of_no_atom(sign, texts[n])
                    hunk["lines"].append({"sign": sign, "text": texts[n], "groups": groups})
    for hunk in hunks:
        changed = [line for line in hunk["lines"] if line["sign"] != " "]
        hunk["n_changed"] = len(changed)
        hunk["groups"] = list(dict.fromkeys(name for line in changed for name in line["groups"]))
    return hunks


def _owners(groups: Sequence[ChangeGroup], atoms: Mapping[int, Atom]) -> dict[str, Owners]:
    """Of both scripts' lines the groups whose atoms touch them."""
    old: dict[int, list[str]] = defaultdict(list)
    new: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        for number in group.atoms:
            for owners, lines in ((old, atoms[number].old_lines), (new, atoms[number].new_lines)):
                for line in lines:
                    if group.name not in owners[line]:
                        owners[line].append(group.name)
    return {"-": old, "+": new}


def _of_no_atom(folder: Folder) -> Callable[[str, str], list[str]]:
    """Of a line without a group of its own, by its sign: the groups that call a name in it anew.

    Else those that move code, past which it stands."""
    owner = {atom: group.name for group in folder.groups for atom in group.atoms}
    names = []
    for atom, (old, new) in folder.parts.difference.renames.items():
        names.append((owner[atom], {"-": old, "+": new}))

    movers = [*dict.fromkeys(owner[atom] for atom in sorted(folder.parts.difference.moved))]

    def groups_of(sign: str, text: str) -> list[str]:
        there = {*re.findall(r"\w+", text)}
        callers = [group for group, called in names if called[sign] in there]
        return [*dict.fromkeys(callers)] or movers

    return groups_of


def _definitions(text: str) -> dict[int, str]:
    """The innermost definition of each line of a script."""
    places: dict[int, str] = {}
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
    while waiting:
        node, place = waiting.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = f"{place}.{node.name}" if place else node.name
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                places[line] = place
        waiting += [(child, place) for child in ast.iter_child_nodes(node)]
    return places
