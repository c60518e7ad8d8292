"""What a network costs on an H100, by the code that is generated for one: against the records' own scripts, with no card here.

The figures of the records are of their own scripts lowered in the same way (PyTorch 2.13.0, triton 3.7.0, attention libraries as
one call each). What needs triton is part of `make traffic`.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from harness.__main__ import main
from harness.bench import traffic as module
from harness.bench.steps import resolve
from harness.bench.traffic import BANDWIDTH, MATRIX_RATE, Graph, Network, Traffic, timed, traffic
from harness.cli import bench_traffic
from harness.config.presets import preset_values
from harness.errors import UserError
from harness.training.flops import flops_per_token
from tests.small_presets import PRESETS

SLACK = 1.005  # of the record's own bytes
RECORDS = {  # preset and layers -> GB that the record's own kernels move, and launches today, forward and backward
    ("r08", 4): ((14.54, 45), (19.58, 48)),
    ("r18", 12): ((39.36, 147), (60.49, 212)),
}
LATER = {  # preset -> GB that generated kernels move today, and launches, forward and backward
    "r28": ((36.62, 175), (55.82, 224)),
    "r85": ((18.58, 184), (29.44, 312)),
}


@pytest.fixture
def with_triton() -> None:
    if importlib.util.find_spec("triton") is None and "ABLATE_REQUIRE_TRITON" not in os.environ:
        pytest.skip("triton is not installed: make traffic")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("with_triton")
def test_kernels_move_what_the_records_own_do_and_fit_an_h100() -> None:
    asked = [Network(name, {"model.n_layer": n}, binaries=True) for name, n in RECORDS]
    for key, graphs in zip(RECORDS, traffic(asked), strict=True):
        assert [graph.graph for graph in graphs] == ["forward", "backward"]
        for graph, (gb, launches) in zip(graphs, RECORDS[key], strict=True):
            assert 0.98 * gb <= graph.kernel_gb <= SLACK * gb, (key, graph)
            assert graph.launches <= launches, (key, graph)
            assert graph.angles == 0, (key, graph)
            assert graph.binaries == graph.kernels > 0, (key, graph)
            assert not graph.too_large, (key, graph)


def fewest(preset: str) -> int:
    """Layers with a skip between them; the last records' value tables need six."""
    return 6 if preset_values(preset)[0]["model.value_embed"] == "ends" else 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("with_triton")
@pytest.mark.parametrize("preset", ["r28", "r85"])
def test_later_presets_lower_at_full_size_with_the_loss_that_they_train_on(preset: str) -> None:
    (graphs,) = traffic([Network(preset)])
    assert [graph.graph for graph in graphs] == ["forward", "backward"]
    for graph, (gb, launches) in zip(graphs, LATER[preset], strict=True):
        assert 0.98 * gb <= graph.kernel_gb <= SLACK * gb, (preset, graph)
        assert 0 < graph.kernels <= graph.launches <= launches, (preset, graph)
        assert graph.angles == 0, (preset, graph)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("with_triton")
def test_every_record_to_18_lowers_forward_and_backward() -> None:
    asked = [Network(name, {"model.n_layer": fewest(name)}) for name in PRESETS]
    for name, graphs in zip(PRESETS, traffic(asked), strict=True):
        assert [graph.graph for graph in graphs] == ["forward", "backward"], name
        for graph in graphs:
            assert graph.launches >= graph.kernels > 0, name
            assert graph.angles == 0, name


def graph_of(graph: str = "forward", kernel_bytes: int = 0, product_bytes: int = 0) -> Traffic:
    given = Graph(
        graph=graph,
        kernel_bytes=kernel_bytes,
        product_bytes=product_bytes,
        kernels=2,
        launches=3,
        angles=0,
    )
    return timed(Network("r08"), given, BANDWIDTH)


def test_a_graph_keeps_its_figures_beside_its_times() -> None:
    counts = {"kernels": 2, "launches": 3, "angles": 4, "binaries": 5, "too_large": ("k: 9 bytes",)}
    sizes = {"kernel_bytes": 1_250_000_000, "product_bytes": 10**14 + 5 * 10**8}
    found = timed(Network("r08"), Graph(graph="backward", **sizes, **counts), 3000.0)
    assert found == Traffic(
        graph="backward",
        kernel_gb=1.25,
        product_gb=100_000.5,
        kernel_ms=pytest.approx(1.25 / 3, rel=1e-9),
        product_ms=pytest.approx(100_000.5 / 3, rel=1e-9),
        **counts,
    )


