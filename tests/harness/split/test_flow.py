"""What stands in the order of the text and in what is called goes together: names, loops, values given back."""

import warnings

import pytest

from harness.split.arms import measured
from harness.split.check import Checker, pieces_of
from harness.split.groups import Parts, take_apart
from harness.split.source import normal


def apart(old: str, new: str) -> Parts:
    return take_apart(normal(old, where="OLD"), normal(new, where="NEW"))


def group_of(parts: Parts, words: str) -> str:
    """The group with the atom that says these words."""
    [name] = {
        group.name for group in parts.groups for n in group.atoms if words in parts.atoms[n].what
    }
    return name


def needs(parts: Parts, words: str, others: str) -> bool:
    """Whether the one atom is never on without the other."""
    name, other = group_of(parts, words), group_of(parts, others)
    by_name = {group.name: group for group in parts.groups}
    return name == other or other in by_name[name].needs


NET = """\
class Attention:
    def forward(self, x):
        y = self.c(x)
        return y

class Block:
    def __init__(self):
        self.attention = Attention()
    def forward(self, x):
        x = x + self.attention(x)
        return x

class Net:
    def __init__(self):
        self.layers = Modules(dict(blocks=[Block() for _ in range(3)]))
    def forward(self, x):
        for block in self.layers.blocks:
            x = block(x)
        return f(x)
"""


def test_how_many_values_are_given_back_goes_with_what_takes_them() -> None:
    """Also where the call is of what a loop goes over, and a statement is another one."""
    new = (
        NET.replace("return y", "return y, v")
        .replace("y = self.c(x)", "y = self.c(x)\n        v = self.v(x)")
        .replace("x = x + self.attention(x)", "z, v = self.attention(x)\n        x = x + z")
        .replace("return x\n", "return x, v\n", 1)
        .replace("x = block(x)", "x, v = block(x)")
    )
    parts = apart(NET, new)
    assert needs(parts, "return (y, v)", "z, v = self.attention(x)")
    assert needs(parts, "z, v = self.attention(x)", "return (y, v)")
    assert needs(parts, "return (y, v)", "removed: return y")
    assert needs(parts, "return (x, v)", "x, v = block(x)")
    assert needs(parts, "x, v = block(x)", "return (x, v)")


def test_a_parameter_of_what_a_loop_goes_over_goes_with_the_call() -> None:
    new = NET.replace("class Block:", "class Block:\n    k = 1").replace(
        "def forward(self, x):\n        x = x +", "def forward(self, x, x0):\n        x = x0 + x +"
    )
    parts = apart(NET, new.replace("x = block(x)", "x = block(x, 2)"))
    assert needs(parts, "added: x0", "added: 2")
    assert needs(parts, "added: 2", "added: x0")


def test_returns_of_as_many_values_stay_apart() -> None:
    new = NET.replace("return y", "return y * 2").replace(
        "x = x + self.attention(x)", "x = x - self.attention(x)"
    )
    parts = apart(NET, new)
    assert not needs(parts, "y * 2", "Add → Sub") and not needs(parts, "Add → Sub", "y * 2")


def test_a_loop_with_another_variable_goes_over_something_else() -> None:
    parts = apart(
        "for block in blocks:\n    x = f(x)\n    y = g(block)\n",
        "for i in range(3):\n    x = f(x)\n    y = g(blocks[i])\n",
    )
    assert len({group_of(parts, w) for w in ("block → i", "blocks → range(3)")}) == 1


def test_what_is_given_later_in_a_function_is_no_answer() -> None:
    parts = apart(
        "def f(x):\n    v = g(x)\n    return v\n",
        "def f(x, w):\n    if w is None:\n        w = g(x)\n    u = x\n    v = g(u)\n    return v\n",
    )
    assert needs(parts, "if w is None:", "added: w")


def test_the_static_check_sees_a_name_that_is_asked_for_too_early() -> None:
    old, new = "def f(x):\n    return x\n", "def f(x):\n    y = x\n    z = y\n    return z\n"
    checker = Checker(old, new)
    assert checker.problems(new) == []
    [said] = checker.problems("def f(x):\n    z = y\n    y = x\n    return z\n")
    assert said == "the name 'y' is asked for before 'f' gives it"
    assert checker.problems("def f(x):\n    y = x\n    y = g(y)\n    return y\n") != []


def test_a_value_is_asked_for_before_it_is_put_anywhere() -> None:
    checker = Checker("", "def f():\n    return 1\n")
    assert checker.problems("def f():\n    y = y + 1\n") == [
        "the name 'y' is asked for before 'f' gives it"
    ]
    assert checker.problems("for y in y:\n    pass\n") != []
    assert checker.problems("def f(y):\n    y = y + 1\n    y += 1\n") == []
    assert checker.problems("def f():\n    def g():\n        return y\n    y = 1\n    g()\n") == []


