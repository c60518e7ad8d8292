"""Check a report.

Recompute every number and verdict that it prints from the raw rows inside it, by a second path.

Six checks, each of which returns sentences that say what does not agree: 1. rows against the plan
and the curves: every planned run has its row, its loss is its curve's last point, its status fits;
2. means, deviations and counts of the verdict table, by plain sums over the rows (both: rows.py);
3. effects, intervals, p values and verdict words, by formulas that share no code with the
statistics (effects.py); 4. what was trained and what differed, from each
run's own configuration (settings.py); 5. every word, number, row and figure, by running the
comparison again on the rows rebuilt from the page (rendered.py), and whatever else stands in its
text (markup.py), numbers compared as numbers (same.py; reports/stats/digits.py knows how far two
machines may differ); 6. with a results directory, every row and curve against the run's files, and
the files against their recorded digests (files.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import UserError
from reports.inputs.published_experiments import published_experiment
from reports.page.embed import embed_experiment, plain, table_rows
from reports.page.version import WRITTEN_BY, version
from reports.verify.beside import check_beside
from reports.verify.confirmed import check_confirmed
from reports.verify.contributions import check_contributions
from reports.verify.effects import check_effects, check_word, is_anytime, raised_by
from reports.verify.evidence import check_evidence
from reports.verify.files import check_memory, check_results
from reports.verify.headline import check_headline
from reports.verify.increments import check_increments
from reports.verify.lengths import check_lengths
from reports.verify.markup import plainly
from reports.verify.optimum import check_optima, check_signs
from reports.verify.page import Embedded, Page, Printed, Row, read_page
from reports.verify.ratios import check_noisy, check_ratios
from reports.verify.rendered import check_rendered
from reports.verify.rows import check_aggregates, check_rows, compared_rows, outcomes_of
from reports.verify.same import same_data
from reports.verify.settings import check_settings
from reports.verify.table import own_metrics
from reports.verify.targets import check_target


class OtherVersionError(ValueError):
    """A page that another version of this program wrote: nobody here knows what it would say."""


def verify(report_path: Path, results: Path | None = None) -> list[str]:
    """Every disagreement found, in words; an empty list means that the page says what its data say.

    Raises OtherVersionError where what disagrees may be another version's way to say it, ValueError
    where the file is no report.
    """
    page = read_page(report_path)
    try:
        disagreements = check_data(page, results)
        rendered = list(check_rendered(page))
    except UserError:
        raise
    except Exception as error:  # whatever a stranger's data may lead to
        raise ValueError(
            f"{report_path}: its data are not those of a page, {type(error).__name__}:"
            f" {str(error).partition(chr(10))[0][:200]}; write it again from its results"
        ) from error
    if not rendered or page.data.get(WRITTEN_BY) == version():
        return disagreements + rendered
    writer = plainly(str(page.data.get(WRITTEN_BY) or "not named"))
    other = (
        f"its words are not those of this version of the program ({version()}, the writer is"
        f" {writer}) and are not vouched for, the first: {rendered[0]}"
    )
    if disagreements:
        return [*disagreements, other]
    raise OtherVersionError(
        f"{report_path}: the values that it carries follow from its rows, but {other}; verify it"
        " with the version that wrote it, or write it again with this one"
    )


def check_data(page: Page, results: Path | None) -> list[str]:
    """What disagrees by the second path and by the files, in words."""
    disagreements: list[str] = []
    for index, data in enumerate(page.data["experiments"]):
        name = data["plan"]["name"]
        rows = table_rows(data["runs"])
        checks = [check_rows(data, rows), check_aggregates(page, index, data, rows)]
        checks.append(check_target(data, rows))
        checks.append(check_settings(page, index, data, rows))
        if data["plan"].get("evidence"):
            checks += [check_published(data), check_evidence(page, index, data, rows)]
        else:
            checks.append(check_statistics(page, index, data, rows))
            checks.append(check_headline(page, index, data, rows))
            checks.append(check_confirmed(page, index, data, results))
        if results is not None and not data["plan"].get("evidence"):
            checks.append(check_results(data, rows, results))
            checks.append(check_memory(data, results))
        for check in checks:
            disagreements += [f"{name}: {sentence}" for sentence in check]
    return disagreements


def check_statistics(page: Page, index: int, data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Effects, intervals, p values and verdict words of the printed table, by the second path.

    index: of the experiment among those of the page.
    """
    plan, memory = data["plan"], data.get("memory") or {}
    arms = [arm["name"] for arm in plan["arms"]]
    printed: dict[str, Mapping[str, Printed]] = {}
    for place, arm in enumerate(arms):
        printed[arm] = page.verdicts.get((index, place), {})
    judged = [("val_loss", "loss"), ("step_ms", "timing")]
    judged += [(metric, "loss") for metric in own_metrics(plan)]
    for metric, role in judged:
        compared = compared_rows(outcomes_of(data, rows), arms, role)
        anytime = is_anytime(plan, rows, memory)
        yield from check_effects(metric, compared, printed, plan, memory=memory, anytime=anytime)
        if not memory.get("lost"):  # else rendered.py knows that there must be none
            raised = raised_by(memory, len(arms) - 1)
            yield from check_increments(
                metric, compared, printed, plan, raised=raised, anytime=anytime
            )
            if metric == "val_loss":
                yield from check_optima(page, index, plan, compared, raised=raised, anytime=anytime)
                yield from check_signs(page, index, plan, compared)
                if not plan.get("axes"):
                    for check in (check_contributions, check_beside):
                        yield from check(
                            page, index, plan, compared, raised=raised, anytime=anytime
                        )
    yield from check_ratios(page, index, plan)
    outcomes = outcomes_of(data, rows)
    timed = compared_rows(outcomes, arms, "timing")
    losses = [row for row in outcomes if row["role"] == "loss"] or outcomes
    yield from check_lengths(losses, timed, printed, plan)
    yield from check_noisy(page, index, plan, timed)
    for arm in arms:
        if arm != plan["baseline"]:
            yield from check_word(printed[arm], plan, arm)


def check_published(data: Embedded) -> Iterator[str]:
    """A page of published evidence against the published tables, read again."""
    name = data["plan"]["name"].removeprefix("published/")
    again = plain(embed_experiment(published_experiment(name)))
    for key, value in again.items():
        if not same_data(data[key], [value]):
            yield f"its {key} is not that of results/published"
