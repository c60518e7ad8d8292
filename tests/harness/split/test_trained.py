"""What lets an arm take a step beyond its names and calls: gradients, optimizers, loops in parts."""

from harness.split.check import Checker
from tests.harness.split.test_flow import apart, group_of, needs

NET = """\
class Net(Module):
    def __init__(self):
        self.blocks = Modules([Block() for _ in range(4)])
    def forward(self, x):
        for block in self.blocks:
            x, v = block(x, v, x0)
            tell(x, v)
            look(x, v)
        return x

net = Net()
optimizer = Muon(net.parameters(), lr=0.02)
optimizers = [optimizer]
"""
SKIPPING = """\
class Net(Module):
    def __init__(self):
        self.blocks = Modules([Block() for _ in range(4)])
        self.half = 2
        self.skips = Parameter(ones(self.half))
    def forward(self, x):
        kept = []
        for i in range(self.half):
            x, v = self.blocks[i](x, v, x0)
            tell(x, v)
            look(x, v)
            kept.append(x)
        for i in range(self.half):
            weighted = self.skips[i] * kept.pop()
            x, v = self.blocks[self.half + i](x + weighted, v, x0)
        return x

net = Net()
matrices = [p for p in net.parameters() if p.ndim == 2]
optimizer = Muon(matrices, lr=0.02)
optimizers = [optimizer, Adam([net.skips])]
"""


def test_a_loop_over_a_part_goes_with_the_loop_over_the_rest() -> None:
    """One of them alone would leave layers without gradients, or go through them twice."""
    parts = apart(NET, SKIPPING)
    changed = "self.blocks → range(self.half)"
    rest = "added: for i in range(self.half):"
    assert group_of(parts, changed) == group_of(parts, rest)


def test_a_parameter_needs_the_optimizer_that_no_longer_takes_all_of_them() -> None:
    parts = apart(NET, SKIPPING)
    assert needs(parts, "self.skips = Parameter", "net.parameters() → matrices")
    assert not needs(parts, "net.parameters() → matrices", "self.skips = Parameter")
    parts = apart(NET, SKIPPING.replace("Muon(", "NorMuon("))  # that takes the choice
    choice = "Muon(net.parameters(), lr=0.02) → NorMuon(matrices, lr=0.02)"
    assert needs(parts, "self.skips = Parameter", choice)
    assert not needs(parts, choice, "self.skips = Parameter")


def test_a_new_parameter_needs_no_optimizer_that_takes_any_or_that_never_took_it() -> None:
    """Those of torch take every shape; those of `blocks` are none of the class that has blocks."""
    new = "self.skips = Parameter"
    for before, after in (
        ("Muon(net.parameters()", "torch.optim.Adam(net.parameters()"),
        ("Muon(net.parameters()", "Muon(net.blocks.parameters()"),
    ):
        old = NET.replace(before, after)
        choice = f"{after[after.index('net') :]} → matrices"
        parts = apart(old, SKIPPING.replace("Muon(", after[: after.index("(") + 1]))
        assert group_of(parts, choice) and not needs(parts, new, choice)


def test_an_optimizer_of_a_parameter_needs_the_line_that_uses_it() -> None:
    """Not only the line that makes it: what is used nowhere has no gradient."""
    parts = apart(NET, SKIPPING)
    assert needs(parts, "added: Adam([net.skips])", "added: for i in range(self.half):")


def test_a_name_that_a_function_gives_is_not_looked_up_outside() -> None:
    """There it is another one, which the script gives much later."""
    end = "for i in range(9):\n    train(i)\n"
    parts = apart(NET + end, SKIPPING + end)
    assert needs(parts, "block(x, v, x0) → self.blocks[i](x, v, x0)", "block → i")
    lacks = (
        "def f(xs):\n    for x in xs:\n        g(xs[i])\n    for i in xs:\n        g(i)\n\ni = 1\n"
    )
    checker = Checker("i = 1\n", "i = 2\n")
    assert "the name 'i' is asked for before 'f' gives it" in checker.problems(lacks)


def test_what_a_call_gives_goes_with_the_only_line_that_takes_it() -> None:
    parts = apart(
        "def f(x):\n    x = x + g(x)\n    return x\n",
        "def f(x):\n    x = 2 * x\n    y, z = g(x)\n    log_z(z)\n    x = x + y\n    return x\n",
    )
    assert group_of(parts, "added: y, z = g(x)") == group_of(parts, "added: x = x + y")


