"""Arms that are parts of a difference: the groups of a folder that `ablate split` wrote."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import UserError
from harness.run.document import Content, Document
from harness.split.arms import measured
from harness.split.folder import CHANGES, Folder, read_folder

STEPS = re.compile(r"(?<![a-z])(num_|n_|max_|total_|train_)?(steps|iterations|epochs)$")


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
        says_steps = any(STEPS.search(atoms[number].place.lower()) for number in group.atoms)
        if group.name in budget and is_apart and says_steps:
            names.append(group.name)
    return tuple(names)


def with_lengths(
    parts: Folder, chosen: Mapping[str, Sequence[str]], everything: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The arms of a design, then those with NEW's length: it alone, and on all changes.

    chosen: arm -> its changes, none of them a length; everything: all of those changes."""
    arms = {name: tuple(changes) for name, changes in chosen.items()}
    lengths = lengths_of(parts)
    if lengths:
        arms[" + ".join(lengths)] = lengths
        if parts.stands((*everything, *lengths)):
            arms[f"all + {' + '.join(lengths)}"] = (*everything, *lengths)
    return arms


def script_of(parts: Folder, changes: Sequence[str]) -> Path:
    """The script of an arm; raises UserError for groups that cannot stand without others."""
    if not parts.stands(changes):
        raise UserError(
            f"{', '.join(changes)}: cannot stand together without what they need, or with what "
            f"they conflict with: see {parts.path / CHANGES}"
        )
    return parts.arm(changes)
