"""A page against the page that its own data give: words, numbers, rows and figures."""

from collections.abc import Iterator, Sequence
from typing import Any

from reports.page.by_design import PageSource
from reports.page.embed import embed_experiment, plain, script_json
from reports.page.version import WRITTEN_BY
from reports.page.write import draw_page, judged
from reports.stats.digits import moved
from reports.verify.markup import check_markup, plainly
from reports.verify.page import Page, Printed, read_page
from reports.verify.same import numbers_of, same_data, same_drawn, same_text, shortened

PARTS = {
    "sentences": "the sentence",
    "rows": "the row",
    "carried": "the value carried by",
    "sorted_by": "the value carried by the row",
    "drawings": "the figure",
    "sections": "the text of the section",
}
Pieces = Sequence[tuple[str, str]]  # of a drawing: (element and attribute, its text)
# A number may lie in the middle between two written ones: then either is right.
SIDES: tuple[tuple[int | None, ...], ...] = ((-1, 1), (None,))


def check_rendered(page: Page) -> Iterator[str]:
    """The page against the page that its own data give.

    Words, numbers, rows and figures must be the same.
    """
    experiments = [judged(data) for data in page.data["experiments"]]
    yield from check_carried_data(page, experiments)
    writer = page.data.get(WRITTEN_BY)
    drawn = draw_page(
        experiments,
        refresh_s=page.refresh_s,
        written_by=writer if isinstance(writer, str) else None,
    )
    if page.text == drawn:
        return
    made = [read_page(drawn)]
    for sides in SIDES:
        if any(compared(page, made)) or any(check_markup(page, made)):
            made += remade(experiments, sides, page.refresh_s)
    yield from compared(page, made)
    yield from check_markup(page, made)


def remade(
    experiments: Sequence[PageSource],
    sides: Sequence[int | None],
    refresh_s: float | None = None,
) -> list[Page]:
    """The pages of these experiments, every computed number moved to each side."""
    pages = []
    for side in sides:
        with moved(side):
            pages.append(read_page(draw_page(experiments, refresh_s=refresh_s)))
    return pages


def check_carried_data(page: Page, experiments: Sequence[PageSource]) -> Iterator[str]:
    """The data in a page: written as this program writes them, with nothing that no page has."""
    if page.embedded != script_json(page.data):
        yield "the data in the page are not written as `ablate report` writes them"
    for key in page.data.keys() - {"format", "experiments", WRITTEN_BY}:
        yield f"the data in the page hold {plainly(key)}, which no page has"
    for source in experiments:
        data, again = source.data, plain(embed_experiment(source.experiment))
        for key in data:
            if key not in (*again, "figures"):
                yield f"the data of {data['name']} hold {plainly(key)}, which no page has"
            elif key not in ("plan", "figures") and data[key] != again[key]:
                yield f"the data of {data['name']} hold other {key} than a page has"


def compared(page: Page, made: Sequence[Page]) -> Iterator[str]:
    """What of the page is in none of the pages that may follow from its data.

    The first of these is the one to be told.
    """
    for experiment, arm in made[0].verdicts:
        yield from compared_verdicts(page, made, experiment, arm)
    yield from compared_figures(page, made)
    for part in PARTS:
        yield from compared_parts(page, made, part)


def compared_verdicts(page: Page, made: Sequence[Page], experiment: int, arm: int) -> Iterator[str]:
    """An arm's row in the table of verdicts, piece by piece; experiment, arm: their places."""
    plan = page.data["experiments"][experiment]["plan"]
    where = f"{plan['name']}: arm {plan['arms'][arm]['name']!r}"
    rows = [other.verdicts.get((experiment, arm), {}) for other in made]
    printed = page.verdicts.get((experiment, arm), {})
    for key in dict.fromkeys([*rows[0], *printed]):
        if key not in printed:
            yield f"{where}: {key} is missing"
        elif key not in rows[0]:
            yield f"{where}: {key} is printed but does not follow from the rows"
        else:
            options = [row[key] for row in rows if key in row]
            yield from differing_verdict(f"{where}: {key}", printed[key], options)


def differing_verdict(where: str, got: Printed, options: Sequence[Printed]) -> Iterator[str]:
    """A sentence where a piece of the table of verdicts is none of the options."""
    want = options[0]
    if not same_text(got.text, [option.text for option in options]):
        yield f"{where} is printed as '{got.text}' but the rows give '{want.text}'"
    elif not same_data(list(got.values), [list(option.values) for option in options]):
        yield f"{where} carries {got.values} but the rows give {want.values}"


def compared_figures(page: Page, made: Sequence[Page]) -> Iterator[str]:
    """The data of every figure."""
    for index, embedded in enumerate(page.data["experiments"]):
        figures = embedded["figures"]
        options = [other.data["experiments"][index]["figures"] for other in made]
        for key in dict.fromkeys([*figures, *options[0]]):
            if not same_data(figures.get(key), [option.get(key) for option in options]):
                yield f"the data of the figure {key}-{index} does not follow from the rows"


def compared_parts(page: Page, made: Sequence[Page], part: str) -> Iterator[str]:
    """Everything printed of one of PARTS."""
    printed = getattr(page, part)
    expected = [getattr(other, part) for other in made]
    for key in dict.fromkeys([*expected[0], *printed]):
        where = f"{PARTS[part]} {' '.join(map(str, key))}"
        if key not in printed:
            yield f"{where} is missing"
        elif key not in expected[0]:
            yield f"{where} is not in the data"
        else:
            options = [pieces[key] for pieces in expected if key in pieces]
            yield from differing(part, where, printed[key], options)


def differing(part: str, where: str, printed: Any, options: Sequence[Any]) -> Iterator[str]:
    """A sentence where a printed part is none of the options."""
    if printed in options:
        return
    if part == "drawings":
        yield from differing_drawing(where, printed, options)
    elif part == "carried":
        if not same_data(numbers_of(printed), [numbers_of(option) for option in options]):
            yield f"{where} differs: it is {printed}, expected {options[0]}"
    elif same_text(printed, options):
        return
    elif part == "sections":
        yield f"{where} differs"
    else:
        yield f"{where} differs: printed '{printed}', expected '{options[0]}'"


def differing_drawing(where: str, printed: Pieces, options: Sequence[Pieces]) -> Iterator[str]:
    """A sentence on the first piece of a drawing that is at its place in none of the options."""
    names = names_of(printed)
    of_one_shape = [option for option in options if names_of(option) == names]
    if not of_one_shape:
        yield f"{where} differs: it has other elements than the rows give"
        return
    for place, (name, text) in enumerate(printed):
        texts = [option[place][1] for option in of_one_shape]
        if not same_drawn(name, text, texts):
            yield (
                f"{where} differs: its {name} is '{shortened(text)}', expected"
                f" '{shortened(texts[0])}'"
            )
            return


def names_of(pieces: Pieces) -> list[str]:
    return [name for name, _ in pieces]
