"""`ablate ab --stream NAME`: candidates one after the other; of those kept few are false."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment


def in_stream(e: "ForeignExperiment", results: Path, name: str) -> "ForeignExperiment":
    """The experiment at its place in a stream: the one that its scripts have, else the next one.

    The place is in the ledger before anything runs."""
    from harness.run.ledger import give_place
    from harness.store.store import Store

    Store.create(results)
    place = give_place(results, name, candidate_of(e))
    if place is None:
        raise UserError(
            f"--stream {name}: another candidate has taken the next place, and {results} "
            "knows no locks: call it again"
        )
    return replace(e, stream=place)


def note_kept(e: "ForeignExperiment", results: Path) -> None:
    """That the candidate is kept: it raises what those after it may spend."""
    from harness.run.ledger import StreamRow, add_rows, read_ledger

    assert e.stream is not None
    candidate = candidate_of(e)
    noted = read_ledger(results).streams.get(e.stream.stream, {}).get(candidate)
    if noted is None or not noted.kept:
        row = StreamRow(place=e.stream, candidate=candidate, kept=True)
        add_rows(results, [row.to_json()])


def candidate_of(e: "ForeignExperiment") -> str:
    """The claim of the new script against this baseline."""
    from harness.foreign.plan import describe_foreign
    from harness.run.ledger import claims_of

    plan = describe_foreign(e, [], before=None, command="")
    return claims_of(plan)[e.arms[1].name]
