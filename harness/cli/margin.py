"""What a margin was chosen for, where that is another text."""

from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment


def margin_note(e: "Experiment") -> str | None:
    """That the margin was chosen for another text, and the unit that its number has on this one.

    None where it was not. Without the unit where this text is not prepared.
    """
    from harness.corpora.index import open_corpus

    if e.margin_of is None:
        return None
    corpus = e.baseline.config.data.corpus
    try:
        unit = f", in {open_corpus(corpus).unit}"
    except UserError:  # told where its absence matters
        unit = ""
    return (
        f"margin {e.margin:g}: chosen for {e.margin_of}, taken as it is on {corpus}{unit}; "
        "--set margin=X chooses another"
    )
