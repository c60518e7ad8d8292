"""What the headline holds for: size, steps, whose rates; the held-out text; shares; and on the terminal."""

import json
import re
from dataclasses import replace

import pytest

from harness.cli.complete import MOST_LINES, say_answer
from harness.cli.plan_facts import changes_words
from harness.experiment.experiment import load_experiment
from harness.store.store import Store
from reports.analysis.attribution import attributions
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.embed import table_rows
from reports.page.scope import shares_answer
from reports.page.write import write_report
from reports.verify.beside import check_beside
from reports.verify.headline import check_headline
from reports.verify.page import read_page
from reports.verify.verify import verify
from tests.report_arms import FACTORIAL, LADDER, Arm, many_arms
from tests.report_fixtures import write_experiment


def edit_plan(root, **changes):
    path = root / "experiments/split/experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def page_of(root):
    page = write_report([load("split", root)], root / "page.html")
    return page, page.read_text()


def words_of(text):
    """A page's text without the marks of terms and lines."""
    return re.sub("</?(?:dfn|span)[^>]*>", "", text)


def second_path(page):
    """What the second path alone says of a headline, without the rerun."""
    read = read_page(page)
    data = read.data["experiments"][0]
    return [*check_headline(read, 0, data, table_rows(data["runs"]))]


@pytest.mark.slow
def test_size_steps_and_rates_stand_in_the_answer_and_below_it_what_does_not_follow(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    edit_plan(tmp_path, departures={"model.n_layer": 8})
    page, text = page_of(tmp_path)
    setting = "t 2 layers, 300 steps, 2 seeds, r07&#39;s learning rates for scale tiny, on Python source text (stdlib): "
    assert setting in words_of(text)[words_of(text).index('data-key="answer"') :].split("</p>")[0]
    assert "in another order it can be another number" in text
    assert "It does not follow that an effect, or its sign, is the same at another size" in text
    assert second_path(page) == []
    page.write_text(text.replace("2 layers, 300 steps, 2 ", "12 layers, 6200 steps, 2 "))
    assert any("the sentence 0 answer differs" in sentence for sentence in verify(page))
    assert any("2 layers" in sentence for sentence in second_path(page))
    assert any("300 steps" in sentence for sentence in second_path(page))


@pytest.mark.slow
def test_one_layer_is_no_layers(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    made = load("split", tmp_path)
    configs = {}
    for run, config in made.configs.items():
        model = {**config["config"]["model"], "n_layer": 1}
        configs[run] = {**config, "config": {**config["config"], "model": model}}
    page = write_report([replace(made, configs=configs)], tmp_path / "page.html")
    text = page.read_text()
    assert "t 1 layer, 300 steps, 2 seeds" in words_of(text) and "1 layers" not in text
    assert verify(page) == second_path(page) == []
    page.write_text(text.replace("t 1 layer, 300", "t 2 layers, 300"))
    assert any("the headline does not say 1 layer" in sentence for sentence in second_path(page))


@pytest.mark.parametrize("design", ["ladder", "add-one"])
def test_a_forged_effect_in_the_headline_is_found_by_the_second_path(tmp_path, design):
    write_experiment(tmp_path, n_seeds=5, design=design)
    page, text = page_of(tmp_path)
    assert second_path(page) == []
    answer = text[text.index('data-key="answer"') :].split("</p>")[0]
    effect = re.search(r"\((−0\.0\d+) \[", answer)[1]
    page.write_text(text.replace(answer, answer.replace(effect, "−0.0999", 1)))
    assert any("−0.0999" in sentence for sentence in second_path(page))
    page.write_text(text.replace(answer, answer.replace("better", "worse")))
    assert any("worse" in sentence for sentence in second_path(page))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            {},
            "the baseline&#39;s learning rates (muon_lr 0.02)",
        ),  # an older plan: whose they are is not known
        (
            {"departures": {"optim.muon_lr": 0.05}},
            "learning rates set by the experiment (muon_lr 0.02)",
        ),
        ({"departures": {}, "estimand": "retuned"}, "each arm at its own best learning rates"),
    ],
)
def test_rates_are_the_records_only_where_they_are(tmp_path, plan, said):
    write_experiment(tmp_path, n_seeds=2)
    edit_plan(tmp_path, **plan)
    assert said in words_of(page_of(tmp_path)[1])


def test_an_arm_with_rates_of_its_own_is_named_and_a_log_has_none(tmp_path):
    faster = Arm(name="fast", changes=("fast",), fields=(("optim.muon_lr", 0.04),))
    write_experiment(tmp_path, arms=(LADDER[0], LADDER[1], faster), n_seeds=2)
    text = words_of(page_of(tmp_path)[1])
    assert "every arm at the baseline&#39;s learning rates (at-rate) but fast, which sets" in text
    edit_plan(tmp_path, imported=True)
    text = words_of(page_of(tmp_path)[1])
    assert "every arm at the baseline" not in text
    assert "Size and rates are the scripts&#39; own and not known here." in text
    assert "# brings in the logs that are not there yet" in text
    assert "logs as they were brought in" in text and "at scale" not in text.split("design")[1]


def test_the_held_out_loss_is_in_the_headline(tmp_path):
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=5)
    for path in (tmp_path / "runs").glob("*/result.json"):
        result = json.loads(path.read_text())
        worse = "untied_head: true" in (path.parent / "config.yaml").read_text()
        result["heldout_loss"] = result["val_loss"] + 0.5 * worse
        path.write_text(json.dumps(result))
    assert "worse than r07 in held-out loss (nats per byte)" in page_of(tmp_path)[1]