def test_a_value_that_old_lines_read_too_is_a_group_of_its_own() -> None:
    """The line that reads it has another form as well: that is another change."""
    parts = apart(
        "def f(x, b=0):\n    x = g(x)\n    return a + h(x, 1) * 2\n",
        "def f(x, b=0):\n    x = g(x)\n    x = norm(x)\n    return a + h(x, 1, b) * 3\n",
    )
    assert not needs(parts, "x = norm(x)", "h(x, 1, b)")
    assert not needs(parts, "h(x, 1, b)", "x = norm(x)")
    assert {group.kind for group in parts.groups} == {"learning"}


def test_a_definition_that_is_changed_and_moved_is_one_group() -> None:
    """Of two of one name the later counts: the new one alone, or without it, would do nothing."""
    old = "def rate(s):\n    return 0.1 * s\n"
    new = "def rate(s):\n    return max(floor, 0.2 * s ** 2)\n"
    others = "def f(x):\n    return g(x, 1)\n\ndef h(x):\n    return x * x * x - 1\n"
    longer = others.replace("- 1", "- 2")  # what changed and is longer stays, the rest moved
    for before, after in ((others + old, new + longer), (old + others, longer + new)):
        parts = apart(before + "rate(1)\n", after + "rate(1)\n")
        assert group_of(parts, "added: def rate") == group_of(parts, "removed: def rate")


@pytest.mark.parametrize(
    ("given", "call", "added", "is_one"),
    [
        ("s, floor", "rate(1, 2)", "added: 2", True),  # one more that every call gives
        ("*, s", "rate(s=1)", "added: s=1", True),  # the same, given otherwise
        ("s, floor=0", "rate(1, floor=2)", "added: floor=2", False),  # calls may go on as they did
        ("s", "rate(2)", "1 → 2", None),
    ],
)
def test_a_call_goes_with_a_definition_that_was_replaced_as_a_whole(
    given: str, call: str, added: str, is_one: bool | None
) -> None:
    """None: neither asks for the other."""
    old = "def rate(s):\n    return 0.1 * s\n"
    new = f"def rate({given}):\n    return max(low, 0.2 * s ** 2)\n"
    others = "def f(x):\n    return g(x, 1)\n\ndef h(x):\n    return x * x * x - 1\n"
    longer = others.replace("- 1", "- 3")  # what changed and is longer stays, the rest moved
    for before, after in ((others + old, new + longer), (old + others, longer + new)):
        parts = apart(f"{before}rate(1)\n", f"{after}{call}\n")
        assert needs(parts, added, "added: def rate") == (is_one is not None)
        assert needs(parts, "added: def rate", added) == bool(is_one)


@pytest.mark.parametrize(
    ("old", "new", "before", "after", "gone"),
    [
        ("s):\n    return 1", "s):\n    return max(s, 1), 2", "y = c(1)", "y, z = c(1)", "→ y, z"),
        ("s, k):\n    return k", "s):\n    return max(s, 1)", "c(1, k=2)", "c(1)", "removed: k=2"),
    ],
    ids=["more values", "a parameter less"],
)
def test_what_a_definition_replaced_as_a_whole_gives_and_asks_no_longer_is_seen(
    old: str, new: str, before: str, after: str, gone: str
) -> None:
    others = "def f(x):\n    return g(x, 1)\n\ndef h(x):\n    return x * x * x - 1\n"
    longer = others.replace("- 1", "- 3")
    parts = apart(f"{others}def c({old}\n{before}\n", f"def c({new}\n{longer}{after}\n")
    assert needs(parts, gone, "added: def c") and needs(parts, "added: def c", gone)


def test_what_is_moved_past_changed_definitions_leaves_them_in_their_place() -> None:
    """The shortest account of the text would move the two that changed, each as a whole."""
    moved = "def f(x):\n    return g(x, 1)\n\n"
    kept = "class A:\n    n = 1\n    m = 2\n\ndef h(x):\n    return x - 1\n\n"
    changed = kept.replace("n = 1", "n = 3").replace("- 1", "- 5")
    for before, after in ((moved + kept, changed + moved), (kept + moved, moved + changed)):
        parts = apart(f"{before}h(f(A.n))\n", f"{after}h(f(A.n))\n")
        said = {group.about for group in measured(parts.groups)}
        assert said == {"A.n: 1 → 3", "h: 1 → 5"}


def test_a_class_and_what_is_made_of_it_are_renamed_at_once_and_in_a_definition_that_moves() -> (
    None
):
    use = "def f(x):\n    return x * args.n\n\n"
    others = "def h(x):\n    return x - 1 + args.m + args.k\n\n"
    old = f"class Args:\n    n = 1\n    m = 2\n    k = 3\n\nargs = Args()\n\n{use}{others}h(f(args.n))\n"
    new = old.replace(use + others, others.replace("- 1", "- 5") + use).replace("n = 1", "n = 7")
    new = new.replace("Args", "Config").replace("args", "cfg")
    parts = apart(old, new)
    said = {group.about for group in measured(parts.groups)}
    assert said == {"Config.n: 1 → 7", "h: 1 → 5"}


