"""Laws of orthogonalisation, and the recorded cases of the public scripts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from harness.optim.orthogonalize import FORMS, NORMS, orthogonalize

RECORDED = np.load(Path(__file__).resolve().parents[1] / "data" / "orthogonalize.npz")
CASES = (0, 3, 4, 5, 7)  # 7 is the zero matrix
SETTINGS = {  # recorded output: settings that reproduce it
    "r04_steps5": {"steps": 5, "form": "products", "norm": "fp32"},
    "r04_steps10": {"steps": 10, "form": "products", "norm": "fp32"},
    "r11_steps5": {"steps": 5, "form": "polynomial", "norm": "bf16"},
    "r18_steps5": {"steps": 5, "form": "polynomial", "norm": "bf16_transposed"},
    "svd_uvt": {"backend": "svd"},
}


def with_spectrum(
    singular_values: list[float], rows: int, cols: int, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """A matrix of the given singular values, and its U V^T."""
    generator = torch.Generator().manual_seed(seed)
    rank = len(singular_values)
    left, _ = torch.linalg.qr(torch.randn(rows, rank, generator=generator, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(cols, rank, generator=generator, dtype=torch.float64))
    matrix = left @ torch.diag(torch.tensor(singular_values, dtype=torch.float64)) @ right.mT
    return matrix.float(), (left @ right.mT).float()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("output", SETTINGS)
def test_matches_the_recorded_scripts(case: int, output: str) -> None:
    if (case, output) == (7, "svd_uvt"):
        pytest.skip("U V^T of the zero matrix is arbitrary")
    result = orthogonalize(torch.from_numpy(RECORDED[f"{case}/input"]), **SETTINGS[output])
    torch.testing.assert_close(
        result, torch.from_numpy(RECORDED[f"{case}/{output}"]), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize(("rows", "cols"), [(8, 8), (32, 8), (8, 32)])
def test_svd_is_the_orthogonal_factor(rows: int, cols: int) -> None:
    matrix, factor = with_spectrum([3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.01], rows, cols)
    torch.testing.assert_close(orthogonalize(matrix, backend="svd"), factor, atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "cols"), [(8, 8), (32, 8), (8, 32)])
def test_five_steps_bring_singular_values_near_one_and_keep_singular_vectors(
    norm: str, form: str, dtype: torch.dtype, rows: int, cols: int
) -> None:
    matrix, factor = with_spectrum([3.0, 1.0, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1], rows, cols)
    result = orthogonalize(matrix, form=form, norm=norm, dtype=dtype).float()
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.6
    assert values.max() < 1.3
    rotated = (
        factor.mT @ result if rows >= cols else result @ factor.mT
    )  # symmetric if the vectors are kept
    torch.testing.assert_close(
        rotated, rotated.mT, atol=1e-5 if dtype == torch.float32 else 0.05, rtol=0
    )


@pytest.mark.parametrize("backend", ["newton_schulz", "svd"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_zero_matrix_survives_and_leaves_its_batch_alone(
    backend: str, norm: str, dtype: torch.dtype
) -> None:
    matrix, _ = with_spectrum([3.0, 1.0, 0.5, 0.1], 12, 4)
    batch = orthogonalize(
        torch.stack([torch.zeros_like(matrix), matrix]), backend=backend, norm=norm, dtype=dtype
    )
    assert batch.isfinite().all()
    if backend == "newton_schulz":
        assert not batch[0].any()
    alone = orthogonalize(matrix, backend=backend, norm=norm, dtype=dtype)
    torch.testing.assert_close(
        batch[1], alone, atol=1e-6 if dtype == torch.float32 else 0.05, rtol=0
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", FORMS)
def test_transposing_the_input_transposes_the_result(norm: str, form: str) -> None:
    matrix, _ = with_spectrum([3.0, 1.0, 0.5, 0.1], 12, 4)
    result = orthogonalize(matrix, form=form, norm=norm)
    torch.testing.assert_close(
        orthogonalize(matrix.mT, form=form, norm=norm), result.mT, atol=1e-6, rtol=0
    )
    assert result.is_contiguous()


@pytest.mark.parametrize("norm", NORMS)
def test_both_forms_are_the_same_polynomial(norm: str) -> None:
    matrix, _ = with_spectrum([3.0, 1.0, 0.5, 0.3, 0.2, 0.1], 6, 20)
    results = [orthogonalize(matrix, form=form, norm=norm) for form in FORMS]
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=0)
    assert not torch.equal(
        results[0], results[1]
    )  # the order of operations differs, so must some last bits


def test_the_forms_differ_in_their_wide_products() -> None:
    def wide_products(form: str) -> int:
        graph = make_fx(lambda u: orthogonalize(u, form=form, steps=1))(torch.randn(2, 4, 16)).graph
        shapes = [
            node.meta["val"].shape if "val" in node.meta else node.meta["tensor_meta"].shape
            for node in bmms(graph)
        ]
        return sum(shape[-1] == 16 for shape in shapes)

    def bmms(graph: torch.fx.Graph) -> list[torch.fx.Node]:
        return [
            n
            for n in graph.nodes
            if n.target in (torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default)
        ]

    assert {form: wide_products(form) for form in FORMS} == {"products": 2, "polynomial": 1}


def test_each_norm_is_taken_where_it_says() -> None:
    """Followed back through the graph from the norm: the operations between it and the input."""

    def before_the_norm(norm: str) -> list[str]:
        graph = make_fx(lambda u: orthogonalize(u, norm=norm, dtype=torch.bfloat16, steps=1))(
            torch.randn(2, 16, 4)
        ).graph
        node = next(node for node in graph.nodes if "norm" in str(node.target)).args[0]
        names = []
        while node.op != "placeholder":
            names.append(str(node.target))
            node = node.args[0]
        return names[::-1]

    assert {norm: before_the_norm(norm) for norm in NORMS} == {
        "fp32": [],
        "bf16": ["aten._to_copy.default"],
        "bf16_transposed": ["aten.transpose.int", "aten._to_copy.default"],
    }


def test_the_fp32_norm_returns_fp32_and_the_others_the_compute_dtype() -> None:
    result = {
        norm: orthogonalize(torch.randn(4, 4), norm=norm, dtype=torch.bfloat16).dtype
        for norm in NORMS
    }
    assert result == {
        "fp32": torch.float32,
        "bf16": torch.bfloat16,
        "bf16_transposed": torch.bfloat16,
    }


def test_the_fp32_norm_sees_what_bf16_rounds_away() -> None:
    u = torch.full((1, 4, 4), 1.0 + 2**-9)  # bf16 keeps 8 bits: rounds to 1
    in_fp32 = NORMS["fp32"](u, torch.bfloat16, 1.0, 1e-7)
    torch.testing.assert_close(
        in_fp32, (u.bfloat16().float() / u.norm()).bfloat16(), atol=0, rtol=0
    )


@pytest.mark.parametrize("backend", ["newton_schulz", "svd"])
def test_compiles_as_one_graph_whatever_the_values(backend: str) -> None:
    graphs = 0

    def counting(module: torch.fx.GraphModule, _inputs: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal graphs
        graphs += 1
        return module

    torch._dynamo.reset()
    compiled = torch.compile(orthogonalize, backend=counting, fullgraph=True, dynamic=False)
    for scale in (0.0, 1.0, 1e6):
        u = scale * torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
        result = compiled(u, backend=backend, dtype=torch.bfloat16, norm="bf16")
        torch.testing.assert_close(
            result, orthogonalize(u, backend=backend, dtype=torch.bfloat16, norm="bf16")
        )
    assert graphs == 1
