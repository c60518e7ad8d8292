"""What was trained and what differed: true of the compared runs, and found where a page says otherwise."""

import json
import re
import zipfile
from dataclasses import replace

import pytest

from harness.run.code import code_digest
from reports.analysis.compare import compare_all
from reports.analysis.recipe import Recipe
from reports.analysis.recipe_columns import RECIPE_COLUMNS
from reports.inputs.columns import json_row
from reports.inputs.load import load
from reports.page.settings import config_differences
from reports.page.write import write_report
from reports.verify.page import read_page
from reports.verify.settings import check_settings
from reports.verify.verify import verify
from tests.findings import PAGES
from tests.report_arms import many_arms
from tests.report_fixtures import write_experiment
from tests.sealing import edit_runs, seal_again


def recipe_of(experiment):
    return Recipe.of(experiment, compare_all(experiment).budget)


def second_path(page):
    """What the second path alone says of a page, without the rerun."""
    read = read_page(page)
    data = read.data["experiments"][0]
    rows = [
        dict(zip([c for c in data["runs"]["columns"] if c not in data["runs"]["same"]], row))
        | data["runs"]["same"]
        for row in data["runs"]["rows"]
    ]
    return [*check_settings(read, 0, data, rows)]


def test_arms_are_compared_at_one_budget_whichever_run_comes_first(tmp_path):
    write_experiment(tmp_path, budgets=(100, 150), n_seeds=3)
    experiment = load("split", tmp_path)
    baseline = experiment.runs["arm"] == "r07"
    longest_first = experiment.runs.sort_values("budget", ascending=False)
    mixed = replace(experiment, runs=longest_first.sort_values("arm", kind="stable"))
    shortest = experiment.runs[baseline].sort_values("budget")
    assert shortest["budget"].iloc[0] != mixed.runs["budget"].iloc[0]
    for seen in (experiment, mixed):
        fields = [field for field, _ in config_differences(recipe_of(seen)).rows]
        assert "schedule.steps" not in fields and "model.untied_head" in fields
    assert "at 150 steps" in config_differences(recipe_of(mixed)).lead


def test_a_setting_that_no_run_recorded_is_unknown_and_not_off(tmp_path):
    write_experiment(tmp_path, n_seeds=2)

    def forget(document):
        if "untied_head" not in document["toggles"]:
            del document["config"]["model"]["untied_head"]

    edit_runs(tmp_path, forget)
    rows = dict(config_differences(recipe_of(load("split", tmp_path))).rows)
    assert [s.text for s in rows["model.untied_head"]] == ["unknown", *["on"] * 4]


def test_runs_of_one_arm_that_differ_are_all_named(tmp_path):
    write_experiment(tmp_path, n_seeds=2)

    def deepen(document):
        if document["toggles"] == ["untied_head"] and document["seed"] == 1:
            document["config"]["model"]["n_layer"] = 3

    edit_runs(tmp_path, deepen)
    rows = dict(config_differences(recipe_of(load("split", tmp_path))).rows)
    assert [s.text for s in rows["model.n_layer"]][:3] == ["2", "2 or 3", "2"]


