"""The folder that `split` writes: the groups to edit, a patch of each, the scripts of arms.

changes.yaml      the groups: merge, split, rename, move an atom, `always: true`
old/ new/         both scripts in normal form
patches/          what each group changes, on top of what it needs
split.html        the difference coloured by group
arms/             the scripts of arms, written as an experiment asks for them
experiment.yaml   for `ablate run`
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UserError, near
from harness.run.digests import short_digest
from harness.run.document import Content
from harness.run.files import write_whole
from harness.run.guarded import read_bytes
from harness.split.arms import alone, atoms_on, measured, names_on, stands
from harness.split.atoms import Atom
from harness.split.groups import CLASSES, ChangeGroup, Parts, take_apart, with_needs
from harness.split.inseparable import inseparable
from harness.split.labels import summary_of
from harness.split.source import decoded
from harness.yamlfile import YamlFile

CHANGES = "changes.yaml"
LONGEST = 100  # characters of the name of an arm's folder
KEYS: Mapping[str, tuple[Any, str]] = {
    "about": (str, "text"),
    "kind": (str, f"one of {', '.join(CLASSES)}"),
    "lines": (int, "a number"),
    "atoms": (list, "a list of atoms"),
    "needs": (list, "a list of groups"),
    "conflicts": (list, "a list of groups"),
    "always": (bool, "true or false"),
}
OPENING = """\
# The groups of the difference of two scripts. Merge, split or rename them, move an atom to another
# group, set `always: true` for one that is in every arm; then `ablate split --check DIR`.
# needs: groups that a group is never without. conflicts: groups that it is never with.
# kind: learning, system, budget, data; `neutral` goes with what it needs, `support` is nothing by
# itself: both are no arms. Patches are on the normal form of OLD in old/, and never leave here.
"""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of `split`, read and checked."""

    path: Path
    script: str  # the file name of both
    old: str
    new: str
    parts: Parts

    @property
    def groups(self) -> tuple[ChangeGroup, ...]:
        return self.parts.groups

    @property
    def inseparable(self) -> tuple[str, ...]:
        """What no arm tells apart, in sentences."""
        return tuple(inseparable(self.parts))

    def text(self, chosen: Iterable[str]) -> str:
        """The script with these groups."""
        return self.parts.difference.text(atoms_on(self.groups, chosen))

    def stands(self, chosen: Collection[str]) -> bool:
        """Whether these groups can be an arm."""
        return stands(self.groups, chosen)

    def arm(self, chosen: Sequence[str]) -> Path:
        """The script of an arm with these groups, written where it was not yet."""
        everything = {group.name for group in measured(self.groups)}
        name = "+".join(sorted(chosen)) or "none"
        if set(chosen) == everything:
            name = "all"
        elif len(chosen) > len(everything) / 2:
            name = "all-" + "-".join(sorted(everything - set(chosen)))
        if len(name) > LONGEST:
            name = f"{name[:LONGEST]}-{short_digest(sorted(chosen))}"
        for module, content in self.modules():
            place(self.path, f"arms/{name}/{module}", content)
        return place(self.path, f"arms/{name}/{self.script}", self.text(chosen).encode())

    def modules(self) -> list[tuple[str, bytes]]:
        """What the script imports from its own folder: name and content."""
        root = self.path / "old"
        modules = []
        for file in sorted(root.rglob("*.py")):
            name = file.relative_to(root)
            if str(name) != self.script:
                modules.append((str(name), read_bytes(file, below=1 + len(name.parts))))
        return modules


def place(folder: Path, name: str, content: bytes) -> Path:
    """Write a file of a folder unless it holds that already; returns it.

    The folder may be a link, nothing in it: raises RefusedFileError there."""
    path, below = folder / name, len(Path(name).parts)
    with suppress(FileNotFoundError):
        if read_bytes(path, below=below) == content:
            return path
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(content), below=below)
    return path


# ---------------------------------------------------------------- writing


