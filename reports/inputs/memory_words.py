"""What was seen before, in the words of a page's notes."""

from collections.abc import Iterable, Mapping, Sequence

from harness.run.ledger import Look
from harness.run.plan import Plan, PlanRun
from harness.run.plural import plural

MOST_NAMED = 4  # experiments or seeds that a sentence names


def at_seeds(seeds: Iterable[int]) -> str:
    ordered = sorted(seeds)
    named = ", ".join(map(str, ordered[:MOST_NAMED]))
    if len(ordered) > MOST_NAMED:
        named += f" and {len(ordered) - MOST_NAMED} more"
    return f"seed{'s' if len(ordered) > 1 else ''} {named}"


def named_in(looks: Iterable[Look]) -> str:
    names = sorted({look.experiment for look in looks})
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest


def stale_words(stale: Mapping[int, str]) -> str:
    if not stale:
        return ""
    return (
        f"Nothing is confirmed here: results at {at_seeds(stale)} were seen before this plan was "
        f"locked (in {', '.join(sorted(set(stale.values()))[:MOST_NAMED])})."
    )


def changed_words(others: Sequence[Look], more: Sequence[PlanRun]) -> str:
    if not others and not more:
        return ""
    first = min(others, key=lambda look: look.at, default=None)
    said = "These changes were seen before at other seeds than are planned now"
    if first is not None:
        said += f" ({named_in(others)}; {plural(len(first.seeds), 'seed')} from {first.at[:16]} on)"
    if more:
        said += f"; what was seen at {at_seeds({run.seed or 0 for run in more})} counts"
    return f"{said}: intervals are anytime-valid."


def other_words(n_results: int) -> str:
    seen = "1 result of these arms was"
    if n_results > 1:
        seen = f"{n_results} results of these arms were"
    return f"Beside the runs here, {seen} seen under other code: not counted."


def stream_words(plan: Plan) -> str:
    place = plan.stream
    if place is None:
        return ""
    return (
        f"Candidate {place.number} of the stream '{place.stream}', {place.n_kept} kept before it: "
        f"judged at 1/{place.parts} of the 5 %, so that of all that are kept at most 5 % are false."
    )
