"""The nearest (semi-)orthogonal matrix U V^T of a matrix U S V^T.

Exactly, or by a quintic Newton-Schulz iteration with one polynomial for all steps, or one for each.

Source: Keller Jordan, Muon (github.com/KellerJordan/Muon), and the forms of records 3 to 18; Polar
Express (Amsel, Persson, Musco, Gower, 2025; record 38).
Legend: K matrices, M rows, N columns; after `wide`, M is the short side.
"""

from collections.abc import Callable

import torch
from torch import Tensor

# X <- (aI + bA + cA^2) X with A = X X^T. The slope a at zero is as large as it can be while five
# steps still map (0, 1] to about (0.7, 1.2): fast for small singular values, never converging to
# exactly one.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
# the best polynomial for what the steps before have made of (0, 1], a step's each, in this order
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
Coefficients = tuple[float, float, float]
# backend -> what the Frobenius norm is multiplied by and added to before it divides; the second
# keeps u = 0 at zero
STARTS = {"newton_schulz": (1.0, 1e-7), "polar_express": (1.02, 1e-6)}


def wide(x_KMN: Tensor) -> Tensor:
    """Short side first, so that A = X X^T is the smaller product."""
    return x_KMN.mT if x_KMN.size(-2) > x_KMN.size(-1) else x_KMN


def frobenius(x_KMN: Tensor) -> Tensor:
    """(K, 1, 1), in the dtype of x."""
    norm_K11: Tensor = torch.linalg.vector_norm(x_KMN, dim=(-2, -1), keepdim=True)
    return norm_K11


def by_norm_of_input(u_KMN: Tensor, dtype: torch.dtype, margin: float, eps: float) -> Tensor:
    """The low-precision copy divided by the norm of the full-precision input; one rounding.

    margin, eps: as in STARTS.
    """
    return (u_KMN.to(dtype) / (frobenius(u_KMN) * margin + eps)).to(dtype)


def by_norm_of_copy(u_KMN: Tensor, dtype: torch.dtype, margin: float, eps: float) -> Tensor:
    """The low-precision copy divided by its own low-precision norm; margin, eps: as in STARTS."""
    x_KMN = u_KMN.to(dtype)
    return x_KMN / (frobenius(x_KMN) * margin + eps)


def by_norm_of_wide_copy(u_KMN: Tensor, dtype: torch.dtype, margin: float, eps: float) -> Tensor:
    """The same after the transpose."""
    return by_norm_of_copy(wide(u_KMN), dtype, margin, eps)


NORMS: dict[str, Callable[[Tensor, torch.dtype, float, float], Tensor]] = {
    "fp32": by_norm_of_input,
    "bf16": by_norm_of_copy,
    "bf16_transposed": by_norm_of_wide_copy,
}


def products(x_KMN: Tensor, coefficients: Coefficients) -> Tensor:
    """X <- aX + bB + cAB with B = AX: three products, two of them wide (records 3 to 10)."""
    a, b, c = coefficients
    a_KMM = torch.bmm(x_KMN, x_KMN.mT)
    b_KMN = torch.bmm(a_KMM, x_KMN)
    return torch.baddbmm(torch.add(a * x_KMN, b_KMN, alpha=b), a_KMM, b_KMN, alpha=c)


def polynomial(x_KMN: Tensor, coefficients: Coefficients) -> Tensor:
    """X <- aX + BX with B = bA + cA^2.

    The same polynomial with one wide product fewer (record 11 on).
    """
    a, b, c = coefficients
    a_KMM = torch.bmm(x_KMN, x_KMN.mT)
    b_KMM = torch.baddbmm(a_KMM, a_KMM, a_KMM, beta=b, alpha=c)
    return torch.baddbmm(x_KMN, b_KMM, x_KMN, beta=a)


FORMS: dict[str, Callable[[Tensor, Coefficients], Tensor]] = {
    "products": products,
    "polynomial": polynomial,
}


def coefficients_of(backend: str, steps: int) -> tuple[Coefficients, ...]:
    """Those of every step of an iteration; polar_express has five steps of its own."""
    return POLAR_EXPRESS if backend == "polar_express" else (COEFFICIENTS,) * steps


def result_dtype(norm: str, dtype: torch.dtype) -> torch.dtype:
    """What `orthogonalize` returns: fp32 under the fp32 norm, else the compute dtype."""
    return torch.float32 if norm == "fp32" else dtype


def orthogonalize(
    u: Tensor,
    *,
    backend: str = "newton_schulz",
    steps: int = 5,
    form: str = "products",
    norm: str = "fp32",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """U V^T of every matrix in u, (K, M, N) or (M, N), contiguous, in `result_dtype(norm, dtype)`.

    steps: of the iteration. form: how a step is written, "products" or "polynomial".
    backend: "newton_schulz" (singular values end in about 0.7 to 1.2), "polar_express" (0.87 to
    1.14, whatever `steps` says in five) or "svd" (exact, in fp32).
    dtype: of the iteration; bfloat16 in the records, float32 makes every cast a no-op.
    A zero matrix gives zeros under an iteration and some orthogonal matrix under svd, never NaN.
    """
    if u.ndim == 2:
        return orthogonalize(
            u[None], backend=backend, steps=steps, form=form, norm=norm, dtype=dtype
        )[0]
    if backend == "svd":
        left_KMR, _, right_KRN = torch.linalg.svd(u.float(), full_matrices=False)
        return torch.bmm(left_KMR, right_KRN).to(result_dtype(norm, dtype))
    x_KMN = wide(NORMS[norm](u, dtype, *STARTS[backend]))
    for coefficients in coefficients_of(backend, steps):
        x_KMN = FORMS[form](x_KMN, coefficients)
    if u.size(-2) > u.size(-1):
        x_KMN = x_KMN.mT.contiguous()
    return x_KMN.to(result_dtype(norm, dtype))
