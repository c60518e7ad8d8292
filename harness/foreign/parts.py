"""Arms that are parts of a difference: the groups of a folder that `ablate split` wrote."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.errors import UserError
from harness.run.document import Content, Document
from harness.split.arms import alone, measured
from harness.split.changes import CHANGES
from harness.split.folder import Folder, read_folder

STEPS = re.compile(r"(?<![a-z])(steps|iterations|epochs)$")
OF_ELSE = re.compile(r"(warm|cool|decay|accum|val|log|save)\w*$")  # steps that are no length


def parts_of(trainer: Document, changes: Document, folder: Path) -> Folder | None:
    """The folder that `parts` names; raises UserError where it does not fit.

    trainer, changes: of the experiment's file; folder: the file's. None: it names none."""
    text = trainer.get("parts")
    if text is None:
        return None
    path = folder / str(text)
    if path.name == CHANGES:
        path = path.parent
    if not (path / CHANGES).is_file():
        raise UserError(
            f"parts {text}: no {CHANGES} in {path}: `ablate split` writes such a folder"
        )
    if changes:
        raise UserError(f"changes: those of {path / CHANGES} are the changes: leave them out")
    return read_folder(path)


def sections(parts: Folder) -> dict[str, Content]:
    """The changes of an experiment: the groups that are measured."""
    return {group.name: {} for group in measured(parts.groups)}


def lengths_of(parts: Folder) -> tuple[str, ...]:
    """The groups that change how long training is, where they stand apart from all others.

    They are in no arm but those that measure the slope of the loss over steps."""
    judged = measured(parts.groups)
    budget = {group.name for group in judged if group.kind == "budget"}
    atoms = {atom.number: atom for atom in parts.parts.atoms}
    names = []
    for group in judged:
        others = [other for other in judged if other.name not in budget]
        is_apart = not any(group.name in other.needs for other in others)
        is_apart = is_apart and not {other.name for other in others} & set(group.needs)
        places = [atoms[number].place.lower() for number in group.atoms]
        says_steps = any(STEPS.search(place) and not OF_ELSE.search(place) for place in places)
        if group.name in budget and is_apart and says_steps:
            names.append(group.name)
    if len(names) == len(judged):
        return ()  # nothing else to measure: they are changes as any
    return tuple(names)


def arms_of_parts(
    parts: Folder,
    design: str,
    chosen: Mapping[str, Sequence[str]],
    changes: Sequence[str],
    where_of: Callable[[str], str],
) -> dict[str, tuple[str, ...]]:
    """The arms of a design over the groups, then those with NEW's length: it alone, and on all.

    chosen: arm -> its changes, as the design has them; changes: all of them, none of them a length;
    where_of: a key of the experiment stands. Raises UserError for a group that no arm has."""
    arms = {name: tuple(groups) for name, groups in chosen.items()}
    if design == "add-one":
        arms = _with_needed(parts, changes)
    there = {change for groups in arms.values() for change in groups}
    for change in changes:
        if change not in there:
            pairs = [f"{g.name} and {other}" for g in parts.groups for other in g.conflicts]
            raise UserError(
                f"{where_of('design')}: design {design}: no arm can have '{change}' (never "
                f"{', '.join(pairs) or 'none'}): choose add-one or factorial, or name the arms"
            )
    lengths = lengths_of(parts)
    if lengths:
        arms[" + ".join(lengths)] = lengths
        if parts.stands((*changes, *lengths)):
            arms[f"all + {' + '.join(lengths)}"] = (*changes, *lengths)
    return arms


def _with_needed(parts: Folder, changes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each change alone, where it needs others with those."""
    arms: dict[str, tuple[str, ...]] = {}
    for name in changes:
        needed = tuple(alone(parts.groups, name))
        others = [other for other in needed if other != name]
        if parts.stands(needed):
            with_it = f" (with {' and '.join(others)}, which it needs)" if others else ""
            arms[f"{name}{with_it}"] = needed
    return arms


def script_of(parts: Folder, changes: Sequence[str]) -> Path:
    """The script of an arm; raises UserError for groups that cannot stand without others."""
    if not parts.stands(changes):
        raise UserError(
            f"{', '.join(changes)}: cannot stand together without what they need, or with what "
            f"they conflict with: see {parts.path / CHANGES}"
        )
    return parts.arm(changes)