def write_folder(
    path: Path, parts: Parts, old: str, new: str, *, script: str, modules: Mapping[str, bytes]
) -> Folder:
    """Write a new folder; raises UserError where there is one.

    path: of the folder; old, new: both scripts in normal form; script: their file name;
    modules: name -> content of what they import from their own folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: is there already: choose another folder (-o), or move it away")
    for side, text in (("old", old), ("new", new)):
        place(path, f"{side}/{script}", text.encode())
        for name, content in modules.items():
            place(path, f"{side}/{name}", content)
    place(path, CHANGES, changes_text(parts.groups, parts.atoms, script=script).encode())
    folder = Folder(path=path, script=script, old=old, new=new, parts=parts)
    write_patches(folder)
    return folder


def changes_text(groups: Iterable[ChangeGroup], atoms: Iterable[Atom], *, script: str) -> str:
    """changes.yaml of these groups.

    script: the file name."""
    content: Content = {"script": script, "groups": {}, "atoms": {}}
    for group in groups:
        content["groups"][group.name] = {
            "about": group.about,
            "kind": group.kind,
            "lines": group.lines,
            "atoms": list(group.atoms),
            "needs": list(group.needs),
            "conflicts": list(group.conflicts),
            "always": group.always,
        }
    content["atoms"] = _said(atoms)
    written = yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)
    return OPENING + written


def _said(atoms: Iterable[Atom]) -> dict[int, str]:
    """What each atom is, in a line."""
    said = {}
    for atom in atoms:
        said[atom.number] = f"{atom.place}: {atom.what}" if atom.place else atom.what
    return said


def write_patches(folder: Folder) -> None:
    """What each group changes, on top of what it needs; of those that are no arms, too."""
    for group in folder.groups:
        needed = set(alone(folder.groups, group.name)) - {group.name}
        before = {atom for g in folder.groups if g.name in group.needs for atom in g.atoms}
        if group.name not in names_on(folder.groups, needed):
            before |= atoms_on(folder.groups, needed)
        patch = patch_of(
            folder.parts.difference.text(before),
            folder.parts.difference.text(before | set(group.atoms)),
            folder.script,
        )
        place(folder.path, f"patches/{group.name}.patch", patch.encode())
    names = {f"{group.name}.patch" for group in folder.groups}
    for path in (folder.path / "patches").glob("*.patch"):
        if path.name not in names:
            path.unlink()  # of a group that was merged or renamed; of a link the link itself


def patch_of(before: str, after: str, script: str) -> str:
    """The difference of two texts as a patch of the script."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{script}",
        f"b/{script}",
    )
    return "".join(lines)


# ---------------------------------------------------------------- reading


def read_folder(path: Path) -> Folder:
    """Read a folder and check its groups; raises UserError with the line that is wrong."""
    file = YamlFile(path / CHANGES)
    read_bytes(path / CHANGES, below=1)  # which refuses a link
    script = file.data.get("script")
    if not isinstance(script, str) or not re.fullmatch(r"[\w.-]+", script):
        raise UserError(f"{file.where('script')}: script must be the file name of both scripts")
    texts = []
    for side in ("old", "new"):
        place_of = path / side / script
        if not place_of.is_file():
            raise UserError(f"{place_of}: is not there: `ablate split` writes the folder anew")
        texts.append(decoded(read_bytes(place_of, below=2), str(place_of)))
    parts = take_apart(*texts)
    groups = _GroupsFile(file, parts).groups()
    with_own = Parts(
        difference=parts.difference, atoms=parts.atoms, edges=parts.edges, groups=groups
    )
    folder = Folder(path=path, script=script, old=texts[0], new=texts[1], parts=with_own)
    everything = [group.name for group in measured(groups)]
    if folder.text(everything) != folder.new:
        raise UserError(
            f"{file.where('groups')}: all groups together do not make NEW: a group of the kind "
            "neutral or support has atoms that no other group needs: give it another kind"
        )
    return folder


