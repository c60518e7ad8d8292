"""python -m tests.split_cases: write tests/data/split_cases.txt again, what small pairs of scripts are taken apart into.

One group or atom a line, to be reviewed as a diff.
"""

from pathlib import Path

from harness.split.arms import mended
from harness.split.check import Checker
from harness.split.folder import Folder
from harness.split.groups import Parts, take_apart
from harness.split.inseparable import inseparable
from harness.split.shown import shown
from harness.split.source import normal
from tests.split_step_pairs import STEP_PAIRS

KEPT = Path(__file__).parent / "data" / "split_cases.txt"
NET = """\
class Block:
    def __init__(self, width):
        self.width = width

    def forward(self, x):
        return x * self.width


class Net:
    def __init__(self):
        self.blocks = [Block(2) for _ in range(3)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""


def of(text: str, *exchanges: tuple[str, str]) -> tuple[str, str]:
    """A script, and the same with texts exchanged, each of which it holds."""
    new = text
    for before, after in exchanges:
        assert before in new, before
        new = new.replace(before, after)
    return text, new


# what a pair is about -> OLD, NEW
PAIRS: dict[str, tuple[str, str]] = {
    "a statement between others": ("a(1)\nb(2)\n", "a(1)\nnew(3)\nb(2)\n"),
    "a statement less": ("a(1)\ngone(3)\nb(2)\n", "a(1)\nb(2)\n"),
    "statements that are alike are one, changed; the others are not": (
        "x = scale(w, 1) + bias(w)\ny = 3\nz = first(q)[0]\n",
        "x = scale(w, 2) + bias(w)\nk = other(1, 2, 3)\nz = first(q)[1]\n",
    ),
    "of several statements the most alike are paired": (
        "step(a, b, c)\nrest(1)\n",
        "step(a, d, e)\nstep(a, b, d)\nrest(1)\n",
    ),
    "pairs that are most alike in all are made, though another were more alike alone": (
        "f(a, b, 1)\nf(a, b, c, d)\n",
        "f(a, b, c, e)\nf(a, b)\n",
    ),
    "a pair is sought in order": (
        "f(a, 1)\ng(b, 1)\nh(c, 1)\n",
        "h(c, 2)\nf(a, 2)\ng(b, 2)\n",
    ),
    "a head that asks the same has another body": (
        "if step > 10:\n    a(1)\nwhile busy:\n    b()\n",
        "if step > 10:\n    quite(different, words)\nwhile busy:\n    c(2, 3)\n",
    ),
    "the same target with another value": ("x: int = 1\nx += f(y)\n", "x: int = 2\nx += g(z, 3)\n"),
    "two values for two": ("x = 1\ny = 2\n", "x = 3\ny = 4\n"),
    "a target is another": ("x = f(1)\nuse(x)\n", "x, y = f(1)\nuse(x)\n"),
    "one name put twice is one choice": (
        "x = 1\nuse(x)\n",
        "if big:\n    x = 2\nelse:\n    x = g(3)\nuse(x)\n",
    ),
    "arguments, keywords and entries": (
        "opt = Adam(ps, lr=0.1, betas=(0.9, 0.95), extra={'a': 1})\n",
        "opt = Adam(ps, lr=0.2, betas=(0.9, 0.99), eps=1e-8, extra={'a': 1, 'b': 2})\n",
    ),
    "another function is called": ("x = F.relu(y)\n", "x = F.gelu(y, tanh)\n"),
    "one expression with two changes is one": ("x = a + b * c\n", "x = a - b / c\n"),
    "a text with places in it is one": ("x = f'{a} of {b}'\n", "x = f'{a} in {c}'\n"),
    "a comparison with one more": ("x = a < b\n", "x = a < b < c\n"),
    "a decorator and a base": (
        "class A(B):\n    @cached\n    def f(self):\n        return 1\n",
        "class A(B, C):\n    @cached\n    @timed(2)\n    def f(self):\n        return 1\n",
    ),
    # ------------------------------------------------------------ names
    "a name and what asks for it": ("use(1)\n", "k = 3\nuse(1)\nother(k)\n"),
    "a name that two ask for": ("use(1)\n", "k = make(3)\nuse(1)\none(k)\ntwo(k)\n"),
    "a name that is changed before it is asked for": (
        "x = 1\nuse(x)\n",
        "x = 1\nx += more(2)\nuse(x)\n",
    ),
    "a name that is counted up": ("run(1)\n", "n = make(0)\nrun(1)\nn += 1\nrun(2)\ntell(n)\n"),
    "an attribute and what asks for it": (
        "class A:\n    def __init__(self):\n        self.a = 1\n\n    def f(self):\n        return self.a\n",
        "class A:\n    def __init__(self):\n        self.a = 1\n        self.b = 2\n\n"
        "    def f(self):\n        return self.a\n\n    def g(self):\n        return self.b\n",
    ),
    "an attribute that is added to": (
        "class A:\n    def f(self):\n        return 1\n",
        "class A:\n    def __init__(self):\n        self.n = 0\n\n    def f(self):\n        self.n += 1\n        return 1\n",
    ),
    "an attribute by a word in quotes": (
        "class A:\n    def __init__(self):\n        pass\n\n    def f(self):\n        return 1\n",
        "class A:\n    def __init__(self):\n        self.register_buffer('mask', tri(3))\n\n"
        "    def f(self):\n        return g(self.mask)\n",
    ),
    "a name of the class is an attribute": (
        "class A:\n    x = 1\n\ndef f(a):\n    return 1\n",
        "class A:\n    x = 1\n    rate = 3\n\ndef f(a):\n    return a.rate\n",
    ),
    "a global name": (
        "def f():\n    return 1\n\ndef g():\n    return 2\n",
        "def f():\n    global cache\n    cache = {}\n    return 1\n\ndef g():\n    return h(cache)\n",
    ),
    "a name of another function is no answer": (
        "def f():\n    return 1\n\ndef g(y):\n    return 2\n",
        "def f():\n    y = 3\n    return k(y)\n\ndef g(y):\n    return k(y)\n",
    ),
    "a name of an outer function is one": (
        "def f():\n    def g():\n        return 1\n    return g\n",
        "def f():\n    y = 3\n    def g():\n        return k(y)\n    return g\n",
    ),
    "comprehensions and lambdas keep their names": (
        "i = 1\nx = [f(i) for i in r]\nuse(i)\n",
        "i = 1\nx = [f(i) for i in r]\ny = {k: v for k, v in pairs}\nz = lambda q: q + 1\nuse(i, z)\n",
    ),
    "an exception and an import under a name": (
        "try:\n    f()\nexcept E:\n    g()\n",
        "import numpy as np\ntry:\n    f()\nexcept E as e:\n    g(np.a, e)\n",
    ),
    "a loop's variable goes with what it goes over": (
        "for p in ps:\n    step(p)\n",
        "for n, p in enumerate(ps):\n    step(p)\n    note(n)\n",
    ),
    "a comprehension's too": ("x = [f(p) for p in ps]\n", "x = [f(q) for q in qs]\n"),
    "a walrus gives its name": ("if f(1):\n    g()\n", "if (n := f(1)):\n    g()\n    h(n)\n"),
    # ------------------------------------------------------------ renames
    "a name is another everywhere": (
        "lr = 0.1\nuse(lr)\nmore(lr + 1)\n",
        "rate = 0.1\nuse(rate)\nmore(rate + 1)\n",
    ),
    "a function, its parameter and an attribute are": (
        "class A:\n    def go(self, x):\n        self.k = x\n\nA().go(x=1)\n",
        "class B:\n    def run(self, y):\n        self.m = y\n\nB().run(y=1)\n",
    ),
    "a name that is left somewhere is none": (
        "lr = 0.1\nuse(lr)\nmore(lr)\n",
        "lr = 0.1\nrate = 0.2\nuse(rate)\nmore(lr)\n",
    ),
    "a name that others give keeps it": ("use(torch.a)\nb(torch.c)\n", "use(jax.a)\nb(jax.c)\n"),
    # ------------------------------------------------------------ calls
    "a parameter with a default and the keyword": (
        "def f(x):\n    return x\n\ny = f(1)\n",
        "def f(x, k=2):\n    return x * k\n\ny = f(1, k=3)\n",
    ),
    "a keyword that must be given": (
        "def f(x):\n    return x\n\ny = f(1)\nz = f(2)\n",
        "def f(x, *, k):\n    return x\n\ny = f(1, k=3)\nz = f(2, k=4)\n",
    ),
    "a parameter that goes with its argument": (
        "def f(x, k):\n    return x\n\ny = f(1, 2)\n",
        "def f(x):\n    return x\n\ny = f(1)\n",
    ),
    "a parameter in front moves the places": (
        "def f(x):\n    return g(x)\n\ny = f(1)\n",
        "def f(w, x):\n    return g(x)\n\ny = f(0, 1)\n",
    ),
    "a function that takes any keyword": (
        "def f(x, **more):\n    return x\n\ny = f(1)\n",
        "def f(x, **more):\n    return x\n\ny = f(1, k=2)\n",
    ),
    "a call that is new needs the parameter": (
        "def f(x):\n    return x\n\nuse(1)\n",
        "def f(x, k):\n    return x\n\nuse(1)\nb = f(1, 2)\n",
    ),
    "a constructor and its argument": of(
        NET, ("width):", "width, depth):"), ("Block(2)", "Block(2, 5)")
    ),
    "a constructor of its own takes a keyword no longer": (
        "class A(Base):\n    n = 1\n\ny = A(1, k=2)\n",
        "class A(Base):\n    n = 1\n\n    def __init__(self, x):\n        super().__init__(x)\n\ny = A(1)\n",
    ),
    "what was inherited takes a keyword more": (
        "class A(Base):\n    n = 1\n\n    def __init__(self, x):\n        super().__init__(x)\n\ny = A(1)\n",
        "class A(Base):\n    n = 1\n\ny = A(1, k=2)\n",
    ),
    "what a loop goes over is called": of(
        NET, ("(self, x):\n        return x *", "(self, x, s):\n        return x *"), ("block(x)", "block(x, 1)")
    ),
    "a static method": (
        "class A:\n    @staticmethod\n    def norm(x):\n        return x\n\ny = A.norm(1)\n",
        "class A:\n    @staticmethod\n    def norm(x, eps):\n        return x\n\ny = A.norm(1, 2)\n",
    ),
    "a method that two classes have is nobody's": (
        "class A:\n    def go(self, x):\n        pass\n\nclass B:\n    def go(self, x):\n        pass\n\nq.go(1)\n",
        "class A:\n    def go(self, x, k):\n        pass\n\nclass B:\n    def go(self, x):\n        pass\n\nq.go(1, 2)\n",
    ),
    "how many values are given back": (
        "def f(x):\n    return x, 1\n\na, b = f(1)\n",
        "def f(x):\n    return x, 1, 2\n\na, b, c = f(1)\n",
    ),
    "parameters that cannot stand together": (
        "def f(a, b=1, *c):\n    return a\n",
        "def f(a, c, *d):\n    return a\n",
    ),
    # ------------------------------------------------------------ what else ties
    "one definition is there twice": (
        "def f(s):\n    return 0.1 * s\n\ndef f(s):\n    return 3\n\nuse(f)\n",
        "def f(s):\n    return 0.1 * s\n\nuse(f)\n",
    ),
    "an attribute that both add to": (
        "class A:\n    def f(self):\n        self.n = 1\n        self.n += 1\n",
        "class A:\n    def f(self):\n        self.m = 0\n        self.n = 1\n        self.n += 1\n        self.m += 1\n        self.xs[0] += 1\n",
    ),
    "a label in quotes": (
        "groups = [{'name': 'a'}]\nfor g in groups:\n    step(g)\n",
        "groups = [{'name': 'a'}, {'name': 'gate'}]\nfor g in groups:\n    if g['name'] == 'gate':\n        slow(g)\n    step(g)\n",
    ),
    "an entry that is put goes with what asks for it, though others have its label": (
        "note('k')\nuse(s)\n",
        "note('k')\ns['k'] = make(1)\nuse(s)\nmore(s['k'])\nother(t['k'])\n",
    ),
    "an entry that another function puts is no answer": (
        "note('k')\n\ndef f(s):\n    use(s)\n\ndef g(s):\n    other(s)\n",
        "note('k')\n\ndef f(s):\n    s['k'] = make(1)\n    use(s)\n\ndef g(s):\n    other(s)\n    more(s['k'])\n",
    ),
    "entries by numbers and by names are no labels": (
        "use(s)\n",
        "s[1] = make(1)\ns[a] = make(2)\nuse(s)\nmore(s[1])\nother(s[a])\n",
    ),
    "a label in eight places ties them": (
        "".join(f"f{n}(x)\n" for n in range(8)),
        "".join(f"f{n}(x, 'gate')\n" for n in range(8)),
    ),
    "a label in nine places is a word": (
        "".join(f"f{n}(x)\n" for n in range(9)),
        "".join(f"f{n}(x, 'gate')\n" for n in range(9)),
    ),
    "a label that both have ties nothing": (
        "a('gate')\nb(1)\nc(2)\n",
        "a('gate')\nb('gate')\nc('gate')\n",
    ),
    "words in quotes are no label": ("b(1)\nc(2)\n", "b('more words')\nc('more words')\n"),
    "the same exchange in a function": (
        "def run(x):\n    y = F.relu(x) + 1\n    return F.relu(x) * 2\n\ndef other(x):\n    return F.relu(x)\n",
        "def run(x):\n    y = G.gelu(x) + 1\n    return G.gelu(x) * 2\n\ndef other(x):\n    return G.gelu(x)\n",
    ),
    "the same exchange of numbers is two": (
        "def run(x):\n    y = x + 1\n    return x * 1\n",
        "def run(x):\n    y = x + 2\n    return x * 2\n",
    ),
    "places in a packed array": (
        "def f(n, x):\n    w = cat([ones(n), zeros(n)])\n    return x * w[n + 1] + w[0]\n",
        "def f(n, x):\n    w = cat([ones(n), half(n), zeros(n)])\n    return x * w[2 * n + 1] + w[0]\n",
    ),
    "a packed attribute and a slice": (
        "class A:\n    def __init__(self, n):\n        self.w = P([1, 2])\n\n    def f(self, n):\n        return self.w[1:n]\n",
        "class A:\n    def __init__(self, n):\n        self.w = P([1, 2, 3])\n\n    def f(self, n):\n        return self.w[2:n]\n",
    ),
    "a line that is new asks for a place that an element moves": (
        "def f(n, x):\n    w = cat([ones(n), zeros(n)])\n    a(w)\n    return x\n",
        "def f(n, x):\n    w = cat([ones(n), half(n), zeros(n)])\n    a(w)\n    b(w[2 * n + 1])\n    return x\n",
    ),
    "a line that goes asked for a place that an element moved": (
        "def f(n, x):\n    w = cat([ones(n), half(n), zeros(n)])\n    a(w)\n    b(w[2 * n + 1])\n    return x\n",
        "def f(n, x):\n    w = cat([ones(n), zeros(n)])\n    a(w)\n    return x\n",
    ),
    "the number of elements is a name": (
        "n = 3\nw = ones([n])\nx = w[n - 1]\n",
        "n = 4\nw = ones([n])\nx = w[n - 2]\n",
    ),
    "what is changed in place": (
        "run(1)\n",
        "xs = first(1)\nxs.sort()\nxs[0] = 2\nxs.a[1] = 3\nrun(1)\ntrain(xs)\n",
    ),
    "a return in place of another": (
        "def f(x):\n    a(x)\n    return g(x, 1)\n",
        "def f(x):\n    a(x)\n    b(x)\n    return quite.other[x]\n",
    ),
    "a definition that moves and changes": (
        "def f(s):\n    return 0.1 * s\n\ndef g(x):\n    return x - 1\n\nuse(f, g)\n",
        "def g(x):\n    return x - 1\n\ndef f(s):\n    return max(floor, 0.2 * s ** 2)\n\nuse(f, g)\n",
    ),
    "what moves and changes nothing": (
        "import a\nN = 3\n\ndef f(x):\n    return x\n\ndef g(x):\n    return x + 1\n\nuse(f, g, N)\n",
        "def g(x):\n    return x + 1\n\ndef f(x):\n    return x\n\nimport a\nN = 3\nuse(f, g, N)\n",
    ),
    "a definition that moves, with other annotations and words": (
        "def f(x: int) -> int:\n    'One.'\n    n: int = g(x)\n    return n\n\ndef g(x):\n    return x + 1\n\nuse(f, g)\n",
        "def g(x):\n    return x + 1\n\ndef f(x: float) -> float:\n    'Two.'\n    n: float = g(x)\n    return n\n\nuse(f, g)\n",
    ),
    "a statement that moves with a call in it does": (
        "a = f(1)\nb(2)\nc(3)\nuse(a)\n",
        "b(2)\nc(3)\na = f(1)\nuse(a)\n",
    ),
    "a call moves out of a block where another takes its line": (
        "a(1)\nfor i in r:\n    x = q.next()\n    f(x, 1)\n",
        "a(1)\nx = q.next()\nfor i in r:\n    y = q.next()\n    f(x, y)\n",
    ),
    "a call moves into a block, in the place of another": (
        "a(1)\nx = q.next()\nfor i in r:\n    y = q.next()\n    f(x, y)\n",
        "a(1)\nfor i in r:\n    x = q.next()\n    f(x, 1)\n",
    ),
    # ------------------------------------------------------------ kinds and what is neutral
    "prints, notes, imports, annotations, docstrings": (
        "def f(x):\n    'One.'\n    print('a', x)\n    logger.info('b')\n    return x\n",
        "import os\n\ndef f(x: int) -> int:\n    'Two.'\n    print('c', x, 1)\n    logger.info('d')\n    log.write('e')\n    return x\n",
    ),
    "an if around prints, and one around more": (
        "step()\n",
        "if master:\n    print(1)\nelse:\n    warn('x')\nif master:\n    print(1)\n    save(2)\nstep()\n",
    ),
    "a function that tells": (
        "step()\n",
        "def print0(s):\n    print(s)\n\nstep()\nprint0('now')\n",
    ),
    "an assertion goes with what it is about": (
        "x = 1\nuse(x)\n",
        "x = 1\nk = make(2)\nassert k > 1\nuse(x)\nmore(k)\n",
    ),
    "an assertion is not about another function, nor about words": (
        "def f(x):\n    return x\n\ndef g(x):\n    return x\n",
        "def f(x):\n    'Says.'\n    assert x > 1\n    return x * 2\n\ndef g(x):\n    return x + 1\n",
    ),
    "an assertion alone is about nothing": (
        "def f(x):\n    return x\n\ndef g(x):\n    return x\n",
        "def f(x):\n    assert x > 1\n    return x\n\ndef g(x):\n    return x + 1\n",
    ),
    "kinds": (
        "class A:\n    num_iterations = 1\n    lr = 0.1\n\nloader = make(1)\nnet = torch.compile(net, mode=1)\n",
        "class A:\n    num_iterations = 2\n    lr = 0.2\n\nloader = make(2)\nnet = torch.compile(net, mode=2)\n",
    ),
    "a kind by most of its lines": (
        "step(1)\n",
        "stream = cuda_stream(1)\nwith on(stream):\n    a = 1\n    b = 2\n    c = 3\nuse(stream, a, b, c)\nstep(1)\n",
    ),
    "names of groups": (
        "self_1(1)\nx = 1\ny = f(x, a_very_long_name_of_thirty_two_letters_and_more=1)\n",
        "self_1(2)\nx = 2\ny = f(x, a_very_long_name_of_thirty_two_letters_and_more=2)\nself_1(3)\n",
    ),
    **STEP_PAIRS,
}  # fmt: skip


def told(parts: Parts) -> list[str]:
    """Groups with their needs and atoms, a line each; what no arm tells apart, and why."""
    lines = []
    for group in parts.groups:
        always = ", always" if group.always else ""
        needs = f", needs {' '.join(group.needs)}" if group.needs else ""
        never = f", never with {' '.join(group.conflicts)}" if group.conflicts else ""
        lines.append(f"{group.name}: {group.kind}{always}{needs}{never}: {group.about}")
        for number in group.atoms:
            atom = parts.atoms[number]
            where = f"-{sorted(atom.old_lines)} +{sorted(atom.new_lines)}"
            lines.append(f"  {number} {atom.place}: {atom.what} {where}")
    return lines + [f"* {line}" for line in inseparable(parts)]


def taken_apart(name: str) -> list[str]:
    """What a pair is taken apart into."""
    old, new = (normal(text, where=name) for text in PAIRS[name])
    parts = take_apart(old, new)
    lines = told(parts)
    mended_lines = told(mended(parts, Checker(old, new)))
    if mended_lines != lines:
        lines += ["once mended:", *mended_lines]
    folder = Folder(path=Path("nowhere"), script="x.py", old=old, new=new, parts=parts)
    for hunk in shown(folder)["hunks"]:
        of = " ".join(hunk["groups"])
        lines.append(f"@ {hunk['place']} {hunk['line']}: {hunk['n_changed']} of {of}")
        for line in hunk["lines"]:
            lines.append(f"{line['sign']} {line['text']}  [{' '.join(line['groups'])}]")
    return lines


def kept() -> dict[str, list[str]]:
    """What is kept of every pair."""
    found: dict[str, list[str]] = {}
    for block in KEPT.read_text(encoding="utf-8").split("# ")[1:]:
        name, *lines = block.splitlines()
        found[name] = [line for line in lines if line]
    return found


def main() -> None:
    blocks = ["\n".join([f"# {name}", *taken_apart(name), ""]) for name in PAIRS]
    KEPT.write_text("\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