def test_the_least_time_is_that_of_memory_or_of_products() -> None:
    few, many = graph_of(product_bytes=10**6), graph_of(product_bytes=10**14)
    assert many.product_ms == pytest.approx(10**14 / (BANDWIDTH * 1e9) * 1e3)
    assert graph_of(kernel_bytes=67 * 10**8).kernel_ms == pytest.approx(2.0)
    # 65,536 tokens of record 8: 6 FLOPs a token for each of the 123,568,128 entries of its matrices, attention's, a third of both
    matrices = 6 * 123_568_128 * 65_536 / 3 / MATRIX_RATE * 1e3
    assert matrices < few.product_ms < 1.2 * matrices
    config, _ = resolve("r08", scale="gpt2", device="cuda", settings={})
    flops = flops_per_token(config, 50257, step=0).model * 65_536
    assert few.product_ms == pytest.approx(flops / 3 / 989e12 * 1e3, rel=1e-9)
    backward = graph_of(graph="backward", product_bytes=10**6)
    assert backward.product_ms == pytest.approx(2 * few.product_ms)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["bench", *arguments])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_the_command_sets_two_sides_beside_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Network] = []

    def measured(networks: list[Network], *, bandwidth: float) -> list[tuple[Traffic, ...]]:
        asked.extend(networks)
        assert bandwidth == 2000
        more = [10**9 if "model.logit_softcap" in n.settings else 0 for n in networks]
        both = ("forward", "backward")
        return [tuple(graph_of(graph=g, kernel_bytes=10**9 + m) for g in both) for m in more]

    monkeypatch.setattr(bench_traffic, "traffic", measured)
    arguments = ["r08", "--traffic", "--set", "model.n_layer=4", "--bandwidth", "2000"]
    arguments += ["--compare", "r08", "model.logit_softcap=30.0"]
    code, out, _ = said(capsys, *arguments, "--json")
    rows = json.loads(out)["graphs"]
    assert code == 0 and len(rows) == 7
    assert rows[-1]["of"] == "B - A" and rows[-1]["kernel_gb"] == pytest.approx(2)
    assert [n.settings for n in asked] == [
        {"model.n_layer": 4},
        {"model.n_layer": 4, "model.logit_softcap": 30.0},
    ]
    code, out, _ = said(capsys, *arguments)
    assert code == 0 and "B - A" in out and "at 2000 GB/s" in out


def test_what_is_missing_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kept_line: Callable[[str], None],
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "triton" else found(name)
    )
    code, out, err = said(capsys, "r08", "--traffic")
    assert code == 2 and not out and err.count("\n") == 1 and "[traffic]" in err
    told = err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=""))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, _, err = said(capsys, "r08", "--traffic")
    assert code == 2 and err.count("\n") == 1 and "install g++" in err
    told += err
    assert said(capsys, "r08", "--traffic", "--bandwidth", "0")[0] == 2
    code, _, err = said(capsys, "r08", "--bandwidth", "10")
    assert code == 2 and "--traffic alone" in err
    kept_line(told + err)
    here = {"g++": "/bin/g++", "clang++": "/bin/clang++"}
    monkeypatch.setattr(shutil, "which", here.get)
    assert module.check_tools() == here.pop("g++")
    assert module.check_tools() == "/bin/clang++"


def test_a_process_that_fails_is_told_by_its_last_words() -> None:
    with pytest.raises(UserError, match="building failed: no such card"):
        module.ran(["sh", "-c", "echo first >&2; echo no such card >&2; exit 3"], "building")
    with pytest.raises(UserError, match=r"^building failed: no word$"):
        module.ran(["false"], "building")
    with pytest.raises(UserError, match=rf"^building failed: {'x' * 500}$"):
        module.ran(["sh", "-c", f"echo {'x' * 600} >&2; exit 1"], "building")
    assert module.ran(["sh", "-c", "cat; echo aside >&2"], "reading", input="a\n").stdout == "a\n"
