"""What a headline holds for, and what does not follow from it."""

from collections.abc import Sequence

from harness.run.halving import GRID
from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis import recipe_facts
from reports.analysis.attribution import Attribution
from reports.analysis.plugin_rates import plugin_rates
from reports.analysis.recipe import Recipe
from reports.analysis.recipe_facts import RATE
from reports.analysis.step_tokens import is_alike
from reports.analysis.types import LOSSES, Comparisons
from reports.figures.forest import effect_text
from reports.format import interval, show
from reports.page.naming import few_named

CORPUS_WORDS = {"stdlib": "Python source text (stdlib)"}


def scope(recipe: Recipe, outcome: Comparisons) -> str:
    """What a part is, and what does not follow from the headline."""
    plan = recipe.plan
    if plan.evidence and plan.evidence != "above":
        return ""
    if plan.evidence:
        return (
            "A row's difference is what its part adds on top of the rows above it; in another "
            "order it can be another number."
        )
    sentences = []
    if grid_for(plan):
        sentences.append(
            f"This sweep chooses the learning rates of {grid_for(plan)} and judges no arm: at rates"
            " that all arms share, one that wants others looks worse than at its own."
        )
    if plan.rates:
        sentences.append(
            f"This section judges the arms, each at the rates that {plan.grid} chose for it on"
            " other seeds."
        )
    levels = {
        c.level for c in map(outcome.judged, outcome.arms) if c is not None and c.low is not None
    }
    if levels:
        alike = "hold for all arms at once"
        if plan.design == "shapley":
            alike = (
                "hold for all arms at once, those of shares for all shares, those of interactions"
                " for all of these"
            )
        sentences.append(f"In brackets are {100 * min(levels):.0f} % intervals, which {alike}.")
        sentences += margin_words(plan, outcome)
    if plan.imported or plan.foreign:
        sentences.append("Size and rates are the scripts' own and not known here.")
    if outcome.increments and plan.design == "chain":
        sentences.append(
            "An arm's part is what it adds to its parent; on another one it can be another number."
        )
    elif outcome.increments:
        sentences.append(
            "An arm's part is what it adds to all changes before it; in another order it can be"
            " another number. A ladder does not tell whether parts add up; a Shapley design does."
        )
    if plan.branch_at:
        sentences.append(
            "At each seed all arms went on from one trunk, the baseline's training before update "
            f"{plan.branch_at}: the same weights, optimizer state and order of the data. An effect "
            f"is that of the change from update {plan.branch_at} on, given such a trunk. A run's "
            "training time is its trunk's and its own."
        )
    sentences.append(
        "It does not follow that an effect, or its sign, is the same at another size, budget, "
        "learning rate or text."
    )
    return " ".join(sentences)


def margin_words(plan: Plan, outcome: Comparisons) -> list[str]:
    """From where on a difference matters, where one has been declared of a loss."""
    if plan.margin is None or outcome.primary not in LOSSES:
        return []
    beyond = f"the margin of ±{plan.margin:g} {plan.corpus.unit}"
    return [f"Better and worse are told from zero; a difference matters beyond {beyond}."]


def conditions(recipe: Recipe, outcome: Comparisons) -> str:
    """Size, budget, rates and text of the runs, as far as they are known."""
    n_layers, width = recipe_facts.layers(recipe), recipe_facts.width(recipe)
    parts = []
    if n_layers is not None and width is not None:
        parts.append(f"{plural(n_layers, 'layer')} of width {width}")
    elif n_layers is not None:
        parts.append(plural(n_layers, "layer"))
    if outcome.budget is not None:
        parts.append(plural(outcome.budget, "step") + tokens_of(outcome))
    else:
        parts += equal_tokens(recipe)
    if parts:
        parts += seed_words(recipe.plan, outcome)
    rates = rate_words(recipe)
    if rates:
        parts.append(rates)
    corpus = recipe.plan.corpus
    if parts and recipe_facts.corpus(recipe) is not None and corpus.fingerprint != "not recorded":
        parts.append(f"on {CORPUS_WORDS.get(corpus.name, corpus.name)}")
    return ", ".join(parts)


def tokens_of(outcome: Comparisons) -> str:
    """Of how many tokens the compared steps are, where that is not one number."""
    if not outcome.step_tokens or outcome.budget is None:
        return ""
    ends = [end(outcome.step_tokens.values()) * outcome.budget for end in (min, max)]
    return f" of {' to '.join(show(end, 'tokens') for end in ends)} tokens"


