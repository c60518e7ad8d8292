"""The laws of an idea of every kind, on every record whose mathematics is new at the laws' size."""

import re

import pytest
import yaml

from harness.__main__ import main
from harness.config import plugins
from harness.config.presets import names, preset_values
from harness.errors import UserError
from harness.experiment import laws
from harness.experiment.scaffold import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.long]  # some three hundred small trainings


def distinct() -> list[str]:
    """Records of which none before is the same at the laws' size: the others change speed, or sizes, alone."""
    first: dict[str, str] = {}
    for record in names("records"):
        values = preset_values(record)[0] | laws.SMALL
        shown = {k: v for k, v in values.items() if not k.startswith("system.")}
        first.setdefault(repr(sorted(shown.items())), record)
    return list(first.values())


@pytest.mark.parametrize("record", distinct())
@pytest.mark.parametrize("kind", KINDS)
def test_the_laws_hold(kind, record, tmp_path, monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    # fewer would not do: later records move half of the weights every other step
    monkeypatch.setattr(laws, "UPDATES", 3)
    with pytest.raises(SystemExit, match="0"):
        main(["new-change", "idea", "--kind", kind])
    file = tmp_path / "experiments" / "idea.yaml"
    text = file.read_text(encoding="utf-8").replace("base: r08", f"base: {record}")
    if record > "r18":  # as the file itself says
        text = re.sub("set: {.*\n *", "set: {", text)
    content = yaml.safe_load(text)
    content["changes"] = dict([content["changes"].popitem()])  # one value tells what both do
    file.write_text(yaml.safe_dump(content))
    values = preset_values(record)[0]
    refused = {"data": values["data.alignment"], "loss": values["loss.next_tokens"]}
    if refused.get(kind):
        with pytest.raises(UserError, match=r"both decide wh[a-z]* (passes begin|is trained on)"):
            laws.Subject(file, tmp_path)
        return
    subject = laws.Subject(file, tmp_path)
    assert subject.arms
    for law in laws.LAWS.values():
        law(subject)