def test_a_script_that_no_python_compiles_is_checked_by_its_names_alone() -> None:
    """A part of a notebook, say: what is no program in OLD is none in its arms either."""
    old, new = "x = 1\nawait f(x)\n", "x = 2\nawait f(x)\ny = x\n"
    checker = Checker(old, new)
    assert checker.problems("x = 2\nawait f(x)\n") == []
    assert checker.problems("await f(y)\n") == ["the name 'y' is given nowhere"]
    said = Checker("x = 1\n", "x = 2\n").problems("x = 2\nreturn x\n")
    assert said == ["line 2: 'return' outside function"]


def test_what_python_warns_of_is_nothing_that_a_variant_lacks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker = Checker("x = 1\n", "x = 2\n")
        assert checker.problems("x = 2\nassert (x, 'an assertion that always holds')\n") == []


def test_a_variant_is_checked_statement_by_statement_and_a_text_in_quotes_as_a_whole() -> None:
    block = "if a:\n    b\nelif c:\n    d\nelse:\n    e\n"
    caught = (
        "\ntry:\n    f()\nexcept A:\n    g()\nexcept:\n    h()\nelse:\n    i()\nfinally:\n    j()\n"
    )
    defined = "@k\n@l(1)\nasync def m():\n\n    def n():\n        pass\n"
    statements = [block[:-1] + caught[:1], caught[1:-1] + "\n", defined, "o = 1\n"]
    assert pieces_of("".join(statements)) == statements
    text = '"""a\nx = 1\n"""\n' + "o = 1\n"
    assert pieces_of(text) == [text[:-6], "o = 1\n"]
    future = "from __future__ import annotations\n"
    late = Checker("import a\nx = 1\n", future + "x = 2\n").problems("import a\n" + future)
    assert late == ["line 2: from __future__ imports must occur at the beginning of the file"]
    quoted = 'def f():\n    """a\nreturn x\n    """\n'
    checker = Checker(quoted, quoted + "x = 1\n")
    assert checker.problems(quoted + "x = 2\n") == []
    assert checker.problems(quoted + "x = y\n") == ["the name 'y' is given nowhere"]
    assert checker.problems(quoted + "return x\n") == ["line 5: 'return' outside function"]


@pytest.mark.parametrize(
    ("line", "is_asked"),
    [
        ("class A(B, metaclass=k):\n    pass", True),
        ("class A(k):\n    pass", True),
        ("@k\nclass A:\n    pass", True),
        ("@k\ndef f():\n    return 1", True),
        ("def f(x=k):\n    return 1", True),
        ("def f(x: k):\n    return 1", True),
        ("def f() -> k:\n    return 1", True),
        ("def f():\n    return k", True),
        ("for i in r:\n    a(1)\nelse:\n    b(k)", True),
        ("for i in k:\n    a(1)", True),
        ("for i in r:\n    k.a(1)", True),
        ("while k:\n    a(1)", True),
        ("with k as o:\n    a(o)", True),
        ("try:\n    c(1)\nexcept k:\n    d(2)", True),
        ("try:\n    c(1)\nexcept E as e:\n    d(k)", True),
        ("try:\n    c(1)\nfinally:\n    d(k)", True),
        ("m({k: 1 for q in r})", True),
        ("m({1: k for q in r})", True),
        ("m([q for q in k])", True),
        ("m([q for q in r if q > k])", True),
        ("m(lambda z=k: 1)", True),
        ("m(lambda z: k)", True),
        ("m((z := k))", True),
        ("m(*k)", True),
        ("m(**k)", True),
        ("m(n=k)", True),
        ("m(f'{k}')", True),
        ("m(k[1:2])", True),
        ("m(z[k:])", True),
        ("k.n += 1", True),
        ("k += 1", True),
        ("s[k] += 1", True),
        ("t.n += k", True),
        ("k.p = 1", True),
        ("v[k] = 1", True),
        ("w: k = 1", True),
        ("w: int = k", True),
        ("m(s.k)", False),
        ("m(k=1)", False),
        ("m('k')", False),
        ("m(s['k'])", False),
        ("m([k for k in r])", False),
        ("m(lambda k: k)", False),
        ("def f(k):\n    return k", False),
        ("def f():\n    k = 1\n    return k", False),
    ],
)
def test_a_line_needs_the_name_that_it_asks_for_wherever_that_stands(
    line: str, is_asked: bool
) -> None:
    parts = apart("run(1)\n", f"k = make(3)\nrun(1)\n{line}\n")
    assert ((1, 0) in parts.edges) == is_asked
