"""Two and three processes train as one does: the same global batches token by token, the same losses and weights."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.config import plugins
from harness.config.device import for_device
from harness.config.presets import preset_values, to_config
from harness.config.run import RunConfig
from harness.config.validate import check_config
from harness.model.tokens import Tokens
from harness.training.core import Core
from harness.training.loaders import loaders
from tests.fake_matrix import DEADLINE_S, ROOT
from tests.forkserver import forkserver
from tests.observe import SEPARATOR, VOCAB, digest, make_corpora

STEPS, RANKS = 3, 6
SIZES = {
    "model.n_layer": 6,
    "model.d_model": 32,
    "model.head_dim": 8,
    "data.seq_len": 128,
    "data.micro_tokens": 128,
    "data.batch_tokens": 2 * RANKS * 128,  # two micro-steps
    "data.ranks": RANKS,
    "data.val_tokens": RANKS * 128,
    "schedule.steps": STEPS,
    "schedule.warmup_steps": 0,
    "schedule.cooldown_steps": 2,
    "schedule.cooldown_frac": None,
    "optim.muon_momentum_warmup_steps": 2,
    "precision.mode": "fp32",
    # Adam moves a weight by its gradient's sign alone: where the gradient is rounding, the order of a sum would decide
    "optim.adam_eps": 1e-3,
}
ZERO_HEAD = {"optim.adam_eps": 1e-4}  # behind it gradients are small
# one micro-step of one virtual rank each: two processes add the very numbers in the very order of one, at the records' epsilon
EXACT = {
    "data.batch_tokens": 2 * 128,
    "data.ranks": 2,
    "data.val_tokens": 2 * 128,
    "optim.adam_eps": 1e-8,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "r07": ("r07", {}),
    "r08": ("r08", ZERO_HEAD),
    "r15": ("r15", {}),  # 24 and 12 matrices: even for two and for three
    "r18": ("r18", {}),  # 20 and 12 matrices: uneven for three
    "r18_merged": (
        "r18",
        {"model.qkv_layout": "merged"},
    ),  # 5 merged matrices: uneven for two as well
    "cadence": (
        "r18",
        {
            "model.head_init": "uniform",
            "model.embed_init": "uniform",
            "optim.adam_every": 2,
            "optim.tie_until": 0.3,
            "optim.scalar_freeze_steps": 1,
            "schedule.window_tokens": 128,
        },
    ),
    "head_pairs": (
        "r18",
        {
            "optim.muon_groups": "head_pairs",
            "optim.muon_variance": "output",
            "optim.head_beta1": 0.5,
        },
    ),
    "tensor": (
        "r18",
        {
            "optim.muon_variance": "tensor",
            "optim.muon_comm": "redundant",
            "optim.muon_require_grad": True,
            "optim.tie_until": 0.3,
            "model.head_init": "uniform",
            "model.embed_init": "uniform",
        },
    ),
    "plug-ins": (
        "r08",
        {
            **ZERO_HEAD,
            "plugin.attention_gate.opened": 0.9,
            "plugin.z_loss.weight": 0.1,
            "plugin.cosine.floor": 0.1,
            "plugin.by_length.first": "short",
        },
    ),
    "pairs": (
        "r18",
        {
            "model.paired_heads": (0, 3),
            "model.rope_pairing": "adjacent",
            "model.attn_window": "inclusive",
            "model.attn_window_layers": (0,),
            "model.block_mask": "traced",
            "schedule.window_warmup": None,
            "schedule.window_tokens": 64,
            "model.bigram_hash": 97,
            "model.bigram_width": 24,
            "model.bigram_sign": 16,
            "model.bigram_inject": "after_attention",
            "model.bigram_in_x0": True,
            "optim.bigram_lr": 0.1,
            "optim.bigram_scale_lr": 0.01,
        },
    ),
    "stages": (
        "r18",
        {
            "schedule.stages": 2,
            "schedule.window_warmup": None,
            "schedule.windows": (40, 64),
            "model.attn_window": "inclusive",
            "model.attn_window_layers": (0,),
            "model.block_mask": "traced",
            "loss.next_tokens": (1.0, 0.5),
            "loss.reduction": "sum_per_rank",
            "optim.adam_eps": 384
            * 1e-3,  # in the units of that sum: two passes of 128 tokens, 1.5 losses each
            "schedule.steps": 4,
        },
    ),
}
OTHER_ORDER = {"cadence"}  # a gradient that waits for Adam is averaged again with the next one
QUICK = ["r15", "r18_merged", "cadence", "tensor", "stages"]
SLOW = [name for name in CASES if name not in QUICK]
NAMES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
IN_ONE_ORDER = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in CASES
    if name not in OTHER_ORDER
]
IDEAS = [
    ROOT / "experiments/ideas" / f"{n}.py"
    for n in ("attention_gate", "z_loss", "cosine", "by_length")
]
UNEVEN = ("r15", {"model.n_layer": 4})  # 16 and 8 matrices on three processes
SHARDS = (2049, 2048, 2050, 2049)  # a round of all ranks is 768 tokens: boundaries are crossed


def config(case: tuple[str, dict[str, Any]]) -> RunConfig:
    """A record at these sizes, with changes."""
    record, changes = case
    made, _ = for_device(
        to_config({**preset_values(record)[0], **SIZES, **changes}),
        "cpu",
        frozenset({"precision.mode"}),
    )
    check_config(made)
    return made


def new_core(c: RunConfig) -> Core:
    return Core(c, Tokens(vocab_size=VOCAB, separator=SEPARATOR, seq_len=c.data.seq_len), seed=0)


def train(c: RunConfig, corpus: Any, rank: int, world: int) -> dict[str, Any]:
    """This process's share: what it read, its losses, and the weights."""
    stream, val = loaders(c, corpus, seed=0, rank=rank, world_size=world, device="cpu")
    core = new_core(c)
    read, losses = [], []
    for step in range(STEPS):
        share = next(stream)
        read.append([(digest(x), digest(y)) for x, y in share])
        losses.append(core.update(step, share).view(len(share), -1))
    held_out = core.evaluate(STEPS, val)
    return {
        "read": read,
        "losses": losses,
        "val": held_out,
        "weights": [p.detach() for p in core.model.parameters()],
    }


