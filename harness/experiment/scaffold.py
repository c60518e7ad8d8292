"""A change of your own as files that work at once: what `ablate new-change` writes.

A plug-in, an experiment and a law test.
"""

import importlib.util
import keyword
import re
from pathlib import Path

from harness.errors import UserError

# What is written keeps its long lines: a backslash joins the halves.
PLUGIN = '''\
"""NAME: a learned gain for every channel of every MLP's output. It works as it is; make it your \
own idea."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.model.config import toggle
from harness.model.gpt import GPT
from harness.model.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class Toggles:
    """Set in an experiment as plugin.NAME.FIELD. The default of every field leaves the network \
as it is."""

    gain: float | None = toggle(
        None,
        record="own",
        doc="learned gain per channel of the MLP's output, from this value on",
        gt=0,
    )


def build(model: GPT, toggles: Toggles) -> None:
    """Change the new network, before its parameters are drawn. A parameter's role decides which \
optimizer moves it."""
    if toggles.gain is None:
        return
    for block in model.blocks:
        channels = block.mlp.down.weight.shape[0]
        block.mlp.gain = parameter(
            (channels,), role="scalar", init=toggles.gain, dtype=torch.float32
        )
        block.mlp.register_forward_hook(apply_gain)


def apply_gain(mlp: nn.Module, inputs: tuple[Tensor], y_BTC: Tensor) -> Tensor:
    return (mlp.gain * y_BTC).to(y_BTC.dtype)
'''

EXPERIMENT = """\
# A small real experiment: a few minutes on two cores. docs/experiments.md explains every key.
name: NAME
question: Does NAME help the recipe of record 8?
base: r08
scale: tiny
plugins: [../NAME.py]
set: {model.n_layer: 2, data.seq_len: 128, data.micro_tokens: 4096, data.batch_tokens: 4096, \
data.ranks: 1, data.order: shuffled,
      data.val_tokens: 32768, data.val_every: 50, schedule.steps: 200, data.first_batch_twice: \
false, optim.muon_comm: redundant,
      system.checkpoint: none, timing.protocol: warmup-restore}
changes:
  gain: {plugin.NAME.gain: 1.0}
seeds: 5
"""

LAWS = '''\
"""The laws of a change, for NAME. Run: pytest test_NAME.py"""

from pathlib import Path

import pytest
import torch

from harness.config import plugins
from harness.config.run import RunConfig, with_fields
from harness.training.core import Batch, Core
from harness.experiment.experiment import load_experiment
from harness.model.gpt import Tokens

EXPERIMENT = Path(__file__).parent / "experiments" / "NAME.yaml"


@pytest.fixture(scope="module", autouse=True)
def plugin():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, "")
        yield


@pytest.fixture(scope="module")
def configs(plugin) -> list[RunConfig]:
    """The arms of the experiment, the baseline first."""
    return [arm.config for arm in load_experiment(str(EXPERIMENT), device="cpu").arms]


@pytest.fixture(scope="module")
def trained(configs):
    """Every arm after five updates, with their losses."""
    return [train(config) for config in configs]


def new_core(config: RunConfig) -> Core:
    return Core(config, Tokens(vocab_size=257, separator=256, seq_len=config.data.seq_len), seed=0)


def batch(config: RunConfig, seed: int) -> Batch:
    ids = torch.randint(0, 256, (1, 1, config.data.seq_len + 1), \
generator=torch.Generator().manual_seed(seed))
    return ids[..., :-1], ids[..., 1:]


def train(config: RunConfig) -> tuple[Core, torch.Tensor]:
    core = new_core(config)
    return core, torch.cat([core.update(step, [batch(config, seed=step)]) for step in range(5)])


def test_off_is_the_baseline_bit_for_bit(configs, trained):
    core, losses = train(with_fields(configs[0], {name: field.default for name, field in \
plugins.declared().items()}))
    assert torch.equal(losses, trained[0][1])
    assert [n for n, _ in core.model.named_parameters()] == [n for n, _ in \
trained[0][0].model.named_parameters()]


def test_on_changes_the_loss_within_five_steps(trained):
    for _, losses in trained[1:]:
        assert not torch.equal(losses, trained[0][1])


def test_on_moves_no_weight_that_was_there(configs):
    baseline = dict(new_core(configs[0]).model.named_parameters())
    for config in configs[1:]:
        for name, p in new_core(config).model.named_parameters():
            assert name not in baseline or torch.equal(p, baseline[name]), name


def test_no_position_sees_the_future(configs, trained):
    for config, (core, _) in zip(configs, trained, strict=True):
        ids, half = batch(config, seed=0)[0][0], config.data.seq_len // 2
        other = torch.cat([ids[:, :half], (ids[:, half:] + 1) % 256], dim=1)
        before, after = (core.model.logits(x, core.set_window(5)) for x in (ids, other))
        torch.testing.assert_close(before[:, :half], after[:, :half], rtol=0, atol=1e-6)
        assert not torch.equal(before[:, half:], after[:, half:])


def test_every_parameter_learns(configs, trained):
    for config, (core, _) in zip(configs, trained, strict=True):
        core.gradients([batch(config, seed=5)], core.set_step(5))
        assert not [n for n, p in core.model.named_parameters() if p.grad is None or not \
p.grad.any()]
'''

TEMPLATES = {"{name}.py": PLUGIN, "experiments/{name}.yaml": EXPERIMENT, "test_{name}.py": LAWS}


def new_change(name: str, folder: Path) -> list[Path]:
    """Write the three files of a change into a folder.

    Raises UserError for a bad name or a file that is there.
    """
    _check_file_name(name)
    contents = {}
    for pattern, text in TEMPLATES.items():
        contents[folder / pattern.format(name=name)] = text.replace("NAME", name)
    for path in contents:
        if path.exists():
            raise UserError(f"{path}: is there already: choose another name, or move it away")
    if importlib.util.find_spec(name) is not None:
        raise UserError(
            f"new-change: {name}.py would hide the module '{name}': choose another name, "
            f"such as my_{name}"
        )
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(contents)


def _check_file_name(name: str) -> None:
    """Refuse what cannot name a Python module."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", name) and not keyword.iskeyword(name):
        return
    hint = ""
    mended = name.replace("-", "_")
    if mended != name and mended.isidentifier():
        hint = f"; did you mean '{mended}'?"
    raise UserError(
        f"new-change: '{name}' cannot name a Python file: use letters, digits and '_', "
        f"a letter first{hint}"
    )
