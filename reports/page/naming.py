"""Names as a sentence has them."""

from collections.abc import Sequence

from harness.run.plural import plural

NAMED = 4  # arms that a sentence names; the rest is counted


def verb_for(names: Sequence[str], singular: str, plural: str) -> str:
    if len(names) == 1:
        return singular
    return plural


def listing(names: Sequence[str], *, most: int, comma: str = ", ") -> str:
    """Names as a sentence has them; beyond `most` the rest is counted."""
    if len(names) > most:
        return comma.join(names[:most]) + f" and {len(names) - most} more"
    if len(names) == 1:
        return names[0]
    return comma.join(names[:-1]) + " and " + names[-1]


def arms_listed(arms: Sequence[str]) -> str:
    """Names of arms, parted by semicolons where one of them has a comma; many are counted."""
    comma = "; " if any(", " in arm for arm in arms) else ", "
    return listing(arms, most=NAMED, comma=comma)


def few_named(arms: Sequence[str]) -> str:
    """The arms by their names; above two how many, which stand under what differed."""
    return plural(len(arms), "arm") if len(arms) > 2 else listing(arms, most=2)
