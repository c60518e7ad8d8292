"""The second path for the headline: its numbers are those of the table and of the settings.

It shares no code with the page. Shares of a Shapley design are left to the rerun in rendered.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from reports.verify.increments import OWN, planned_pairs
from reports.verify.page import Embedded, Page, Printed, Row
from reports.verify.rows import compared_rows, outcomes_of
from reports.verify.settings import recorded_settings

WORDS = {"better": "better", "faster": "better", "worse": "worse", "slower": "worse"}
HELD_OUT = "heldout_loss"  # whose effects the table prints without a verdict
SETTINGS = {"model.n_layer": "{} layers", "model.d_model": "of width {}"}
NUMBERS_IN_WORDS = {"no": 0, "none": 0, "one": 1}
COUNTED = re.compile(
    r"\b(?P<n>\d+|[Nn]one)(?: of \d+ arms)? (?:is|are) (?P<word>better|worse) than"
    r"|\b(?:(?P<helping>No) arm|Of \d+ arms? (?P<many>\d+|one)) (?:is|are) shown to help"
)
BESIDE = re.compile(r"\b(\d+) (?:is|are) (worse|no different|undecided)(?=[,.;]|$)")
PRINTED = re.compile(r"(\d+) layers?\b|of width (\d+)|(\d+) steps?\b")


def check_headline(page: Page, index: int, data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on what the headline says otherwise than the table and the settings.

    index: of the experiment among those of the page.
    """
    plan = data["plan"]
    answer = page.sentences.get((index, "answer"), "")
    if plan.get("evidence") or ": " not in answer:
        return
    arms = [arm["name"] for arm in plan["arms"]]
    compared = compared_rows(outcomes_of(data, rows), arms, "loss")
    yield from check_setting(answer, data, compared)
    prefix = OWN if planned_pairs(plan) else ""
    metric = plan.get("primary") or "val_loss"
    named = [page.verdicts.get((index, place), {}) for place in range(len(arms))]
    if not any(f"{metric}.effect" in printed for printed in named):
        metric = "val_loss"

    judged = [printed for printed in named if "verdict" in printed]
    kinds = [kind_of(printed, f"{prefix}{metric}") for printed in judged]
    for sentence in re.split(r"\.\s", answer):
        if "held-out" not in sentence:
            yield from check_counted_arms(sentence, kinds)
        of = HELD_OUT if "held-out" in sentence else f"{prefix}{metric}"
        for arm, printed in zip(arms, named, strict=True):
            for clause in re.split("[;:]", sentence):
                yield from check_clause(clause, arm, printed, of)


def kind_of(printed: Mapping[str, Printed], key: str) -> str:
    """What a row's verdict is about its arm; of two that end alike in every bit no difference.

    key: of the metric that decides."""
    verdict, effect = printed["verdict"].text, printed.get(f"{key}.effect")
    if verdict == "baseline" or verdict in WORDS:
        return WORDS.get(verdict, verdict)
    is_nothing = effect is not None and effect.values[0] == 0
    if verdict.startswith("no difference") or (is_nothing and f"{key}.interval" not in printed):
        return "no different"
    return "undecided"


def check_counted_arms(sentence: str, verdicts: Sequence[str]) -> Iterator[str]:
    """How many arms a sentence says are better, worse, alike or open; verdicts: of all of them."""
    for n, kind in BESIDE.findall(sentence):
        if int(n) != verdicts.count(kind):
            yield f"the headline says that {n} are {kind}, the table {verdicts.count(kind)}"
    for match in COUNTED.finditer(sentence):
        number, comparative = (
            match["n"] or match["helping"] or match["many"],
            match["word"] or "better",
        )
        said = NUMBERS_IN_WORDS.get(number.lower())
        said = int(number) if said is None else said
        if said != verdicts.count(comparative):
            counted = verdicts.count(comparative)
            yield f"the headline counts {said} arms that are {comparative}, the table {counted}"


def check_setting(answer: str, data: Embedded, compared: Sequence[Row]) -> Iterator[str]:
    """The size and the steps that it begins with."""
    opening = answer.removeprefix("Exploratory: ").split(": ")[0]
    if not opening.lower().startswith("at "):
        return
    settings = recorded_settings(data, compared, data["plan"]["baseline"])
    expected = []
    for field, text in SETTINGS.items():
        values = settings.get(field, [])
        if len(values) == 1:
            expected.append(of_one(text.format(values[0])))
    budgets = {row["budget"] for row in compared}
    if len(budgets) == 1:
        expected.append(of_one(f"{budgets.pop()} steps"))
    for setting in expected:
        if setting not in opening:
            yield f"the headline does not say {setting}, as its runs had, but '{opening}'"
    for match in PRINTED.finditer(opening):
        if match[0] not in expected:
            yield f"the headline says {match[0]}, which no compared run had"


def of_one(text: str) -> str:
    """A number of things, one of which has no plural."""
    return re.sub(r"^1 (\w+)s$", r"1 \1", text)


def check_clause(clause: str, arm: str, printed: Mapping[str, Printed], key: str) -> Iterator[str]:
    """An arm that a clause names with its effect. key: of the metric that the clause is on."""
    effect, verdict = printed.get(f"{key}.effect"), printed.get("verdict")
    if effect is None or verdict is None:
        return
    match = re.search(rf"(?:^|[ ,])(?<!\+ ){re.escape(arm)} \(([^ ,)]+)", clause)
    if match is None:
        return
    if match[1] != effect.text.split()[0]:
        yield f"the headline says {arm} {match[1]} but the table {effect.text}"
    if key == HELD_OUT:
        return
    said = re.search(r" (?:is|are) (better|worse) than", clause)
    if said is not None and said[1] != WORDS.get(verdict.text):
        yield f"the headline calls {arm} {said[1]} but the table {verdict.text}"
