"""Whatever Python two scripts hold: both are made again exactly, and every arm compiles."""

import ast
from collections.abc import Callable

import pytest

from harness.errors import UserError
from harness.split.align import Aligner
from harness.split.arms import alone, atoms_on, measured, mended, without
from harness.split.atoms import atoms_of
from harness.split.check import Checker
from harness.split.diff import difference
from harness.split.groups import take_apart
from harness.split.source import decoded

ARGUMENTS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--{0}')\n{0} = p.parse_args().{0}\nf({0})\n"
HANDLER = "{0} = 1\ntry:\n    a({0})\nexcept E as {0}:\n    b({0})\n"
CAPTURE = "{0} = 1\nmatch x:\n    case [a, *{0}]:\n        f({0}, a)\n"
IMPORT = "import fast as {0}\n{0} = wrap({0})\nuse({0})\n"
GLOBAL = "def f():\n    global {0}\n    {0} = 1\n\nf()\nuse({0})\n"
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
    "a renamed import": (IMPORT.format("q"), IMPORT.format("r")),
    "a renamed global": (GLOBAL.format("q"), GLOBAL.format("r")),
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


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.startswith("a renamed ")])
def test_a_name_that_stands_where_names_are_not_exchanged_keeps_it(pair: str) -> None:
    """Else the baseline, where renames are on, would ask for a name that nothing gives."""
    old, new = PAIRS[pair]
    assert take_apart(*(decoded(t.encode(), pair) for t in (old, new))).difference.renames == {}


def test_scripts_that_are_nested_too_deeply_get_a_line(kept_line: Callable[[str], None]) -> None:
    chain = "if a == 0:\n    f(0)\n" + "".join(f"elif a == {n}:\n    f({n})\n" for n in range(280))
    texts = [decoded(text.encode(), "script") for text in (chain, chain + "g()\nh()\n")]
    with pytest.raises(UserError, match="nested too deeply") as error:
        take_apart(*texts)
    kept_line(str(error.value))


@pytest.mark.parametrize(
    ("old", "new", "alike", "by_name"),
    [
        ("f(a, b)", "f(a, b)", 1, 1),
        ("f(a, b)", "f(c, d)", 4 / 8, 4 / 8),  # words that both have, of all
        ("f(a, b)", "g(c, d)", 0, 0),
        ("x = f(a)", "x = g(b, c, 1)", 0.9, 0.9),
        ("x = f(a)", "x = f(a) + 0", 0.9, 0.9),
        ("if a:\n    b()", "if a:\n    quite(another, 1)", 0.9, 0.9),
        ("for x in a:\n    b()", "for x in c:\n    d(1, 2)", 0.9, 0.9),
        ("abc = d(e)", "f = g(h)", 0.5, 0),
        ("abc = d(e)", "f = g(h, i)", 0, 0),
        ("def f(x):\n    return x", "def f(y, z):\n    print(2)", 1, 1),
        ("def f(x):\n    return x", "def g(x):\n    return x", 7 / 9, 0),
        ("def f(x):\n    return x", "def g(x):\n    return y", 0, 0),  # six words of ten
        ("x = 1", "x += 1", 0, 0),
    ],
)
def test_pieces_are_one_as_far_as_their_words_are(
    old: str, new: str, alike: float, by_name: float
) -> None:
    pieces = [ast.parse(text).body[0] for text in (old, new)]
    for any_name, expected in ((True, alike), (False, by_name)):
        assert Aligner(any_name=any_name).likeness(*pieces) == pytest.approx(expected)


def test_pieces_that_are_gone_are_taken_for_no_others() -> None:
    aligner = Aligner(any_name=False)
    for n in range(200):
        one, other = (ast.parse(f"f({n})").body[0] for _ in range(2))
        assert aligner.likeness(one, other) == 1


def test_of_lines_that_are_alike_the_first_goes_or_comes_however_long_the_script_is() -> None:
    for n in (160, 204):
        lines = [f"f{i}({i}, a)" if i % 4 == 0 else "tick(step)" for i in range(n)]
        changed = [*lines[:42], *lines[43:100], "tick(step)", *lines[100:]]
        whole = difference(*("\n".join(some) + "\n" for some in (lines, changed)))
        touched = [(sorted(a.old_lines), sorted(a.new_lines)) for a in atoms_of(whole)]
        assert touched == [([42], []), ([], [97])]


@pytest.mark.parametrize(
    "around",
    [
        "{0}\n{1}\n",
        "def f():\n    {0}\n    {1}\n",
        "class A:\n\n    def f(self):\n        {0}\n        {1}\n",
        "if a:\n    z(1, 2, 3, 4, 5, 6)\nelse:\n    {0}\n    {1}\n",
        "try:\n    z(1, 2, 3, 4, 5, 6)\nexcept E:\n    {0}\n    {1}\n",
        "try:\n    z(1, 2, 3, 4, 5, 6)\nfinally:\n    {0}\n    {1}\n",
    ],
)
def test_a_line_in_place_of_another_stands_before_what_followed_that(around: str) -> None:
    old, new = ("b = quite(1)", "c = other(2)"), ("b: int = 3", "c: int = 4")
    whole = take_apart(around.format(*old), around.format(*new)).difference
    assert whole.text({0}) == around.format(new[0], old[1])
    assert whole.text({1}) == around.format(old[0], new[1])
