"""Whatever Python two scripts hold: both are made again exactly, and every arm compiles."""

import pytest

from harness.errors import UserError
from harness.split.arms import alone, atoms_on, measured, mended, without
from harness.split.check import Checker
from harness.split.groups import take_apart
from harness.split.source import decoded

ARGUMENTS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--{0}')\n{0} = p.parse_args().{0}\nf({0})\n"
HANDLER = "{0} = 1\ntry:\n    a({0})\nexcept E as {0}:\n    b({0})\n"
CAPTURE = "{0} = 1\nmatch x:\n    case [a, *{0}]:\n        f({0}, a)\n"
PAIRS = {
    "two mappings in one": ("x = {**a}\n", "x = {**a, **b}\n"),
    "a key twice": ("x = {1: a, 2: b}\n", "x = {1: a, 2: b, 1: c}\n"),
    "patterns": (
        "match x:\n    case {'a': 1, 'b': 2}:\n        y()\n    case A(b=1, c=2):\n        z()\n",
        "match x:\n    case {'a': 1, 'c': 2, 'd': z.q}:\n        y()\n    case A(b=1, d=3):\n        z()\n",
    ),
    "a parameter that moves": (
        "def f(a, *, b, c=1, **k):\n    pass\n",
        "def f(a, /, d, *args, c, b=2):\n    pass\n",
    ),
    "defaults": ("def f(a, b, c):\n    return a\n", "def f(a, b=1, c=2):\n    return a\n"),
    "globals": (
        "def f():\n    global a, b\n    a = 1\n",
        "def f():\n    global c, d, e\n    a = 2\n",
    ),
    "handlers": (
        "try:\n    a()\nexcept E as e:\n    b(e)\n",
        "try:\n    a()\nexcept (E, F) as err:\n    b(err)\nexcept G:\n    c()\nfinally:\n    f()\n",
    ),
    "asynchronous": (
        "async def f():\n    async for x in y:\n        await x\n",
        "def f():\n    with a as b, c as d:\n        return [q for q in d]\n",
    ),
    "decorators, walruses, texts": (
        "@a\n@b(1)\ndef f():\n    if (n := f(1)) > 2:\n        return f'{n!r:>{w}}'\n",
        "@b(2)\n@c\n@a\ndef f():\n    if (m := f(1, 2)) > 3:\n        return f'{m:>{w}} {c}'\n",
    ),
    "quoted texts over several lines": (
        '"""Old\nx = 1\n"""\nx = 1\n\ndef f():\n    """a\nb"""\n    return 1\n',
        '"""New\n"""\nimport b\n\ndef f():\n    """a\nc"""\n    return b.c\n\nclass A:\n    pass\n',
    ),
    "deleted": ("del a\n", "del b, c\n"),
    "nothing": ("", "x = 1\nimport a\n"),
    "a renamed exception": (HANDLER.format("e"), HANDLER.format("err")),
    "a renamed capture": (CAPTURE.format("q"), CAPTURE.format("r")),
    "a renamed argument": (ARGUMENTS.format("lr"), ARGUMENTS.format("rate")),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turn", [1, -1])
def test_both_scripts_are_made_again_and_every_arm_compiles(pair: str, turn: int) -> None:
    old, new = (decoded(text.encode(), pair) for text in PAIRS[pair][::turn])
    parts = mended(take_apart(old, new), Checker(old, new))
    whole, groups = parts.difference, parts.groups
    assert (whole.text(()), whole.text(range(whole.n_atoms))) == (old, new)
    choices = [[]]
    for group in measured(groups):
        choices += [alone(groups, group.name), without(groups, group.name)]
    for chosen in choices:
        compile(whole.text(atoms_on(groups, chosen)), pair, "exec", dont_inherit=True)


def test_a_default_never_goes_to_another_parameter() -> None:
    old, new = PAIRS["defaults"]
    whole = take_apart(old, new).difference
    with pytest.raises(SyntaxError):
        compile(whole.text({0}), "b=1 before c", "exec")
    assert "def f(a, b, c=2)" in whole.text({1})


@pytest.mark.parametrize("pair", ["a renamed exception", "a renamed capture", "a renamed argument"])
def test_a_name_that_stands_where_names_are_not_exchanged_keeps_it(pair: str) -> None:
    """Else the baseline, where renames are on, would ask for a name that nothing gives."""
    old, new = PAIRS[pair]
    assert take_apart(*(decoded(t.encode(), pair) for t in (old, new))).difference.renames == {}


def test_scripts_that_are_nested_too_deeply_get_a_line() -> None:
    chain = "if a == 0:\n    f(0)\n" + "".join(f"elif a == {n}:\n    f({n})\n" for n in range(280))
    texts = [decoded(text.encode(), "script") for text in (chain, chain + "g()\nh()\n")]
    with pytest.raises(UserError, match="nested too deeply"):
        take_apart(*texts)
