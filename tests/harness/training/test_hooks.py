"""What plug-ins change in training: what they say, and nothing else; validation stays plain cross-entropy."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from harness.config import plugins
from harness.config.plugin_errors import told_in_a_line
from harness.config.run import RunConfig
from harness.config.schedule import schedule_at
from harness.config.validate import check_config
from harness.corpora.corpus import Corpus
from harness.data.shards import write_shard
from harness.errors import UserError
from harness.training.core import Core
from harness.training.loaders import loaders
from tests.laws.test_docs import blocks
from tests.small_presets import PRESETS, SEPARATOR, VOCAB, batch, core, disturb, small

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from dataclasses import dataclass
from harness.model.config import toggle

@dataclass(frozen=True, kw_only=True)
class Toggles:
    by: float = toggle(0.0, record="own", doc="how much")

"""
SMOOTHED = """
def loss(logits, targets, toggles):
    return F.cross_entropy(logits, targets, label_smoothing=toggles.by)
"""
SLOWER = """
def lr_factor(step, steps, factor, toggles):
    return factor * toggles.by
"""
PLAIN_SGD = """
def optimizers(groups, toggles):
    return [torch.optim.SGD([{**g, "lr": toggles.by} for g in groups if g["role"] == "hidden"], momentum=0.5),
            *(g for g in groups if g["role"] != "hidden")]
"""
DROPPED = """
def build(model, toggles):
    model.blocks[0].mlp.register_forward_hook(nn.Dropout(toggles.by).forward_of_hook)
""".replace(
    "nn.Dropout(toggles.by).forward_of_hook", "lambda m, i, y: F.dropout(y, toggles.by, m.training)"
)

Plug = Callable[..., Callable[[RunConfig, float], RunConfig]]


@pytest.fixture(autouse=True)
def _none_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "")


@pytest.fixture
def plug(tmp_path: Path) -> Plug:
    """Puts a plug-in in force; gives what switches it on in a configuration."""

    def use(text: str, name: str = "idea") -> Callable[[RunConfig, float], RunConfig]:
        (tmp_path / f"{name}.py").write_text(HEAD + text)
        plugins.use([*plugins.paths(), tmp_path / f"{name}.py"])
        return lambda config, by: replace(config, plugin={**config.plugin, f"{name}.by": by})

    return use


def trained(made: Core, n: int = 3) -> list[Any]:
    """Everything that n updates leave: their losses, the weights, a validation."""
    losses = [made.update(step, [batch(step)]) for step in range(n)]
    x, y = batch(99)
    return [*losses, made.evaluate(n, [(x[0], y[0])]), *made.model.parameters()]


