"""Which script NEW was made from: the nearest of some candidates."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.cli.split_sides import candidates_of, code_of
from harness.cli.table import print_table
from harness.errors import UserError
from harness.run.document import Content
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.cli.split_options import SplitOptions
    from harness.split.parents import Parents

NAMED_SKIPPED = 5  # lines on candidates that were skipped


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What is taken apart."""

    old: str
    new: str
    parents: "Parents | None" = None  # where candidates were given

    def parents_mapping(self) -> Content | None:
        """As JSON has them; None where none were given."""
        if self.parents is None:
            return None
        return {
            "chosen": self.old,
            "distances": [vars(one) for one in self.parents.distances],
            "skipped": dict(self.parents.skipped),
        }


def sides_of(options: "SplitOptions") -> Sides:
    """OLD and NEW, OLD the nearest candidate where --parents alone names it; raises UserError."""
    if not options.parents:
        if options.old is None or options.new is None:
            raise UserError(
                "split: name OLD and NEW, or NEW and --parents, or --check DIR for a folder that "
                "was edited"
            )
        return Sides(old=options.old, new=options.new)
    new = options.new or options.old
    if new is None:
        raise UserError("--parents: name NEW, whose parent is looked for")
    parents = _measured(options, new)
    if parents.nearest is None:
        first = next(iter(parents.skipped.values()), "there is none")
        raise UserError(f"--parents: no candidate can be OLD: {first}")
    old = options.old if options.new is not None else None
    return Sides(old=old or parents.nearest.candidate, new=new, parents=parents)


def _measured(options: "SplitOptions", new: str) -> "Parents":
    from harness.split.parents import Parents, parents_of
    from harness.split.source import decoded

    code = code_of(new, "NEW", options)
    text = decoded(code.files[code.script], f"NEW {new}")
    candidates, unread = candidates_of(options)
    if options.new is not None and options.old is not None:
        other = code_of(options.old, "OLD", options)
        candidates = {options.old: other.files[other.script], **candidates}
    parents = parents_of(text, candidates)
    return Parents(distances=parents.distances, skipped={**unread, **parents.skipped})


def tell_parents(sides: Sides) -> None:
    """The distances, what was skipped, and which one is OLD."""
    parents = sides.parents
    if parents is None or parents.nearest is None:
        return
    print_table([vars(one) for one in parents.distances], ("candidate", "lines", "atoms"))
    said = list(parents.skipped.values())
    for line in said[:NAMED_SKIPPED]:
        print(f"skipped {line}")
    if len(said) > NAMED_SKIPPED:
        print(f"skipped {len(said) - NAMED_SKIPPED} more")
    nearest = parents.nearest
    changed = plural(nearest.lines, "changed line")
    if nearest.candidate == sides.old:
        print(f"OLD is {sides.old}, the nearest: {changed}")
    else:
        print(
            f"{nearest.candidate} is nearer than {sides.old}, with {changed}: "
            f"ablate split {nearest.candidate} {sides.new}"
        )
