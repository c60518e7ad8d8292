"""The changes of records after 18 in the whole network, against formulas written out here."""

import torch
from torch import Tensor

from harness.training.core import Core
from tests.small_presets import core, disturb, ids, small

WINDOW = torch.tensor(128)


def made(**fields: object) -> Core:
    """Record 18's network with these changes, every parameter drawn anew."""
    network = core(small("r18", "fp32", **fields))
    disturb(network.model)
    return network


def outputs(network: Core) -> tuple[list[Tensor], Tensor]:
    """The output of every block, and what the head sees."""
    after: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda m, a, o: after.append(o[0]))
        for block in network.model.blocks
    ]
    stream = network.model.stream(ids(0), WINDOW)
    for hook in hooks:
        hook.remove()
    return after, stream


def test_backout_takes_a_block_s_output_from_the_last_one() -> None:
    network = made(backout=3)
    after, stream = outputs(network)
    assert network.model.backout is not None
    expected = network.model.norm(after[-1] - network.model.backout.scale * after[3])
    torch.testing.assert_close(stream, expected)


def test_smear_comes_before_the_norm_of_the_embedding() -> None:
    network = made(smear=True)
    model, x0 = network.model, []
    assert model.smear is not None
    hook = model.blocks[0].register_forward_hook(lambda m, a, o: x0.append(a[1]))
    model.stream(ids(0), WINDOW)
    hook.remove()
    e = model.embed.weight[ids(0)[0]]
    share = model.smear.scale * torch.sigmoid(e[:, :12] @ model.smear.gate.weight[0])
    expected = torch.stack([e[0], *(e[t] + share[t] * e[t - 1] for t in range(1, len(e)))])
    torch.testing.assert_close(
        x0[0][0], expected * (expected.square().mean(-1, True) + 2**-23).rsqrt()
    )