def test_the_recipe_says_what_the_runs_were_and_what_is_unknown(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    facts = json_row(RECIPE_COLUMNS, recipe_of(load("split", tmp_path)))
    assert facts["base"] == "r07 at scale tiny" and facts["departures"] is None
    assert (facts["layers"], facts["steps"], facts["tokens"]) == (2, 300, 300 * 4096)
    assert facts["device"] == "AMD EPYC 9354 32-Core Processor" and facts["device_count"] == 1
    assert facts["parameters"] is None and facts["width"] is None  # that these runs do not tell
    assert facts["dates"] == "2026-01-05" and facts["commit"] == "1d3c0ffee1d3"
    page = write_report([load("split", tmp_path)], tmp_path / "page.html").read_text()
    assert '<dd data-key="recipe.steps">300</dd>' in page
    assert re.search(r'data-key="recipe.unknown">departures, width, heads, parameters', page)


def test_parameters_and_tokens_are_on_the_page(tmp_path):
    write_experiment(tmp_path, n_seeds=2)

    def widen(document):
        document["config"]["data"]["batch_tokens"] = 4096

    edit_runs(tmp_path, widen)
    for path in (tmp_path / "runs").glob("*/result.json"):
        seal_again(path.parent, parameters=123456)
    text = write_report([load("split", tmp_path)], tmp_path / "page.html").read_text()
    assert 'data-key="recipe.parameters">123456<' in text
    assert f'data-key="recipe.tokens">{300 * 4096}<' in text
    assert 'data-key="recipe.heldout">none beside the validation tokens<' in text


def test_arms_of_other_sizes_are_named_with_their_share(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    experiment = load("split", tmp_path)
    of_arm = experiment.runs.set_index("run_id")["arm"]
    counts = {"untied_head": 110_000, "untied_head + embed_norm": 57_000}
    for path in (tmp_path / "runs").glob("*/result.json"):
        seal_again(path.parent, parameters=counts.get(of_arm[path.parent.name], 100_000))
    recipe = recipe_of(load("split", tmp_path))
    assert json_row(RECIPE_COLUMNS, recipe)["parameters"] == {
        arm.name: counts.get(arm.name, 100_000) for arm in recipe.plan.arms
    }
    text = write_report([load("split", tmp_path)], tmp_path / "page.html").read_text()
    told = "100000; untied_head + embed_norm 57000 (−43.0 %) and untied_head 110000 (+10.0 %)"
    assert f'data-key="recipe.parameters">{told}<' in text


def test_a_batch_that_grows_is_said_and_checked(tmp_path):
    write_experiment(tmp_path, n_seeds=2)

    def grow(document):
        document["config"]["data"]["batch_tokens"] = 4096
        document["config"]["schedule"]["batch_growth"] = [1, 2, 3]

    edit_runs(tmp_path, grow)
    page = write_report([load("split", tmp_path)], tmp_path / "page.html")
    said = "4096 tokens, later up to 3 times as many"
    assert f'data-key="recipe.batch_tokens">{said}<' in page.read_text()
    assert second_path(page) == []
    text = page.read_text()
    for lie in (said.replace("up to 3", "up to 2"), "4096 tokens"):
        page.write_text(text.replace(f">{said}<", f">{lie}<"))
        [found] = second_path(page)
        assert f"recipe.batch_tokens is printed as {lie} but" in found


def test_another_size_than_the_records_is_said(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    path = tmp_path / "experiments/split/experiment.json"
    plan = json.loads(path.read_text()) | {"departures": {"model.n_layer": 8}}
    path.write_text(json.dumps(plan))
    facts = json_row(RECIPE_COLUMNS, recipe_of(load("split", tmp_path)))
    assert facts["departures"] == ["model.n_layer 2 (r07: 8)"]


def test_a_plug_ins_source_is_on_the_page(tmp_path):
    write_experiment(tmp_path, n_seeds=2)

    source = "GAIN = '<2>'\n"

    def plug(document):
        document["source"]["files"]["plugin/mine.py"] = code_digest(source)

    edit_runs(tmp_path, plug)
    (tmp_path / "code").mkdir()
    with zipfile.ZipFile(tmp_path / "code" / f"{'c1' * 8}.zip", "w") as archive:
        archive.writestr("plugin/mine.py", source)
    page = write_report([load("split", tmp_path)], tmp_path / "page.html")
    assert f"Source of plugin/mine.py {code_digest(source)}" in page.read_text()
    assert "GAIN = &#39;&lt;2&gt;&#39;" in page.read_text()
    assert verify(page) == []


def test_untracked_files_count_as_dirty(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    for path in (tmp_path / "runs").glob("*/environment.json"):
        environment = json.loads(path.read_text())
        environment["git"] |= {"dirty": True, "untracked": 2, "diff_sha256": None}
        path.write_text(json.dumps(environment))
        seal_again(path.parent)
    facts = json_row(RECIPE_COLUMNS, recipe_of(load("split", tmp_path)))
    assert facts["commit"] == "1d3c0ffee1d3, with 2 untracked files"


TAMPERED = (
    ('data-key="recipe.steps">300<', 'data-key="recipe.steps">6200<', "recipe.steps"),
    ('data-key="recipe.layers">2<', 'data-key="recipe.layers">12<', "recipe.layers"),
    (
            'data-key="recipe.seq_len">512 tokens<',
            'data-key="recipe.seq_len">1024 tokens<',
            "recipe.seq_len",
        ),
    ('data-key="differs model.embed_norm 0">off<', 'data-key="differs model.embed_norm 0">on<', "embed_norm"),
    ('<code>model.zero_head</code>', None, "model.zero_head, which is not printed"),
)  # fmt: skip


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The text of a page on which nothing is forged."""
    folder = tmp_path_factory.mktemp("honest")
    write_experiment(folder, n_seeds=3)
    page = write_report([load("split", folder)], folder / "page.html")
    assert verify(page) == [] and second_path(page) == []
    return page.read_text()


@pytest.mark.parametrize(("true", "forged", "said"), TAMPERED)
def test_a_forged_setting_is_found_by_the_second_path_alone(tmp_path, honest, true, forged, said):
    page, text = tmp_path / "page.html", honest
    assert true in text
    if forged is None:  # a whole row left out
        text = re.sub(r"<tr><th scope=\"row\">" + true + r".*?</tr>", "", text, count=1)
    else:
        text = text.replace(true, forged, 1)
    page.write_text(text)
    assert any(said in sentence for sentence in second_path(page)), second_path(page)
    assert verify(page)


def test_settings_of_another_budget_are_found_by_the_second_path(tmp_path):
    """As pages once told them: arms at one budget beside a baseline at another."""
    write_experiment(tmp_path, budgets=(100, 150), n_seeds=3)
    page = write_report([load("split", tmp_path)], tmp_path / "page.html")
    text = page.read_text()
    row = (
        '<tr><th scope="row"><code>schedule.steps</code></th><td><span data-key="differs schedule.steps 0">150</span></td>'
        + "".join(
            f'<td><span data-key="differs schedule.steps {n}"><strong>100</strong></span></td>'
            for n in range(1, 5)
        )
        + "</tr>"
    )
    first = r'(?<=<tbody>)(?=<tr><th scope="row"><code>[^<]+</code></th><td data-label="[^"]*"><span data-key="differs )'
    text, n_tables = re.subn(first, row, text)
    assert n_tables == 1
    page.write_text(text)
    assert any("schedule.steps is printed as 100" in sentence for sentence in second_path(page))


@pytest.mark.slow
def test_the_table_of_many_arms_is_recomputed_too(tmp_path):
    write_experiment(tmp_path, arms=many_arms(12), design="add-one", n_seeds=2)
    page = write_report([load("split", tmp_path)], tmp_path / "page.html")
    assert second_path(page) == []
    page.write_text(page.read_text().replace('field_03 4">on<', 'field_03 4">off<', 1))
    assert any("model.field_03 is printed as off" in sentence for sentence in second_path(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_published_pages_say_what_their_runs_were(page):
    assert second_path(page) == []
