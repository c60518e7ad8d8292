"""What whoever reads a program's output through a pipe has of it so far."""

import io
import sys
from collections.abc import Callable

import pytest


def piped(patch: pytest.MonkeyPatch) -> Callable[[], str]:
    """From now on output goes into a pipe; what came out of that by now."""
    pipe = io.BytesIO()
    patch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    return lambda: pipe.getvalue().decode()
