"""Whether changes add up, in words: what a change does beside another, and what two add beyond."""

import math
from collections.abc import Sequence

from reports.analysis.attribution import Attribution
from reports.analysis.interactions import BesideOther, Interplay
from reports.analysis.judges import Share
from reports.figures.interactions import changes_in_words, interplay_words
from reports.format import with_interval
from reports.page.naming import NAMED, listing

VERB_OF_SIDE = {1: "hurt", -1: "help"}  # side of zero on which a loss is -> what it is shown to do


def leaves_zero(pair: Interplay) -> bool:
    return pair.low is not None and pair.high is not None and (pair.low > 0 or pair.high < 0)


def pairs_apart(interactions: Sequence[Interplay]) -> list[Interplay]:
    """The interactions whose intervals leave zero, the largest first."""
    apart = [e for e in interactions if len(e.changes) == 2 and leaves_zero(e)]
    return sorted(apart, key=lambda pair: -abs(pair.estimate))


def exceeds_shares(interactions: Sequence[Interplay], contributions: Sequence[Attribution]) -> bool:
    """Whether an interaction that leaves zero is larger than the share of one of its changes."""
    sizes = {}
    for table in contributions:
        for change, columns in table.shares.items():
            if table.metric == "val_loss" and "shapley" in columns:
                sizes[change] = abs(columns["shapley"].value)
    for pair in pairs_apart(interactions):
        if any(abs(pair.estimate) > sizes.get(change, math.inf) for change in pair.changes):
            return True
    return False


def adding_up(interactions: Sequence[Interplay], beside: Sequence[BesideOther], unit: str) -> str:
    """The largest interaction that leaves zero, by what each change does beside the other.

    Where none does, the largest of all; '' without an interval. unit: of a loss.
    """
    pairs = [e for e in interactions if len(e.changes) == 2 and e.low is not None]
    if not pairs:
        return ""
    apart = pairs_apart(pairs)
    if not apart:
        largest = max(pairs, key=lambda pair: abs(pair.estimate))
        return (
            "Whether the changes add up is undecided; what two add beyond their sum is largest of"
            f" {changes_in_words(largest)}, {interplay_words(largest)} {unit}."
        )
    first, *others = apart
    said = (
        f"The changes do not add up. {pair_words(first, beside)}. The two together add"
        f" {interplay_words(first)} {unit} beyond their sum (above zero is worse)"
    )
    if others:
        named = [f"{changes_in_words(pair)} {interplay_words(pair)}" for pair in others]
        said += f"; so do {listing(named, most=NAMED)}"
    return f"{said}."


def pair_words(pair: Interplay, beside: Sequence[BesideOther]) -> str:
    """What is shown of the two changes of a pair, each with the other and without it."""
    of_pair = [e for e in beside if {e.change, e.other} == set(pair.changes)]
    of_pair.sort(key=lambda e: " only " not in is_shown_to(e))  # the plainest first
    kinds = {is_shown_to(e) for e in of_pair}
    if len(kinds) == 1 and kinds <= {f"{verb} only with" for verb in VERB_OF_SIDE.values()}:
        verb = kinds.pop().partition(" ")[0]
        effects = [f"{e.change} {both_words(e)}" for e in of_pair]
        names = " and ".join(pair.changes)
        return f"{names} are shown to {verb} only together: {'; '.join(effects)}"
    clauses = []
    for e in of_pair:
        clause = f"{e.change} is shown to {is_shown_to(e)} {e.other}"
        if not is_shown_to(e):
            clause = f"{e.change} is told from zero neither with {e.other} nor without it"
        clauses.append(f"{clause}: {both_words(e)}")
    return ". ".join(clauses)


def is_shown_to(e: BesideOther) -> str:
    """What a change is shown to do, up to the name of the other; '' where nothing is."""
    there, alone = side_of_zero(e.with_other), side_of_zero(e.without)
    if there == alone == 0:
        return ""
    if not there or not alone:
        return f"{VERB_OF_SIDE[there or alone]} only {'with' if there else 'without'}"
    if there != alone:
        return f"{VERB_OF_SIDE[alone]} alone and to {VERB_OF_SIDE[there]} with"
    more = "more" if abs(e.with_other.value) > abs(e.without.value) else "less"
    return f"{VERB_OF_SIDE[there]} {more} with"


def side_of_zero(share: Share) -> int:
    """1 where an interval lies above zero, -1 below, 0 where it holds zero or is none."""
    if share.low is None or share.high is None:
        return 0
    return int(share.low > 0) - int(share.high < 0)


def both_words(e: BesideOther) -> str:
    """Its effect with the other change and without it."""
    there, alone = share_words(e.with_other), share_words(e.without)
    return f"{there} with it, {alone} without"


def share_words(share: Share) -> str:
    return with_interval(share.value, share.low, share.high, "loss_delta")
