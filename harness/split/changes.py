"""changes.yaml: the groups of a difference, written and read."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from harness.errors import UserError, near
from harness.run.document import Content
from harness.split.atoms import Atom
from harness.split.groups import ARMS, CLASSES, MEASURED, ChangeGroup, Parts, with_needs
from harness.split.labels import summary_of
from harness.yamlfile import YamlFile

CHANGES = "changes.yaml"
TOP_KEYS = ("script", "groups", "atoms")
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


class GroupsFile:
    """The groups of changes.yaml, key by key."""

    def __init__(self, file: YamlFile, parts: Parts) -> None:
        self.file = file
        self.parts = parts
        for key in file.data:
            if key not in TOP_KEYS:
                raise UserError(f"{file.where(key)}: unknown key {key!r}{near(str(key), TOP_KEYS)}")
        given = file.data.get("groups")
        if not isinstance(given, dict) or not given:
            raise UserError(f"{file.where('groups')}: groups must be a mapping of names to groups")
        for name in given:
            if not isinstance(name, str):
                raise UserError(
                    f"{file.where('groups')}: group {name} is a number or a word of YAML: write it "
                    "in quotes, or rename the group"
                )
        self.given: dict[Any, Any] = given

    def fail(self, message: str, *keys: str) -> UserError:
        return UserError(f"{self.file.where('groups', *keys)}: {message}")

    def groups(self) -> tuple[ChangeGroup, ...]:
        """All of them; raises UserError where they are not whole."""
        read: list[ChangeGroup] = []
        by_letters: dict[str, str] = {}
        for name, content in self.given.items():
            if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", str(name)):
                raise self.fail(
                    f"group {str(name)!r}: letters, digits, _, - and . alone", str(name)
                )
            if str(name).casefold() in ARMS:
                raise self.fail(
                    f"group '{name}': an arm of every design is called so: rename the group",
                    str(name),
                )
            same = by_letters.setdefault(str(name).casefold(), str(name))
            if same != str(name):
                raise self.fail(
                    f"groups '{same}' and '{name}' are one name on some disks: rename one of them",
                    str(name),
                )
            read.append(self._group(str(name), content))
        self._check_said()
        self._check_atoms(read)
        full = with_needs(read, self.parts.edges)
        self._check_circles(full)
        always = {group.name for group in full if group.always}
        arms = {group.name for group in full if group.kind in MEASURED} - always
        for group, written in zip(full, read, strict=True):
            judged = [name for name in group.needs if name in arms]
            if group.always and judged:
                raise self.fail(
                    f"group '{group.name}' is in every arm and needs {', '.join(judged)}: set "
                    "`always: true` there too",
                    group.name,
                    "always",
                )
            missing = [name for name in group.needs if name not in (*written.needs, *always)]
            if missing:
                raise self.fail(
                    f"group '{group.name}' needs {', '.join(missing)} too: write them into its "
                    "needs, or merge the groups",
                    group.name,
                )
            if group.name in written.needs:
                raise self.fail(f"group '{group.name}' needs itself", group.name, "needs")
        self._check_conflicts(full)
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
            about=self._about(content.get("about"), members),
            kind=kind,
            atoms=tuple(content.get("atoms", [])),
            needs=tuple(content.get("needs", [])),
            conflicts=tuple(content.get("conflicts", [])),
            always=content.get("always", False),
            lines=sum(atom.n_lines for atom in members),
        )

    def is_told(self, groups: Iterable[ChangeGroup]) -> bool:
        """Whether the file says what each group is, and how many lines it has."""
        for group in groups:
            given = self.given[group.name]
            if (given.get("about"), given.get("lines")) != (group.about, group.lines):
                return False
        return True

    def _about(self, given: str | None, members: list[Atom]) -> str:
        """What a group is: as it is written, but for a summary of atoms that it no longer has."""
        if not members:
            return given or ""
        said = re.sub(r" \(and \d+ more\)$", "", given or "")
        if not said or said in _said(self.parts.atoms).values():
            return summary_of(members)
        return str(given)

    def _check_said(self) -> None:
        """The numbers of atoms mean what they meant when the file was written."""
        written = self.file.data.get("atoms")
        if not isinstance(written, dict):
            raise UserError(
                f"{self.file.path}: has no `atoms`, which say what each number was: put them back, "
                "or take the scripts apart again"
            )
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
                    raise self.fail(
                        f"group '{group.name}': there is no atom {atom}: those that there are "
                        "stand at the end of the file",
                        group.name,
                    )
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

    def _check_conflicts(self, groups: Iterable[ChangeGroup]) -> None:
        """No group is never with itself, with what it needs, or with what is in every arm."""
        always = [group.name for group in groups if group.always]
        for group in groups:
            present = (group.name, *group.needs, *always)
            if group.always:
                present = tuple(other.name for other in groups)
            for name in group.conflicts:
                if name in present:
                    raise self.fail(
                        f"group '{group.name}' conflicts with '{name}', and one is never without "
                        "the other: take it out of the conflicts",
                        group.name,
                        "conflicts",
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
