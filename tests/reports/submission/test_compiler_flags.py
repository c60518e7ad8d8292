"""Flags of the compiler, however a script sets them."""

import pytest

from reports.submission.compiler_flags import compiler_flags, compiler_variables

IMPORTS = (
    "import os\nimport torch\nimport torch._inductor.config as config\nfrom os import environ\n"
)
CONFIG = "torch._inductor.config"
WAYS = [
    ('os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"', ["TORCHINDUCTOR_MAX_AUTOTUNE=1"]),
    ('environ["TORCH_COMPILE_DEBUG"] = str(1)', ["TORCH_COMPILE_DEBUG=str(1)"]),
    ('os.environ.setdefault("TORCHINDUCTOR_X", "1")', ["TORCHINDUCTOR_X=1"]),
    ('os.putenv("TORCHINDUCTOR_X", "1")', ["TORCHINDUCTOR_X=1"]),
    (
        'os.environ.update({"TORCHINDUCTOR_X": "1", "A": "2"}, TORCHDYNAMO_Y="3")',
        ["TORCHDYNAMO_Y=3", "TORCHINDUCTOR_X=1"],
    ),
    ('os.environ |= {"TORCHINDUCTOR_X": "1"}', ["TORCHINDUCTOR_X=1"]),
    ('os.environ["TORCHINDUCTOR_CACHE_DIR"] = "x"', []),
    ('os.environ["OTHER"] = os.environ.get("TORCHINDUCTOR_X", "1")', []),
    ("config.patch(max_autotune=True)", [f"{CONFIG}.patch(max_autotune=True)"]),
    ("with config.patch(settings): pass", [f"{CONFIG}.patch(settings)"]),
    ('@config.patch("a", 1)\ndef f(): pass', [f"{CONFIG}.patch('a', 1)"]),
    ('setattr(config, "a", 1)', [f"setattr({CONFIG}, 'a', 1)"]),
    ("setattr(**kw)", []),
    ("config.a, config.b = 1, 2", [f"{CONFIG}.a = (1, 2)", f"{CONFIG}.b = (1, 2)"]),
    ("print(config.a)", []),
    ("torch.compile(f, **kw)", ["torch.compile(**kw)"]),
    ('torch.compile(f, mode="x", **kw)', ["torch.compile(**kw)", "torch.compile(mode='x')"]),
    ('flags["TORCHINDUCTOR_X"] = "1"', []),
    ('variables["TORCHINDUCTOR_X"] = "1"', []),
]


@pytest.mark.parametrize(("line", "flags"), WAYS, ids=[line for line, _ in WAYS])
def test_a_flag_is_seen_with_its_place_however_it_is_set(line: str, flags: list[str]) -> None:
    found = compiler_flags({"a.py": IMPORTS + line})
    assert sorted(found) == flags
    assert set(found.values()) <= {"a.py:5"}


def test_variables_are_flags_with_their_values() -> None:
    given = {"TORCHINDUCTOR_X": "1", "TORCHINDUCTOR_CACHE_DIR": "x", "OMP_NUM_THREADS": "1"}
    assert compiler_variables(given) == {"TORCHINDUCTOR_X=1"}