def equal_tokens(recipe: Recipe) -> list[str]:
    """How many tokens every arm read in steps of its own, to the rounding of a step."""
    read = [result.tokens for result in recipe.results if result.tokens]
    if not read or len(read) < len(recipe.results) or not is_alike(max(read) / min(read)):
        return []
    return [f"{show(max(read), 'tokens')} tokens in each arm's own steps"]


def seed_words(plan: Plan, outcome: Comparisons) -> list[str]:
    """How many seeds were compared, or runs of an arm where seeds did not pair them."""
    judged = [c for c in map(outcome.judged, outcome.arms) if c is not None]
    if not judged:
        return []
    counts = sorted({c.n_blocks or min(c.n_arm, c.n_baseline) for c in judged})
    is_paired = not plan.imported and all(c.n_blocks for c in judged)
    said = plural(counts[-1], "seed" if is_paired else "run")
    if len(counts) > 1:
        said = f"{counts[0]} to {said}"
    return [said if is_paired else f"{said} an arm"]


def grid_for(plan: Plan) -> str:
    """The experiment whose rates a sweep chooses; '' where it chooses for none."""
    if plan.name.endswith(GRID) and moves_rates(plan):
        return plan.name.removesuffix(GRID)
    return ""


def rate_words(recipe: Recipe) -> str:
    """Whose learning rates the arms trained at; '' where nobody knows."""
    plan = recipe.plan
    rates = recipe_facts.rates(recipe)
    if rates is None:
        return ""
    if plan.estimand == "retuned" and not plan.axes:
        return "each arm at its own best learning rates"
    if moves_rates(plan):
        return "learning rates along the axis"
    text = f"{plan.base}'s learning rates for scale {plan.scale}"
    if plan.departures is None:
        text = f"the baseline's learning rates ({rates})"
    elif any(field.endswith(RATE) for field in plan.departures):
        text = f"learning rates set by the experiment ({rates})"
    others = []
    setters, moved = arms_with_rates(recipe), [*plugin_rates(recipe)]
    if setters:
        others.append(f"{few_named(setters)} with others")
    if moved:
        others.append(f"{few_named(moved)} by rates of a plug-in")
    if others and text.endswith(")"):
        return f"{text[:-1]}; {', '.join(others)})"
    return f"{text} ({', '.join(others)})" if others else text


def moves_rates(plan: Plan) -> bool:
    """Whether an axis changes learning rates."""
    return any(part.strip().endswith(RATE) for axis in plan.axes for part in axis.split(","))


def arms_with_rates(recipe: Recipe) -> list[str]:
    """The arms that trained at other learning rates than the baseline."""
    rates = [
        field for field in recipe.differing if field.startswith("optim.") and field.endswith(RATE)
    ]
    arms = []
    for arm in recipe.by_arm:
        if any(is_moved(recipe, arm, field) for field in rates):
            arms.append(arm)
    return arms


def is_moved(recipe: Recipe, arm: str, field: str) -> bool:
    """Whether a rate is another one in an arm that has it."""
    rates = [rate for rate in recipe.values(arm, field) if rate is not None]
    return bool(rates) and rates != recipe.of_baseline(field)


def shares_answer(plan: Plan, contributions: Sequence[Attribution], outcome: Comparisons) -> str:
    """The headline of a Shapley design: the whole, and every change's share of it.

    '' of other designs, where another metric decides, and before the whole has run.
    """
    if plan.design != "shapley" or outcome.primary != "val_loss":
        return ""
    for table in contributions:
        if table.metric != "val_loss" or table.total is None:
            continue
        together = [arm for arm in plan.arms if set(arm.changes) == set(table.shares)]
        whole = outcome.of(together[0].name, "val_loss")
        if whole is None:
            continue
        shares = {}
        for change, columns in table.shares.items():
            if "shapley" in columns:
                shares[change] = columns["shapley"]
        largest = sorted(shares, key=lambda change: -abs(shares[change].value))
        parts = []
        for change in largest:  # few: a Shapley design has at most five changes
            share = shares[change]
            bounds = interval(share.low, share.high, "loss_delta")
            parts.append(f"{change} {show(share.value, 'loss_delta')} {bounds}".strip())
        return (
            f"All parts together: {effect_text(whole)} {plan.corpus.unit} against"
            f" {whole.baseline}, {whole.verdict}. Of that the Shapley shares (what a change adds,"
            " averaged over every order of adding them; an interaction is split among its"
            f" changes) are: {'; '.join(parts)}."
        )
    return ""