def refusal(c: RunConfig) -> str | None:
    try:
        new_core(c)
    except ValueError as error:
        return str(error)
    return None


def worker(rank: int, world: int, folder: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    plugins.use(IDEAS)
    corpus = make_corpora(Path(folder) / f"{world}_{rank}")["stdlib"]
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store{world}", rank=rank, world_size=world
        )
    outcome: dict[str, Any] = {
        name: train(config(CASES[name]), corpus, rank, world) for name in names
    }
    if world <= 2:
        outcome["exact"] = {}
        for name in names:
            if name not in OTHER_ORDER:
                record, changes = CASES[name]
                exact = config((record, {**changes, **EXACT}))
                outcome["exact"][name] = train(exact, corpus, rank, world)
    outcome["refusal"] = refusal(config(UNEVEN))
    torch.save(outcome, f"{folder}/{world}_{rank}.pt")
    if world > 1:
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a regular exit


WORLDS = (1, 2, 3)


Outcomes = dict[int, list[dict[str, Any]]]  # number of processes -> of each


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(QUICK, tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(SLOW, tmp_path_factory.mktemp("processes"))


@pytest.fixture
def outcomes(name: str, request: pytest.FixtureRequest) -> Outcomes:
    made: Outcomes = request.getfixturevalue("quick" if name in QUICK else "slow")
    return made


def outcomes_of(names: list[str], folder: Path) -> Outcomes:
    context = forkserver()
    for world in WORLDS:
        for rank in range(world):
            (folder / f"{world}_{rank}").mkdir()
    processes = [
        context.Process(target=worker, args=(rank, world, str(folder), names))
        for world in WORLDS
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    return {
        w: [torch.load(folder / f"{w}_{r}.pt", weights_only=False) for r in range(w)]
        for w in WORLDS
    }


def gathered(ranks: list[dict[str, Any]], name: str, key: str, step: int) -> list[Any]:
    """One entry for each virtual rank, in order."""
    return [part for rank in ranks for part in rank[name][key][step]]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_global_batches_are_the_same_token_by_token(
    outcomes: Outcomes, world: int, name: str
) -> None:
    for step in range(STEPS):
        alone = gathered(outcomes[1], name, "read", step)
        assert len(alone) == RANKS
        assert gathered(outcomes[world], name, "read", step) == alone
    assert len(
        {x for step in range(STEPS) for x, _ in gathered(outcomes[1], name, "read", step)}
    ) >= RANKS * (STEPS - 1)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_losses_and_weights_are_those_of_one_process(
    outcomes: Outcomes, world: int, name: str
) -> None:
    ranks = outcomes[world]
    for step in range(STEPS):
        alone, many = (torch.stack(gathered(o, name, "losses", step)) for o in (outcomes[1], ranks))
        torch.testing.assert_close(many, alone, atol=1e-5, rtol=0)
    held_out = torch.stack(
        [torch.cat([r[name]["val"][i : i + 1] for r in ranks]) for i in range(RANKS // world)]
    ).flatten()
    torch.testing.assert_close(held_out, outcomes[1][0][name]["val"], atol=1e-5, rtol=0)
    for i, weight in enumerate(outcomes[1][0][name]["weights"]):
        torch.testing.assert_close(ranks[0][name]["weights"][i], weight, atol=1e-5, rtol=0)
        assert all(
            torch.equal(r[name]["weights"][i], ranks[0][name]["weights"][i]) for r in ranks
        ), "replicas must stay identical"


@pytest.mark.parametrize("name", IN_ONE_ORDER)
def test_two_processes_are_one_bit_for_bit_where_the_order_of_sums_is_the_same(
    outcomes: Outcomes, name: str
) -> None:
    (alone,), ranks = ([r["exact"][name] for r in outcomes[w]] for w in (1, 2))
    for step in range(STEPS):
        assert torch.equal(torch.cat([r["losses"][step] for r in ranks]), alone["losses"][step])
    for rank in ranks:
        assert all(map(torch.equal, rank["weights"], alone["weights"]))


@pytest.mark.parametrize("name", NAMES)
def test_it_trained(outcomes: Outcomes, name: str) -> None:
    """Losses that never move would agree, too."""
    losses = [
        float(torch.stack(gathered(outcomes[1], name, "losses", step)).mean())
        for step in range(STEPS)
    ]
    assert losses[-1] < losses[0] - 0.01


def test_record_15_refuses_uneven_counts_by_name(quick: Outcomes) -> None:
    assert quick[1][0]["refusal"] is None
    assert quick[2][0]["refusal"] is None
    for rank in quick[3]:
        assert rank["refusal"].startswith("optim.muon_uneven is 'refuse', and ")
        assert "16 matrices of 1024 elements" in rank["refusal"]
        assert rank["refusal"].endswith("do not divide by 3 ranks; set optim.muon_uneven: handle")