def test_a_shapley_design_begins_with_whether_anything_helps_then_the_shares(tmp_path):
    write_experiment(tmp_path, arms=FACTORIAL, design="shapley", n_seeds=5)
    page, text = page_of(tmp_path)
    answer = text[text.index('data-key="answer"') :].split("</p>")[0]
    words = words_of(answer).replace("\u00a0", " ")
    assert re.search(
        r"Exploratory: at 2 layers[^:]*: Of 7 arms \d are shown to help, most un", words
    )
    shares, adding = words.index("Of that the Shapley shares (what"), words.index("do not add up. ")
    assert adding < shares, "an interaction that is larger than a share of its changes leads"
    assert "split among its changes) are: untied_head −0.01" in words
    assert "are better than base" not in words, "the arms are in the table"
    assert re.search(r"softcap is shown to help only without untied_head: [−+]0.00", words)
    beyond = "The two together add +0.01"
    assert beyond in words
    assert verify(page) == []
    for said in ("split among its changes) are: untied_head −0.01", beyond):
        page.write_text(text.replace(said, said.replace("0.01", "0.09")))
        assert any("answer" in sentence for sentence in verify(page)), said


def test_what_a_change_does_beside_another_is_found_by_the_second_path(tmp_path):
    two = [arm for arm in FACTORIAL if "value_residual" not in arm.changes]
    write_experiment(tmp_path, arms=two, design="factorial", n_seeds=5, sd=1e-3)
    page, text = page_of(tmp_path)
    table = text[text.index('data-table="beside"') :].split("</table>")[0]
    ends = re.search(r'data-v="(-?[\d.e-]+),(-?[\d.e-]+),(-?[\d.e-]+)"', table).groups()
    said = re.search(r": ([+−]0\.\d+) \[[^]]*\] with it", text)[1]
    lies = [(f'data-v="{",".join(ends)}"', end, "0.4321") for end in ends]
    lies += [(said, said, "+0.4321"), ("is shown to help", "to help", "to hurt")]
    assert [*beside_found(page)] == []
    for whole, old, new in lies:
        assert whole in text
        page.write_text(text.replace(whole, whole.replace(old, new, 1), 1))
        assert [*beside_found(page)], whole


def beside_found(page):
    """What the second path alone says of pairs of changes."""
    read = read_page(page)
    data = read.data["experiments"][0]
    rows = table_rows(data["runs"])
    return check_beside(read, 0, data["plan"], rows, raised=1.0, anytime=False)


def test_the_shares_are_of_the_arm_of_their_changes_and_no_other(tmp_path):
    """A bundle's last arm has another length on top, which has no share."""
    write_experiment(tmp_path, arms=FACTORIAL, design="shapley", n_seeds=5)
    made = load("split", tmp_path)
    tables, outcome = attributions(made), compare_all(made)
    said = shares_answer(made.plan, tables, outcome)
    [whole] = [arm for arm in made.plan.arms if set(arm.changes) == set(tables[0].shares)]
    [alone] = [arm for arm in made.plan.arms if list(arm.changes) == ["softcap"]]
    longer = replace(alone, changes=(*whole.changes, "steps"))
    arms = tuple(longer if arm is alone else arm for arm in made.plan.arms)
    assert said
    assert shares_answer(replace(made.plan, arms=arms), tables, outcome) == said
    for decides in ("train_time_s", "zloss"):  # where another metric decides, its words lead
        assert shares_answer(made.plan, tables, replace(outcome, primary=decides)) == ""
    assert shares_answer(replace(made.plan, design="factorial"), tables, outcome) == ""


def test_a_finished_run_ends_with_the_answer_in_ten_lines(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("harness.cli.lookup.load_for_report", load)  # as they are: none is stale
    write_experiment(tmp_path, arms=many_arms(14), design="add-one", n_seeds=3)
    say_answer("split", Store.create(tmp_path))
    answer, *table, step = capsys.readouterr().out.splitlines()
    assert answer.startswith("Exploratory: ") and " of 13 arms are better than" in answer
    assert ". What to run next: ablate confirm experiments/split.yaml" in step and "`" not in step
    assert len(table) == MOST_LINES and table[-1] == "and 5 more: ablate compare split"
    assert table[0].split() == ["arm", "delta", "low", "high", "p", "verdict"]


def test_a_plan_names_changes_and_not_settings():
    whole = load_experiment("r18_leave_one_out", device="cpu")
    words = {arm.name: changes_words([*arm.changes], whole) for arm in whole.arms}
    assert max(map(len, words.values())) < 100
    assert "all" in words.values() and "all but softcap" in words.values()
    small = load_experiment("quickstart", device="cpu")
    assert changes_words(["untied_head"], small) == "untied_head"


def test_a_page_of_branches_says_what_it_estimates(tmp_path):
    write_experiment(tmp_path, n_seeds=2)
    said = "from update 200 on"
    assert said not in page_of(tmp_path)[1]
    edit_plan(tmp_path, branch_at=200)
    page, text = page_of(tmp_path)
    text = words_of(text)
    assert f"effects {said}, given one trunk a seed" in text
    assert f"An effect is that of the change {said}, given such a trunk." in text
    assert "training time is its trunk&#39;s and its own" in text
    assert verify(page) == []