def test_two_lines_of_one_formula_that_is_written_anew_are_one_group() -> None:
    parts = apart(
        "def f(A, X):\n    B = A @ X\n    X = a * X + b * B + c * A @ B\n    return X\n",
        "def f(A, X):\n    B = b * A + c * A @ A\n    X = a * X + B @ X\n    return X\n",
    )
    assert len(parts.groups) == 1
    parts = apart(
        "def f(X):\n    rate = 0.1\n    X = g(X) * rate\n    return X\n",
        "def f(X):\n    rate = 0.2\n    X = h(X) / rate\n    return X\n",
    )
    assert len(parts.groups) == 2  # a number is a change of its own


def test_an_entry_goes_with_the_lines_that_ask_for_it() -> None:
    old = (
        "def step(p):\n    state = of(p)\n    if 'buffer' not in state:\n"
        "        state['buffer'] = zeros(p)\n    add(state['buffer'], p)\n"
    )
    new = "def step(p):\n    state = of(p)\n    update(p)\n"
    parts = apart(old, new)
    asked = group_of(parts, "removed: add(state['buffer'], p)")
    assert needs(parts, "removed: if 'buffer' not in state:", "removed: add(state['buffer'], p)")
    assert asked in {group.name for group in parts.groups}


def test_a_pop_in_place_of_another_goes_with_it() -> None:
    old = "def f(x, xs):\n    x = x + g(xs.pop())\n    return h(x)\n"
    new = (
        "def f(x, xs):\n    y = xs.pop()\n    log(y)\n    k(y)\n    x = x + g(1)\n    return h(x)\n"
    )
    parts = apart(old, new)
    assert needs(parts, "added: y = xs.pop()", "xs.pop() → 1")
    assert needs(parts, "xs.pop() → 1", "added: y = xs.pop()")


def test_what_is_none_at_first_needs_the_line_that_gives_it() -> None:
    old = "class A:\n    def __init__(self):\n        self.k = 1\n    def f(self, x):\n        return x * self.k\n"
    new = old.replace("= 1", "= None").replace(
        "        return", "        self.k = g(x)\n        return"
    )
    parts = apart(old, new)
    assert needs(parts, "1 → None", "added: self.k = g(x)")
    assert not needs(parts, "added: self.k = g(x)", "1 → None")


def test_arguments_in_place_of_others_keep_their_number() -> None:
    parts = apart("x = 1\ny = f(x.a, x.b)\n", "x = 1\ny = f(3 * x, g(4))\n")
    assert {atom.what for atom in parts.atoms} == {"x.a → 3 * x", "x.b → g(4)"}
    parts = apart("x = 1\ny = f(x.a, x.b)\n", "x = 1\ny = f(3 * x)\n")
    assert len(parts.atoms) == 1


def test_an_attribute_of_self_is_its_classs_own_where_that_gives_it() -> None:
    """Another class's attribute of the same name is no answer."""
    other = "class Config:\n    width = 3\n\n"
    old = other + (
        "class A:\n    def __init__(self, c):\n        self.width = c.width\n"
        "    def f(self, x):\n        return x * self.width\n"
    )
    new = other + "class A:\n    def f(self, x):\n        return x * 4\n"
    parts = apart(old, new)
    assert needs(parts, "removed: def __init__", "removed: return x * self.width")
    checker = Checker(old, new)
    lacking = old.replace("        self.width = c.width\n", "        pass\n")
    assert checker.problems(lacking) == ["class 'A' does not give its attribute 'width'"]
    assert checker.problems(new) == checker.problems(old) == []


def test_what_another_object_gives_is_not_what_the_line_itself_puts() -> None:
    """`self.cap = config.cap` needs the configuration's field."""
    old = "class Config:\n    width = 3\n\nclass A:\n    def __init__(self, c):\n        self.w = c.width\n"
    new = old.replace("width = 3", "width = 3\n    cap = 30") + "        self.cap = c.cap\n"
    parts = apart(old, new)
    assert needs(parts, "added: self.cap = c.cap", "added: cap = 30")
