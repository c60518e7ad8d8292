"""The facts of a recipe, each declared once, in the order of the page and of JSON.

A value is None where no run tells it, and a list where the runs differ; of parameters, steps and
tokens a mapping where arms do.
"""

from reports.analysis import recipe_facts
from reports.analysis.recipe import Recipe
from reports.inputs.columns import Column

RECIPE_COLUMNS: tuple[Column[Recipe], ...] = (
    Column(
        key="base",
        head="recipe",
        value=recipe_facts.base,
        json_name="base",
        meaning="The record that the baseline is, and its scale; unknown of foreign scripts.",
    ),
    Column(
        key="departures",
        head="departures",
        value=recipe_facts.departures,
        json_name="departures",
        is_nested=True,
        meaning="What the baseline has otherwise than that record at that scale.",
    ),
    Column(
        key="layers",
        head="layers",
        value=recipe_facts.layers,
        json_name="layers",
        meaning="Layers of the baseline's model.",
    ),
    Column(
        key="width",
        head="width",
        value=recipe_facts.width,
        json_name="width",
        meaning="Width of the residual stream.",
    ),
    Column(
        key="heads",
        head="heads",
        value=recipe_facts.n_heads,
        json_name="heads",
        meaning="Heads of a layer.",
    ),
    Column(
        key="parameters",
        head="parameters",
        value=recipe_facts.parameters,
        json_name="parameters",
        meaning="Parameters of the arms' models, shared ones once.",
    ),
    Column(
        key="seq_len",
        head="sequence",
        value=recipe_facts.seq_len,
        json_name="seq_len",
        meaning="Tokens of one sequence.",
    ),
    Column(
        key="batch_tokens",
        head="batch",
        value=recipe_facts.batch_tokens,
        json_name="batch_tokens",
        meaning="Tokens of one step.",
    ),
    Column(
        key="steps",
        head="steps",
        value=recipe_facts.steps,
        json_name="steps",
        meaning="Steps of a run at the budget that is compared.",
    ),
    Column(
        key="tokens",
        head="tokens",
        value=recipe_facts.tokens,
        json_name="tokens",
        meaning="Tokens that a run trained on.",
    ),
    Column(
        key="rates",
        head="learning rates",
        value=recipe_facts.rates_and_source,
        json_name="rates",
        meaning="Learning rates of the baseline.",
    ),
    Column(
        key="precision",
        head="precision",
        value=recipe_facts.precision,
        json_name="precision",
        meaning="Number formats of the training.",
    ),
    Column(
        key="kernels",
        head="kernels",
        value=recipe_facts.kernels,
        json_name="kernels",
        meaning="Kernels that ran, and whether the model was compiled.",
    ),
    Column(
        key="substituted",
        head="substituted",
        value=recipe_facts.substituted,
        json_name="substituted",
        is_nested=True,
        meaning="What ran in place of what this device cannot do; nothing where it can do all.",
    ),
    Column(
        key="corpus",
        head="corpus",
        value=recipe_facts.corpus,
        json_name="corpus",
        meaning="The text, and its fingerprint.",
    ),
    Column(
        key="corpus_tokens",
        head="corpus tokens",
        value=recipe_facts.corpus_tokens,
        json_name="corpus_tokens",
        meaning="Tokens of the corpus that there are to train on.",
    ),
    Column(
        key="heldout",
        head="held-out text",
        value=recipe_facts.heldout,
        json_name="heldout",
        meaning="The held-out text, and its fingerprint; none where there is none.",
    ),
    Column(
        key="device",
        head="device",
        value=recipe_facts.devices,
        json_name="device",
        meaning="Accelerators, or processors where there is none.",
    ),
    Column(
        key="device_count",
        head="devices a run",
        value=recipe_facts.device_count,
        json_name="device_count",
        meaning="Devices of one run.",
    ),
    Column(
        key="dates",
        head="date",
        value=recipe_facts.dates,
        json_name="dates",
        meaning="When the compared runs were started, UTC.",
    ),
    Column(
        key="code",
        head="code",
        value=recipe_facts.code_digests,
        json_name="code",
        meaning="Digest of the source that ran.",
    ),
    Column(
        key="commit",
        head="commit",
        value=recipe_facts.commits,
        json_name="commit",
        meaning="The commit of that source, and whether the folder held what was in none.",
    ),
    Column(
        key="plugins",
        head="plug-ins",
        value=recipe_facts.plugins,
        json_name="plugins",
        is_nested=True,
        meaning="Plug-ins that ran, with the digests of their code.",
    ),
)