def same(a: list[Any], b: list[Any]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# one of the early records and the last: the others are slow tests
SOME = [pytest.param(p, marks=[pytest.mark.slow] * (p not in ("r07", "r18"))) for p in PRESETS]


@pytest.mark.parametrize("preset", SOME)
def test_an_arm_that_leaves_a_plug_in_off_is_the_preset_bit_for_bit(
    preset: str, plug: Plug
) -> None:
    config = small(preset)
    expected = trained(core(config))
    on = plug(SMOOTHED + SLOWER + PLAIN_SGD + DROPPED)
    assert same(trained(core(on(config, 0.0))), expected)


@pytest.mark.parametrize("preset", SOME)
def test_a_validation_is_plain_cross_entropy_whatever_is_trained_on(
    preset: str, plug: Plug
) -> None:
    """With gradients as in record 5, too."""
    config = small(preset)
    made, plain = core(plug(SMOOTHED)(config, 0.2)), core(config)
    disturb(made.model)
    disturb(plain.model)
    x, y = batch(7)
    (loss,) = made.evaluate(0, [(x[0], y[0])])
    assert torch.equal(loss, plain.evaluate(0, [(x[0], y[0])])[0])
    smoothed = made.gradients([batch(7)], made.set_step(0))
    logits = made.model.logits(x[0], made.set_window(0)).flatten(0, 1)
    torch.testing.assert_close(
        smoothed[0], F.cross_entropy(logits, y.flatten(), label_smoothing=0.2), rtol=0, atol=1e-5
    )
    assert abs(smoothed[0] - loss) > 1e-4


def test_what_is_dropped_in_training_is_there_in_validation(plug: Plug) -> None:
    config = small("r08")
    made = core(plug(DROPPED)(config, 0.5))
    x, y = batch(7)
    disturb(made.model)
    torch.manual_seed(0)
    losses = [made.gradients([batch(7)], made.set_step(0)) for _ in range(2)]
    assert not torch.equal(*losses)
    validations = [made.evaluate(0, [(x[0], y[0])]) for _ in range(2)]
    assert torch.equal(*validations)
    assert not torch.equal(made.gradients([batch(7)], made.set_step(0)), losses[0])


def test_a_factor_of_its_own_multiplies_the_rates_of_every_group(plug: Plug) -> None:
    config = small("r08")
    made, preset = core(plug(SLOWER)(config, 0.25)), core(config)
    for step in (0, config.schedule.steps - 1):
        made.set_step(step)
        preset.set_step(step)
        for own, theirs in zip(made.optimizers, preset.optimizers, strict=True):
            for a, b in zip(own.param_groups, theirs.param_groups, strict=True):
                assert a["lr"] == pytest.approx(0.25 * b["lr"])


def test_factors_of_two_plug_ins_multiply(plug: Plug) -> None:
    config = small("r08")
    on, again = plug(SLOWER), plug(SLOWER, "other")
    made, preset = core(again(on(config, 0.5), 0.5)), core(config)
    made.set_step(0)
    preset.set_step(0)
    lr, of_preset = (c.optimizers[0].param_groups[0]["lr"] for c in (made, preset))
    assert lr == pytest.approx(0.25 * of_preset)


def test_an_optimizer_of_its_own_moves_its_groups_at_its_rate_and_the_presets_move_the_rest(
    plug: Plug,
) -> None:
    config = small("r08")
    made, preset = core(plug(PLAIN_SGD)(config, 0.5)), core(config)
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    made.gradients([batch(0)], made.set_step(0))
    grads = {
        name: p.grad.clone() for name, p in made.model.named_parameters() if p.grad is not None
    }
    factor = made.optimizers[0].param_groups[0]["lr"] / 0.5
    assert factor == schedule_at(config, 0).lr_factor
    assert made.optimizers[0].param_groups[0]["momentum"] == 0.5  # not the schedule's
    made.step()
    preset.gradients([batch(0)], preset.set_step(0))
    preset.step()
    of_preset = dict(preset.model.named_parameters())
    for name, p in made.model.named_parameters():
        if p.role == "hidden":
            torch.testing.assert_close(p, before[name] - 0.5 * factor * grads[name])
        else:
            assert torch.equal(p, of_preset[name]), name


def test_a_rule_of_its_own_is_handed_what_the_page_says_alone(plug: Plug) -> None:
    """The preset's betas and decay in its groups would be its optimizers' own."""
    telling = """
def optimizers(groups, toggles):
    raise ValueError(sorted({key for group in groups for key in group}))
"""
    with pytest.raises(ValueError, match=r"\['lr', 'names', 'params', 'role'\]"):
        core(plug(telling)(small("r18"), 0.5))


def test_a_rule_that_counts_starts_anew_after_the_warm_up(plug: Plug) -> None:
    config = small("r08")
    counting = """
class Counting(torch.optim.SGD):
    n = 0
    def step(self):
        self.n += 1
        super().step()

def optimizers(groups, toggles):
    return [Counting(groups)]
"""
    made = core(plug(counting)(config, 0.5))
    made.update(0, [batch(0)])
    assert made.optimizers[0].n == 1
    made.reset_optimizers()
    assert made.optimizers[0].n == 0


BAD = {
    "a loss that is no scalar": (
        "def loss(logits, targets, toggles):\n    return F.cross_entropy(logits, targets, reduction='none')",
        "loss gives a tensor of shape (256,), but must give one number as a 0-d tensor: take the mean",
    ),
    "a loss that is a float": (
        "def loss(logits, targets, toggles):\n    return 2.5",
        "loss gives 2.5, but must give one number as a 0-d tensor",
    ),
    "a loss without gradient": (
        "def loss(logits, targets, toggles):\n    return logits.detach().mean()",
        "loss gives a tensor without gradient: compute it from logits",
    ),
    "a factor that is not finite": (
        "def lr_factor(step, steps, factor, toggles):\n    return float('nan') if step == steps - 1 else 1.0",
        "lr_factor gives nan at update",
    ),
    "a factor that cannot be computed": (
        "def lr_factor(step, steps, factor, toggles):\n    return 1 / (step - 2)",
        "lr_factor raises ZeroDivisionError (division by zero) at update 2 of",
    ),
    "a factor that is none": (
        "def lr_factor(step, steps, factor, toggles):\n    pass",
        "lr_factor gives None at update 0 of",
    ),
    "an optimizer that leaves out": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD(groups[1:])]",
        "optimizers leaves out embed.weight: give its group, or move it",
    ),
    "an optimizer that repeats": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD(groups), groups[0]]",
        "optimizers repeats embed.weight: give it once",
    ),
    "an optimizer of a stranger": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([nn.Parameter(torch.ones(1))]), *groups]",
        "optimizers moves what is no parameter of the network",
    ),
    "a group with a rate of its own": (
        "def optimizers(groups, toggles):\n    return [{**g, 'lr': toggles.by} for g in groups]",
        "optimizers gives the group of embed.weight with another lr: give groups as they came",
    ),
    "a group of no rate": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{**g, 'lr': None} for g in groups])]",
        "optimizers gives the group of embed.weight the lr None, but must give a finite number: set",
    ),
    "a group without a rate": (
        "class Bare(torch.optim.Optimizer):\n    def __init__(self, groups):\n        super().__init__([{'params': g['params']} for g in groups], {})\n\ndef optimizers(groups, toggles):\n    return [Bare(groups)]",
        "optimizers gives a group without 'lr': the schedule scales it",
    ),
    "a group of an infinite rate": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{**g, 'lr': 1e999} for g in groups])]",
        "the lr inf, but must give a finite number",
    ),
    "a group whose rate is a word": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{**g, 'lr': '0.1'} for g in groups])]",
        "the lr str, but must give a finite number",
    ),
    "no optimizer": (
        "def optimizers(groups, toggles):\n    return torch.optim.SGD(groups)",
        "but must give a list of torch.optim.Optimizer",
    ),
    "an optimizer that leaves out several": (
        "def optimizers(groups, toggles):\n    return [g for g in groups if g['role'] != 'hidden']",
        " more: give its group, or move it",
    ),
    "an optimizer that repeats several": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD(groups), *(g for g in groups if g['role'] == 'hidden')]",
        " more: give it once",
    ),
    "a group of several of no rate": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{**g, 'lr': float('nan')} for g in groups if g['role'] == 'hidden'])]",
        " more the lr nan, but must give a finite number",
    ),
    "an optimizer that leaves out two": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{**g, 'params': g['params'][2:]} if g['role'] == 'hidden' else g for g in groups])]",
        " and 1 more: give its group, or move it",
    ),
    "a group of two of no rate": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{**g, 'params': g['params'][:2], 'lr': float('nan')} for g in groups if g['role'] == 'hidden'])]",
        " and 1 more the lr nan, but must give a finite number",
    ),
    "a group of a stranger of no rate": (
        "def optimizers(groups, toggles):\n    return [torch.optim.SGD([{'params': [nn.Parameter(torch.ones(1))], 'lr': None}])]",
        "gives the group of no parameter the lr None",
    ),
    "a group of two rates": (
        "def optimizers(groups, toggles):\n    made = torch.optim.SGD(groups)\n    made.param_groups[0]['lr'] = torch.ones(2)\n    return [made]",
        "gives the group of embed.weight the lr a tensor of shape (2,)",
    ),
    "no list of optimizers": (
        "def optimizers(groups, toggles):\n    pass",
        "gives None, but must give a list of torch.optim.Optimizer",
    ),
    "a group of other names": (
        "def optimizers(groups, toggles):\n    return [{**groups[0], 'names': ('mine',)}, *groups[1:]]",
        "gives dict, but must give a list of torch.optim.Optimizer",
    ),
    "a number among optimizers": (
        "def optimizers(groups, toggles):\n    return (torch.optim.SGD(groups), 7)",
        "gives 7, but must give a list of torch.optim.Optimizer",
    ),
    "a look at what the network is given": (
        "def build(model, toggles):\n    model.register_forward_pre_hook(lambda m, x: None)",
        "build changes forward of the whole network, which validation is measured by",
    ),
    "a forward of its own": (
        "def build(model, toggles):\n    model.register_forward_hook(lambda m, i, y: 2 * y)",
        "build changes forward of the whole network, which validation is measured by",
    ),
    "another forward of its own": (
        "def build(model, toggles):\n    model.forward = lambda x, y, w: x.float().mean()",
        "build changes forward of the whole network, which validation is measured by",
    ),
}  # fmt: skip


