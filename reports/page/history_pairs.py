"""The pairs of successive records before and after their logs were told apart, as Markdown."""

from collections.abc import Iterator, Sequence

from reports.analysis.chain import ChainRow, Gain
from reports.inputs.history import Earlier
from reports.page.history import MINUS, cells

PAIRS_HEAD = """# The pairs of successive records, before and after

*Before*: one arm a folder, whatever it held; times compared across any number of GPUs; no noise
between nodes. *After*: the rows of [the page](history.html). Both from the same logs; `{command}`
writes both. Differences in time are seconds, below zero faster.

"""
PAIRS_COLUMNS = (
    *("record", "published", "before: time, verdict", "after: time", "gain in all, %"),
    *("verdict", "why it changed", "loss", "loss by their pages"),
)
MOVED = 0.5  # seconds by which a difference is another one


def pairs_text(rows: Sequence[ChainRow], *, command: str) -> str:
    """The table of one track's records that were compared before, with its counts."""
    paired = [row for row in rows if row.link.earlier is not None]
    lines = [
        *_pair_counts(paired),
        "",
        f"| {' | '.join(PAIRS_COLUMNS)} |",
        "|" + "---|" * len(PAIRS_COLUMNS),
    ]
    lines += [f"| {' | '.join(_pair_cells(row))} |" for row in paired]
    return PAIRS_HEAD.format(command=command) + "\n".join(lines).replace(MINUS, "-") + "\n"


def _pair_counts(rows: Sequence[ChainRow]) -> Iterator[str]:
    earlier = [row.link.earlier for row in rows if row.link.earlier is not None]
    faster = sum(one.verdict == "faster" for one in earlier)
    slower = sum(one.verdict == "slower" for one in earlier)
    times = [row for row in rows if row.time_s is not None and row.time_s.low is not None]
    compared = [row for row in rows if _printed_difference(row) is not None]
    held = sum(_held_before(row) for row in rows)
    holding = sum(_holds(row.time_s, row.link.published_delta) for row in times)
    borne_out = sum(_holds(row.loss, _printed_difference(row)) for row in compared)
    yield (
        f"{len(rows)} pairs. Before: {faster} faster, {slower} slower; the published difference "
        f"lies in {held} of {sum(one.low is not None for one in earlier)} intervals of time. "
        f"After: {holding} of {len(times)}."
    )
    yield (
        f"The pages of both records print their losses in {len(compared)} pairs: {borne_out} of "
        "those differences lie in the interval of the loss."
    )


def _pair_cells(row: ChainRow) -> list[str]:
    shown, earlier = cells(row), row.link.earlier
    assert earlier is not None
    printed = _printed_difference(row)
    return [
        row.link.record,
        shown["published_delta"],
        _earlier_words(earlier),
        shown["time"],
        shown["total"],
        shown["verdict"],
        "; ".join(_why_changed(row, earlier)),
        shown["loss"],
        "" if printed is None else f"{printed:+.4f}",
    ]


def _earlier_words(earlier: Earlier) -> str:
    if earlier.seconds is None:
        return earlier.verdict
    text = f"{earlier.seconds:+.1f}"
    if earlier.low is not None:
        text += f" [{earlier.low:+.1f}, {earlier.high:+.1f}]"
    return f"{text} {earlier.verdict}"


def _why_changed(row: ChainRow, earlier: Earlier) -> Iterator[str]:
    """What became of the earlier verdict, and by what."""
    time = row.time_s
    if time is None:
        yield row.why
        return
    if earlier.seconds is None or abs(earlier.seconds - time.value) > MOVED:
        against = "arms of one program and machine"
        if row.link.beside:
            against = "the baseline beside it"
        yield f"other runs: {against}"
    if time.low is None or time.high is None:
        yield row.why
        return
    half = (time.high - time.low) / 2
    if earlier.low is None or earlier.high is None:
        yield f"an interval where there was none (half width {half:.1f} s, two unknown nodes in it)"
    else:
        was = (earlier.high - earlier.low) / 2
        yield f"two unknown nodes: half width {half:.1f} s instead of {was:.1f}"
    yield row.why.removesuffix("; the node is unknown")


def _printed_difference(row: ChainRow) -> float | None:
    """The difference of the losses that both records' own pages print."""
    arm, parent = row.arm, row.parent
    if arm is None or parent is None or arm.printed is None or parent.printed is None:
        return None
    return arm.printed.mean - parent.printed.mean


def _held_before(row: ChainRow) -> bool:
    earlier, published = row.link.earlier, row.link.published_delta
    if earlier is None or earlier.low is None or earlier.high is None or published is None:
        return False
    return earlier.low <= published <= earlier.high


def _holds(gain: Gain | None, value: float | None) -> bool:
    if gain is None or gain.low is None or gain.high is None or value is None:
        return False
    return gain.low <= value <= gain.high
