"""A page's text against the text that its own data give: all that stands outside the data.

Nothing is parsed: a browser may read markup otherwise than any parser here. Between the pieces of a
text, which are its tags and what stands between them, numbers are compared as numbers (same.py),
all else to the letter: words, attributes, styles, scripts, comments.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from harness.errors import visible
from reports.verify.page import Page
from reports.verify.same import NUMBER, same_drawn, same_text, shortened

PIECE = re.compile(r"(<[^<>]*>)")
ATTRIBUTE = re.compile(r'(\s[\w:-]+="[^"]*")')
SHOWN_WHOLE = 60  # letters; of longer texts the place is told where they part
BEFORE = 15  # letters before that
MOST_TOLD = 20  # places
MOST_ALIGNED = 20_000  # pieces; of a page that differs in more only the first is told


def check_markup(page: Page, made: Sequence[Page]) -> Iterator[str]:
    """Sentences on what stands on the page and is in none of the pages that follow from its data.

    The first of these is the one to be told.
    """
    if any(page.markup == other.markup for other in made):
        return
    printed = PIECE.split(page.markup)
    options = [PIECE.split(other.markup) for other in made]
    for place, (line, sentence) in enumerate(parted(printed, options)):
        if place == MOST_TOLD:
            yield "and more of that kind"
            return
        yield f"line {line}: {sentence}"


def parted(printed: Sequence[str], options: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    """(line of the page, what is otherwise there)."""
    expected = options[0]
    as_many = [option for option in options if len(option) == len(expected)]
    for tag, i1, i2, j1, j2 in aligned(shapes(printed), shapes(expected)):
        if tag == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                if not same_piece(printed[i], [option[j] for option in as_many]):
                    yield line_of(printed, i), otherwise(printed[i], expected[j])
        else:
            there = "".join(printed[i1:i2])
            blank = there[: len(there) - len(there.lstrip())]
            line = line_of(printed, i1) + blank.count("\n")
            yield line, otherwise(there, "".join(expected[j1:j2]))


def shapes(pieces: Sequence[str]) -> list[str]:
    """The pieces without their numbers."""
    return [NUMBER.sub("0", piece) for piece in pieces]


def aligned(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """What to do to a to get b, as difflib writes it; equal ends are cut off first."""
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    most = shorter - head
    tail = next((i for i in range(most) if a[-1 - i] != b[-1 - i]), most)
    end_a, end_b = len(a) - tail, len(b) - tail
    yield "equal", 0, head, 0, head
    if max(end_a, end_b) - head > MOST_ALIGNED:
        yield "replace", head, end_a, head, end_b
    else:
        middle = SequenceMatcher(None, a[head:end_a], b[head:end_b])
        for tag, i1, i2, j1, j2 in middle.get_opcodes():
            yield tag, head + i1, head + i2, head + j1, head + j2
    yield "equal", end_a, len(a), end_b, len(b)


def same_piece(printed: str, options: Sequence[str]) -> bool:
    """Whether a text or a tag is one of the options, its numbers taken as numbers."""
    if printed in options or same_text(printed, options):
        return True
    if not printed.startswith("<"):
        return False
    parts, of_options = ATTRIBUTE.split(printed), [ATTRIBUTE.split(option) for option in options]
    of_options = [option for option in of_options if len(option) == len(parts)]
    for place, part in enumerate(parts):
        name = part.partition("=")[0].strip().lower()
        if not same_drawn(name, part, [option[place] for option in of_options]):
            return False
    return True


def line_of(pieces: Sequence[str], place: int) -> int:
    """The line of the page on which a piece begins."""
    return sum(piece.count("\n") for piece in pieces[:place]) + 1


def otherwise(printed: str, expected: str) -> str:
    """What stands there and what the data give."""
    if not expected:
        return f"'{plainly(printed)}' does not follow from the data in the page"
    if not printed:
        return f"'{plainly(expected)}' follows from the data in the page and is missing"
    if max(len(printed), len(expected)) > SHOWN_WHOLE:
        letters = enumerate(zip(printed, expected, strict=False))
        parting = next((i for i, (a, b) in letters if a != b), min(len(printed), len(expected)))
        begin = max(0, parting - BEFORE)
        printed, expected = printed[begin:], expected[begin:]
    return f"'{plainly(printed)}' stands where the data in the page give '{plainly(expected)}'"


def plainly(text: str) -> str:
    """The text in one short line that commands no terminal."""
    return shortened(visible(" ".join(text.split())))