def met(config: RunConfig, *, before_training: bool) -> None:
    if before_training:
        check_config(config)
    else:
        core(config).update(0, [batch(0)])


@pytest.mark.parametrize("case", BAD)
def test_what_a_plug_in_gives_is_refused_in_one_line_that_names_it(
    case: str, plug: Plug, kept_line: Callable[[str], None]
) -> None:
    text, message = BAD[case]
    config = plug(text)(small("r08"), 0.1)
    with pytest.raises(UserError) as error:
        met(config, before_training="lr_factor" in text)
    assert message in str(error.value)
    assert "idea.py: " in str(error.value)
    assert "\n" not in str(error.value)
    kept_line(str(error.value))


BACKWARDS = """
def order(documents, seed, toggles):
    lengths = [len(d) for d in documents]
    assert lengths == documents.lengths.tolist()
    return list(reversed(range(len(documents))))
"""
LENGTHS = (300, 20, 700, 1, 250, 90)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    tokens = np.arange(sum(LENGTHS)) % SEPARATOR
    tokens[np.cumsum([0, *LENGTHS[:-1]])] = SEPARATOR
    shards = {"train": (tmp_path / "train.bin",), "val": (tmp_path / "val.bin",)}
    for path in (*shards["train"], *shards["val"]):
        write_shard(path, tokens.astype(np.uint16))
    return SimpleNamespace(**shards, separator=SEPARATOR)  # type: ignore[return-value]


