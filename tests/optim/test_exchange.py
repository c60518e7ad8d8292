"""Two and three processes move the matrices as one does, in every form and for even and uneven counts."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn import Parameter

import harness.optim.exchange
from harness.optim.build import build_optimizers, narrow_matrices
from harness.optim.config import OptimConfig
from harness.optim.exchange import EXCHANGES
from tests.fake_matrix import DEADLINE_S
from tests.forkserver import forkserver

EVEN = [(8, 8), (24, 8), (8, 24)] * 6  # 6 squares and 12 of one larger size: divide by 2 and by 3
UNEVEN = [(8, 8), (24, 8), (8, 24), (8, 8), (8, 8), (24, 8), (8, 8), (8, 8), (4, 2)]  # 5, 3 and 1
COUNTS = {"even": EVEN, "uneven": UNEVEN}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RULES: dict[str, dict[str, Any]] = {  # beside plain Muon, in fp32
    "variance": {"muon_variance": "input"},
    "decay": {"muon_weight_decay": 0.5},
    "bits": {"weights_dtype": "bf16_mantissa"},
    "cautious": {"muon_weight_decay": 0.5, "muon_weight_decay_form": "cautious"},
}
CASES = [(form, count, dtype) for form in EXCHANGES for count in COUNTS for dtype in DTYPES]
CASES += [(form, "uneven", rule) for form in EXCHANGES for rule in RULES]


def config(form: str, **fields: Any) -> OptimConfig:
    return OptimConfig(
        matrix_optimizer="muon",
        muon_comm=form,
        muon_lr=0.1,
        ns_norm="bf16",
        update_scale="sqrt_ratio",
        muon_momentum_form="ema",
        **fields,
    )


def train(form: str, count: str, kind: str) -> dict[str, Any]:
    """Weights after four steps, which matrices have a momentum here, and the tensors sent.

    kind: one of DTYPES or of RULES.
    """
    generator = torch.Generator().manual_seed(0)
    params = [Parameter(torch.randn(*shape, generator=generator)) for shape in COUNTS[count]]
    named = [(f"m{i}", p) for i, p in enumerate(params)]
    narrow_matrices({"hidden": named}, config(form, **RULES.get(kind, {})))
    (optimizer,) = build_optimizers(
        {"hidden": named},
        config(form, **RULES.get(kind, {})),
        dtype=DTYPES.get(kind, torch.float32),
        device_type="cpu",
    )
    harness.optim.exchange.SENT.clear()  # type: ignore[attr-defined]
    for momentum in (0.85, 0.9, 0.95, 0.95):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        params[1].grad = (
            None if momentum == 0.9 else params[1].grad
        )  # missing on all ranks alike; ownership must not shift
        for group in optimizer.param_groups:
            group["momentum"] = momentum
        optimizer.step()
    return {
        "weights": [p.detach() for p in params],
        "owned": [i for i, p in enumerate(params) if p in optimizer.state],
        "sent": Counter(harness.optim.exchange.SENT),  # type: ignore[attr-defined]
    }


def refusal() -> str | None:
    named = [(f"m{i}", Parameter(torch.zeros(shape))) for i, shape in enumerate(UNEVEN)]
    refusing = config("grouped_all_gather", muon_uneven="refuse")
    even = [(f"m{i}", Parameter(torch.zeros(shape))) for i, shape in enumerate(EVEN)]
    build_optimizers(
        {"hidden": even}, refusing, dtype=torch.float32, device_type="cpu"
    )  # divides: accepted
    try:
        build_optimizers({"hidden": named}, refusing, dtype=torch.float32, device_type="cpu")
    except ValueError as error:
        return str(error)
    return None


def count_what_is_sent() -> None:
    sent: list[str] = []
    all_reduce, all_gather = dist.all_reduce, harness.optim.exchange.all_gather

    def counting_reduce(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sent.append(f"all_reduce {tensor.dtype}")
        return all_reduce(tensor, *args, **kwargs)

    def counting_gather(output: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        assert kwargs["async_op"]
        sent.append(f"all_gather {output.dtype}")
        return all_gather(output, *args, **kwargs)

    harness.optim.exchange.SENT = sent  # type: ignore[attr-defined]
    dist.all_reduce = counting_reduce
    harness.optim.exchange.all_gather = counting_gather


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    count_what_is_sent()
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store{world}", rank=rank, world_size=world
        )
    results = {case: train(*case) for case in CASES}
    torch.save({"results": results, "refusal": refusal()}, f"{folder}/world{world}_rank{rank}.pt")
    if world > 1:
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(
        0
    )  # gloo's threads may abort a regular exit (a finished work frees tensors after the interpreter is gone)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("exchange")
    context = forkserver()
    processes = [
        context.Process(target=worker, args=(rank, world, str(folder)))
        for world in (1, 2, 3)
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0] * 6
    return {
        world: [
            torch.load(Path(folder) / f"world{world}_rank{rank}.pt", weights_only=False)
            for rank in range(world)
        ]
        for world in (1, 2, 3)
    }


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_many_processes_move_the_matrices_as_one_does(
    outcomes: Any, world: int, case: tuple[str, str, str]
) -> None:
    alone = outcomes[1][0]["results"][case]["weights"]
    ranks = [outcome["results"][case]["weights"] for outcome in outcomes[world]]
    # 4 steps of 0.1: bf16 batches round differently
    tolerance = 2e-2 if case[2] in ("bf16", "bits") else 1e-5
    for i, weight in enumerate(alone):
        torch.testing.assert_close(ranks[0][i], weight, atol=tolerance, rtol=0)
        assert all(torch.equal(other[i], ranks[0][i]) for other in ranks[1:]), (
            "replicas must stay identical"
        )


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_momentum_lives_where_it_is_computed(outcomes: Any, world: int, count: str) -> None:
    everything = list(range(len(COUNTS[count])))
    for rank, outcome in enumerate(outcomes[world]):
        owned = {form: outcome["results"][form, count, "fp32"]["owned"] for form in EXCHANGES}
        assert owned["redundant"] == everything
        assert owned["flat_all_reduce"] == everything[rank::world]
    gathered = [
        i
        for outcome in outcomes[world]
        for i in outcome["results"]["grouped_all_gather", count, "fp32"]["owned"]
    ]
    assert sorted(gathered) == everything  # each matrix at exactly one rank


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_form_sends_what_it_says_and_one_process_sends_nothing(
    outcomes: Any, dtype: str
) -> None:
    def sent(world: int, form: str, count: str) -> dict[str, int]:
        return dict(outcomes[world][0]["results"][form, count, dtype]["sent"])

    carried = DTYPES[dtype]
    for world in (2, 3):
        assert sent(world, "redundant", "even") == {}
        assert sent(world, "flat_all_reduce", "even") == {f"all_reduce {carried}": 4}
        # windows per step: 6/world squares and 12/world of the other size
        assert sent(world, "grouped_all_gather", "even") == {
            f"all_gather {carried}": 4 * 18 // world
        }
    assert all(sent(1, form, count) == {} for form in EXCHANGES for count in COUNTS)


@pytest.mark.parametrize(
    ("world", "counts"), [(2, ["5 matrices of 64", "3 matrices of 192", "1 matrices of 8"])]
)
def test_refuse_names_the_counts_and_the_field(
    outcomes: Any, world: int, counts: list[str]
) -> None:
    for outcome in outcomes[world]:
        assert outcome["refusal"].startswith("optim.muon_uneven is 'refuse'")
        assert outcome["refusal"].endswith(
            "do not divide by 2 ranks; set optim.muon_uneven: handle"
        )
        assert all(count in outcome["refusal"] for count in counts)
    assert "3 matrices of 192" not in outcomes[3][0]["refusal"]
    assert outcomes[1][0]["refusal"] is None