class _GroupsFile:
    """The groups of changes.yaml, key by key."""

    def __init__(self, file: YamlFile, parts: Parts) -> None:
        self.file = file
        self.parts = parts
        given = file.data.get("groups")
        if not isinstance(given, dict) or not given:
            raise UserError(f"{file.where('groups')}: groups must be a mapping of names to groups")
        self.given: dict[Any, Any] = given

    def fail(self, message: str, *keys: str) -> UserError:
        return UserError(f"{self.file.where('groups', *keys)}: {message}")

    def groups(self) -> tuple[ChangeGroup, ...]:
        """All of them; raises UserError where they are not whole."""
        read = []
        for name, content in self.given.items():
            if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", str(name)):
                raise self.fail(f"group '{name}': letters, digits, _, - and . alone", str(name))
            read.append(self._group(str(name), content))
        self._check_said()
        self._check_atoms(read)
        full = with_needs(read, self.parts.edges)
        for group, written in zip(full, read, strict=True):
            missing = [name for name in group.needs if name not in written.needs]
            if missing:
                raise self.fail(
                    f"group '{group.name}' needs {', '.join(missing)} too: write them into its "
                    "needs, or merge the groups",
                    group.name,
                )
            if group.name in written.needs:
                raise self.fail(f"group '{group.name}' needs itself", group.name, "needs")
        self._check_circles(full)
        return full

    def _group(self, name: str, content: Any) -> ChangeGroup:
        if not isinstance(content, dict):
            raise self.fail(f"group '{name}' must be a mapping with {', '.join(KEYS)}", name)
        for key, value in content.items():
            if key not in KEYS:
                raise self.fail(
                    f"group '{name}': unknown key '{key}'{near(str(key), KEYS)}", name, str(key)
                )
            kind, in_words = KEYS[key]
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise self.fail(f"group '{name}': {key} must be {in_words}", name, key)
        kind = content.get("kind", "learning")
        if kind not in CLASSES:
            raise self.fail(f"group '{name}': kind '{kind}'{near(kind, CLASSES)}", name, "kind")
        for key in ("needs", "conflicts"):
            for other in content.get(key, []):
                if other not in self.given:
                    names = [str(group) for group in self.given]
                    message = f"group '{name}': {key} '{other}' is no group"
                    raise self.fail(f"{message}{near(str(other), names)}", name, key)
        members = [atom for atom in self.parts.atoms if atom.number in content.get("atoms", [])]
        return ChangeGroup(
            name=name,
            about=content.get("about") or (summary_of(members) if members else ""),
            kind=kind,
            atoms=tuple(content.get("atoms", [])),
            needs=tuple(content.get("needs", [])),
            conflicts=tuple(content.get("conflicts", [])),
            always=content.get("always", False),
            lines=sum(atom.n_lines for atom in members),
        )

    def _check_said(self) -> None:
        """The numbers of atoms mean what they meant when the file was written."""
        given = self.file.data.get("atoms")
        written = given if isinstance(given, dict) else {}
        for number, what in _said(self.parts.atoms).items():
            if written.get(number) != what:
                raise UserError(
                    f"{self.file.where('atoms')}: atom {number} was '{written.get(number)}' and is "
                    f"'{what}': the scripts in old/ and new/ are no longer those, or the harness "
                    "or Python is another: take the scripts apart again"
                )

    def _check_atoms(self, groups: list[ChangeGroup]) -> None:
        """Every atom stands in one group."""
        owner: dict[Any, str] = {}
        numbers = {atom.number for atom in self.parts.atoms}
        for group in groups:
            for atom in group.atoms:
                if atom not in numbers or isinstance(atom, bool):
                    raise self.fail(f"group '{group.name}': there is no atom {atom}", group.name)
                if atom in owner:
                    raise self.fail(
                        f"atom {atom} stands in '{owner[atom]}' and in '{group.name}': in one of "
                        "them, once",
                        group.name,
                    )
                owner[atom] = group.name
        missing = sorted(numbers - set(owner))
        if missing:
            raise self.fail(f"atom {missing[0]} stands in no group: put it into one")
        for group in groups:
            if not group.atoms:
                raise self.fail(
                    f"group '{group.name}' has no atom: move one into it, or take it out",
                    group.name,
                )

    def _check_circles(self, groups: tuple[ChangeGroup, ...]) -> None:
        by_name = {group.name: group for group in groups}
        for group in groups:
            for name in group.needs:
                if group.name in by_name[name].needs:
                    raise self.fail(
                        f"groups '{group.name}' and '{name}' need each other: merge them",
                        group.name,
                    )
