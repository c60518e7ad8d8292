"""The words of a page and what they mean, beside those of its tables' columns."""

import re
from collections.abc import Iterable, Sequence

from harness.run.plan import Plan
from reports.page.tables import RunColumn
from reports.page.verdicts import Head

GENERAL_WORDS = (
    (
        "arm",
        (
            "A baseline plus a set of changes. Up to eight arms have a colour each, the same in "
            "every figure; of more the colour tells the verdict. #7 in a figure is the seventh "
            "arm of the plan after the baseline."
        ),
    ),
    (
        "seed, block",
        (
            "A seed keys initial weights and data order. A block is all arms at one seed, run one "
            "after another."
        ),
    ),
    (
        "interval",
        (
            "Where the true difference lies with 95 % confidence, for all arms of the table at"
            " once, so that an interval that excludes zero and p below 0.05 always agree."
        ),
    ),
    (
        "noise floor",
        (
            "How far the baseline's final losses scatter over seeds (standard deviation):"
            " differences well below it need many runs. Of two or three runs it is no floor yet."
        ),
    ),
    (
        "look",
        (
            "Each time results were judged. Where some were not there yet, intervals are sequences "
            "from then on, which are wider and hold for any number of looks."
        ),
    ),
    (
        "exploratory",
        (
            "The runs that suggested a change are also those that judge it; a confirmatory"
            " experiment uses fresh seeds."
        ),
    ),
    (
        "at-rate, retuned",
        (
            "At-rate: every arm trains at the baseline's learning rates, but for those that its own"
            " changes set. Retuned: each arm at its own best one, measured again on fresh seeds."
        ),
    ),
    (
        "margin",
        "The largest difference that does not matter, declared before the first run.",
    ),
    (
        "N*",
        "The steps that a schedule would need to end at the target loss.",
    ),
    (
        "stale",
        "A run whose source has changed since: left out, unless it was admitted.",
    ),
    (
        "extrapolated",
        "Beyond the budgets that were run: it gets no verdict.",
    ),
    (
        "own part",
        "What an arm of a ladder adds to the arm before it.",
    ),
    (
        "ladder",
        "A design that adds its changes one after another: each arm has one more than the last.",
    ),
    (
        "Shapley share",
        "What a change adds, averaged over every order of adding the changes.",
    ),
    (
        "record",
        (
            "One of the public speedrun's numbered fastest runs: r08 is record 8. A scale cuts a"
            " record's model and batch down to what a small machine trains."
        ),
    ),
    (
        "two-way model",
        "One mean for every arm and one for every block; what is left over is the noise.",
    ),
    (
        "max-t, Bonferroni",
        "Two ways to widen the intervals of a table so that all hold at once.",
    ),
    (
        "anytime-valid",
        "True at every look, however often results were judged before the end; wider for it.",
    ),
    (
        "stdlib",
        "The text that this program embeds: source files of Python's standard library.",
    ),
    (
        "locked plan",
        "Digest of what was planned before the first run: question, arms, metric, seeds, margin.",
    ),
)


def definitions(
    heads: Sequence[Head], columns: Sequence[RunColumn], plan: Plan, texts: Iterable[str]
) -> list[tuple[str, str]]:
    """The columns of both tables, and the words between that texts of the page have.

    A column of runs that the table of verdicts has too is told there; what was published has no
    verdicts, so none of their words.
    """
    said = " ".join(texts).lower()
    meanings = {head.text: head.meaning for head in heads}
    general = dict(GENERAL_WORDS[:1] if plan.evidence else GENERAL_WORDS)
    for terms, meaning in general.items():
        if any(is_said(term.lower(), said) for term in terms.split(", ")):
            meanings[terms] = meaning
    for column in columns:
        meanings.setdefault(column.head, column.meaning)
    return [*meanings.items()]


def is_said(word: str, said: str) -> bool:
    """Whether a text has the word, or more than one of it; both in small letters."""
    return re.search(rf"(?<![-\w]){re.escape(word)}s?(?!\w)", said) is not None
