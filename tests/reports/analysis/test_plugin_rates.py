"""Arms that a plug-in moves by rates of its own: what a page says of them, and what to run next."""

import re
import zipfile
from dataclasses import replace

import pytest

from harness.run.code import code_digest
from reports.analysis.compare import compare_all
from reports.analysis.plugin_rates import own_optimizers
from reports.inputs.load import load
from reports.page.by_design import ByDesign
from reports.page.embed import table_rows
from reports.page.next_run import NO_STEP, next_of_verdicts, unasked
from reports.page.write import write_report
from reports.verify.page import read_page
from reports.verify.settings import check_settings
from reports.verify.verify import verify
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment
from tests.sealing import edit_runs

HOOK = "def optimizers(groups, toggles):\n    return groups\n"
LOSS = "def loss(logits, targets, toggles):\n    return logits.mean()\n"


def written(folder, source=HOOK, field="plugin.mine.gain", value=0.5):
    """An experiment with one arm that has a field of a plug-in, and whose other arm has none."""
    arm = Arm(name="moved", loss_effect=0.2, changes=("moved",), fields=((field, value),))
    plain = Arm(name="plain", loss_effect=0.1, fields=(("model.untied_head", True),))
    write_experiment(folder, arms=(Arm(name="base"), arm, plain), n_seeds=4, design="add-one")

    def plug(document):
        del document["config"]["plugin"]["corpus_of"]
        document["source"]["files"] = {"plugin/mine.py": code_digest(source)}
        document["source"]["digest"] = "c1" * 8

    edit_runs(folder, plug)
    (folder / "code").mkdir()
    with zipfile.ZipFile(folder / "code" / f"{'c1' * 8}.zip", "w") as archive:
        archive.writestr("plugin/mine.py", source)
    return load("split", folder)


def next_of(made):
    """What is said to run next where no verdict asks for more."""
    found = compare_all(made)
    settled = {key: replace(c, next_action="") for key, c in found.comparisons.items()}
    by_design = ByDesign.of(made, found)
    said = next_of_verdicts(made, replace(found, comparisons=settled), by_design)
    return said.partition("run next: ")[2]


def test_a_page_says_who_moves_by_a_plug_ins_rates_and_what_is_off(tmp_path):
    made = written(tmp_path)
    path = write_report([made], tmp_path / "page.html")
    text = path.read_text()
    shown = re.sub("</?(?:dfn|span)[^>]*>", "", text)
    assert "learning rates (at-rate) but moved, which moves by rates of a plug-in" in shown
    assert "; moved by rates of a plug-in)" in shown
    assert re.search(r'data-key="differs plugin\.mine\.gain 0">off<', text)
    assert re.search(r'data-key="differs plugin\.mine\.gain 2">off<', text)
    assert "<code>plugin</code>" not in text
    assert next_of(made) == "an axis over plugin.mine.gain, for moved moves by rates of a plug-in."
    page = read_page(path)
    data = page.data["experiments"][0]
    assert [*check_settings(page, 0, data, table_rows(data["runs"]))] == []
    assert verify(path) == []


@pytest.mark.parametrize(
    ("source", "field", "value", "step"),
    [
        (LOSS, "plugin.mine.gain", 0.5, "nothing that these runs ask for."),
        (LOSS, "plugin.mine.lr", 0.5, "an axis over plugin.mine.lr, for moved moves by rates"),
        (HOOK, "plugin.mine.kind", "fast", "nothing that these runs ask for."),
    ],
)
def test_an_axis_is_advised_over_what_decides_the_rates(tmp_path, source, field, value, step):
    assert next_of(written(tmp_path, source, field, value)).startswith(step)


def test_an_axis_that_there_is_is_not_advised_again(tmp_path):
    made = written(tmp_path)
    crossed = replace(made, plan=replace(made.plan, axes={"plugin.mine.gain": [0.5]}))
    assert unasked(made, compare_all(made)).startswith("an axis over plugin.mine.gain")
    assert unasked(crossed, compare_all(made)) == NO_STEP


def test_a_source_that_is_none_tells_nothing():
    kept = {"plugin/mine.py d1": HOOK, "plugin/other.py d2": LOSS, "plugin/bad.py d3": "def ("}
    assert own_optimizers(kept) == {"mine"}