@pytest.mark.parametrize("preset", ["r02", "r08", "r12", "r18"])
@pytest.mark.parametrize("order", ["sequential", "shuffled"])
def test_documents_are_read_in_an_order_of_its_own_and_validated_as_ever(
    preset: str, order: str, plug: Plug, corpus: Corpus
) -> None:
    where: dict[str, Any] = {"rank": 0, "world_size": 1, "device": "cpu"}
    config = small(preset)
    config = replace(config, data=replace(config.data, order=order, first_batch_twice=False))
    _, val = loaders(config, corpus, seed=0, **where)
    train, own_val = loaders(plug(BACKWARDS)(config, 1.0), corpus, seed=0, **where)
    for (x, y), (own_x, own_y) in zip(val, own_val, strict=True):
        assert torch.equal(x, own_x)
        assert torch.equal(y, own_y)
    whole = np.fromfile(corpus.train[0], dtype="<u2", offset=1024)
    expected = np.concatenate(np.split(whole, np.cumsum(LENGTHS[:-1]))[::-1])
    for step in range(3):
        ((x, y),) = next(train)
        start = step * config.data.batch_tokens
        assert x.flatten().tolist() == expected[start:][: x.numel()].tolist()
        assert y.flatten().tolist() == expected[start + 1 :][: x.numel()].tolist()


NO_ORDER = {
    "too few": ("range(1, len(documents))", "of 6 documents gives 5 of them"),
    "twice": ("[0, 1, 2, 3, 4, 4]", "of 6 documents gives 4 more than once"),
    "beyond": ("[0, 1, 2, 3, 4, 6]", "of 6 documents gives 6: give every number from 0 to 5"),
    "no numbers": ("documents", "gives Documents, but must give an array of whole numbers"),
    "fractions": ("[0.5]", "gives list, but must give an array of whole numbers"),
    "none": ("None", "gives None, but must give an array of whole numbers"),
    "before the first": ("[-1, 0, 1, 2, 3, 4]", "of 6 documents gives -1: give every number"),
    "more than there are": ("[*range(6), 5]", "of 6 documents gives 5 more than once"),
    "rows": ("[[0, 1, 2], [3, 4, 5]]", "gives list, but must give an array of whole numbers"),
    "of several lengths": ("[[0], [1, 2]]", "gives list, but must give an array of whole"),
    "yes or no": ("[True] * 6", "gives list, but must give an array of whole numbers"),
}


@pytest.mark.parametrize("case", NO_ORDER)
def test_an_order_that_is_no_permutation_is_refused(
    case: str, plug: Plug, corpus: Corpus, kept_line: Callable[[str], None]
) -> None:
    given, message = NO_ORDER[case]
    on = plug(f"def order(documents, seed, toggles):\n    return {given}\n")
    with pytest.raises(UserError) as error:
        loaders(on(small("r08"), 1.0), corpus, seed=0, rank=0, world_size=1, device="cpu")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    kept_line(str(error.value))


