"""A family of changes that grew: each of its pages was judged by what had been asked until then."""

from collections.abc import Collection, Sequence

ERROR = 0.05  # of a family, where a page is for 95 %


def chance_of_growth(asked: Sequence[Collection[str]]) -> float:
    """At most how likely it is that one of the pages misled as it was first shown.

    asked: the changes of each page, oldest first; those that it added were judged at their share
    of all that had been asked by then."""
    seen: set[str] = set()
    shares = 0.0
    for changes in asked:
        n_before = len(seen)
        seen.update(changes)
        shares += (len(seen) - n_before) / max(1, len(seen))
    return ERROR * shares


def words_of_growth(asked: Sequence[Collection[str]]) -> str:
    """The chance in a sentence, with a space before it; '' where all were asked at once."""
    chance = chance_of_growth(asked)
    if chance <= ERROR:
        return ""
    return (
        " Of their pages as each was first shown, when fewer had been asked, one or more mislead "
        f"with a chance of up to {chance:.0%}: confirm what pleased."
    )