def test_a_rate_may_be_a_tensor_of_one_number(plug: Plug) -> None:
    text = """
def optimizers(groups, toggles):
    return [torch.optim.SGD([{**g, "lr": torch.tensor(toggles.by)} for g in groups])]
"""
    config = small("r08")
    made, preset = core(plug(text)(config, 0.25)), core(config)
    (group, *_) = made.optimizers[0].param_groups
    assert type(group["base_lr"]) is float and group["base_lr"] == 0.25
    made.set_step(0)
    preset.set_step(0)
    of_preset = preset.optimizers[0].param_groups[0]
    assert group["lr"] == pytest.approx(0.25 * of_preset["lr"] / of_preset["base_lr"])


def test_two_plug_ins_that_decide_the_same_are_refused_together_and_taken_one_by_one(
    plug: Plug,
) -> None:
    on, again = plug(SMOOTHED), plug(SMOOTHED, "other")
    config = small("r08")
    core(on(config, 0.1))
    core(again(config, 0.1))
    with pytest.raises(
        UserError, match=r"idea\.py and .*other\.py both define loss: switch on one"
    ):
        core(again(on(config, 0.1), 0.1))


WRONG_LINES = {
    "a part that is not there": (
        "def build(model, toggles):\n    model.blocks[0].mlp.proj.weight\n",
        "idea.py:14: build: AttributeError: MLP has no 'proj'; there is: activation, down, lifted, up; ",
    ),
    "a part that is nearly there": (
        "def build(model, toggles):\n    model.blocks[0].atn\n",
        "Block has no 'atn'; did you mean 'attn'?; there is: attn, bigram_first, bigram_scale, branch_scale, fed_by, layer, mlp, norm",
    ),
    "a part that this record lacks": (
        "def build(model, toggles):\n    model.value_embeds.weight\n",
        "NoneType has no 'weight'",
    ),
    "what a library refuses": (
        "def loss(logits, targets, toggles):\n    return F.cross_entropy(logits.T, targets)\n",
        "idea.py:14: loss: ValueError: Expected input batch_size",
    ),
    "what a function of its own meets": (
        "def half(x):\n    return x.wrong\n\n\ndef loss(logits, targets, toggles):\n    return half(logits)\n",
        "idea.py:14: half: AttributeError: Tensor has no 'wrong'",
    ),
}


@pytest.mark.parametrize("case", WRONG_LINES)
def test_an_error_of_a_plug_in_is_one_line_with_its_place_and_what_is_there(
    case: str, plug: Plug, kept_line: Callable[[str], None]
) -> None:
    text, message = WRONG_LINES[case]
    config = plug("\n" + text)(small("r08"), 0.1)
    with pytest.raises(UserError) as error, told_in_a_line():
        core(config).update(0, [batch(0)])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    if case != "what a library refuses":
        kept_line(str(error.value))


@pytest.mark.parametrize(("n", "listed"), [(40, True), (41, False)])
def test_what_is_there_instead_is_listed_up_to_forty_names(
    n: int, listed: bool, plug: Plug
) -> None:
    text = f"""
class Parts:
    def __init__(self):
        vars(self).update({{f"part{{i}}": i for i in range({n})}})

def build(model, toggles):
    Parts().wrong
"""
    config = plug(text)(small("r08"), 0.1)
    with pytest.raises(UserError, match="Parts has no 'wrong'") as error, told_in_a_line():
        core(config)
    assert ("; there is: part0, part1, part10, " in str(error.value)) == listed


def test_an_error_of_the_harness_is_told_as_none_of_a_plug_in(plug: Plug) -> None:
    plug(SMOOTHED)
    with pytest.raises(ZeroDivisionError), told_in_a_line():
        1 / 0  # noqa: B018


def test_the_vocabulary_of_padded_logits_is_what_the_page_says(plug: Plug) -> None:
    (example,) = blocks("your-idea.md", "py")
    on = plug(example.replace("toggles.amount", "toggles.by"))
    config = small("r18")
    made = core(on(config, 0.1))
    logits = made.model.logits(batch(0)[0][0], made.set_window(0))
    assert logits.shape[-1] > VOCAB == plugins.modules()[0].vocabulary
    assert not made.update(0, [batch(0)]).isnan().any()
