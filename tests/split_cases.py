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
    # ------------------------------------------------------------ apart or one
    "a short definition that changed stays where those that did not have moved past it": (
        "".join(f"def {n}():\n    return {n}0\n\n" for n in "afbcdeghijk") + "use(a, b, c, d, e, f, g, h, i, j, k)\n",
        "".join(f"def {n}():\n    return {n}0\n\n" for n in "abcdeghijk") + "def f():\n    return f1\n\nuse(a, b, c, d, e, f, g, h, i, j, k)\n",
    ),
    "a definition that moves to the front, a parameter by keyword in the place of one by position": (
        "def f(x):\n    return g(x, x, x * x * x - 1) + 1\n\ndef rate(s, k=1):\n    return 0.1 * s + k\n\nrate(1, k=2)\nf(1)\n",
        "def rate(s, *, floor=0):\n    return max(floor, 0.2 * s ** floor)\n\ndef f(x):\n    return g(x, x, x * x * x - 2) + 1\n\nrate(1)\nf(1)\n",
    ),
    "dimensions that are added alone": ("x = a\ny = f(b)\n", "x = a[None]\ny = f(b[None])\n"),
    "dimensions that are taken away alone": ("x = a[None]\ny = f(b.view(1, 2))\n", "x = a\ny = f(b)\n"),
    "a value that has another form, and lines of both that take it": (
        "def f(X):\n    B = g(X)\n    X = h(B) * 2\n    return X + B\n",
        "def f(X):\n    B = k(X, 1)\n    X = m(B) / 2\n    return X + B\n",
    ),
    "a value that has another form, and two changes that take it": (
        "def f(X):\n    B = g(X)\n    X = h(B) * 2\n    Y = n(B) * 3\n    return X + Y\n",
        "def f(X):\n    B = k(X, 1)\n    X = m(B) / 2\n    Y = o(B) / 3\n    return X + Y\n",
    ),
    "a number of its own, and the one line that takes it": (
        "def f(X):\n    B = 1\n    X = h(B) * 2\n    return X\n",
        "def f(X):\n    B = 2\n    X = m(B) / 2\n    return X\n",
    ),
    "keywords that come and go are two": (
        "def f(a, *, b=1):\n    return a * b\n\ny = f(1, b=3)\n",
        "def f(a, *, c=2, d=3):\n    return a - c + c / d\n\ny = f(1, c=4)\n",
    ),
    "stars in the place of others": (
        "def f(a, *b, **c):\n    return g(a, b, b, c)\n\ny = f(1)\n",
        "def f(a, *d, **e):\n    return h(a + 1, d, e, e)\n\ny = f(1)\n",
    ),
    "a name that three statements put": (
        "x = f(1)\na(1)\nb(2)\nuse(x)\n",
        "a(1)\nx = g(2) + 3\nb(2)\nx = h(3) - y\nuse(x)\n",
    ),
    "a call that three lines make": (
        "for i in r:\n    q.next()\n    a(1)\n    b(2)\n",
        "for i in r:\n    a(1)\n    q.next()\n    b(2)\n    q.next()\n",
    ),
    "parameters in one place that nothing asks for": (
        "def f(a, b=1):\n    return g(a)\n",
        "def f(a, c=2):\n    return g(a)\n",
    ),
    "attributes that are given by calls, in order": (
        "class A(Module):\n    def __init__(self):\n        run(1)\n\n    def f(self):\n        return 1\n",
        "class A(Module):\n    def __init__(self):\n        run(1)\n"
        "        setattr(self, 'a', 1)\n        self.register_parameter('b', 2)\n        self.add_module('c', 3)\n"
        "        self.other('d', 4)\n"
        "        self.parts = ModuleDict(dict(e=5, f=dict(g=6)))\n\n"
        "    def f(self):\n        x(self.a)\n        x(self.b, 1)\n        y(self.c, 2, 3)\n        z(self.d)\n        u(self.parts.e)\n        v(self.g, 1, 2)\n        return 1\n",
    ),
    "what is None at first, where a line of both gives it anyway": (
        "class A:\n    def __init__(self):\n        self.k = 1\n\n    def start(self, x):\n        self.k = h(x)\n\n    def f(self, x):\n        return x * self.k\n",
        "class A:\n    def __init__(self):\n        self.k = None\n\n    def start(self, x):\n        self.k = h(x)\n\n    def f(self, x):\n        self.k = g(x)\n        return x * self.k\n",
    ),
    "a library that goes, and a line that takes its value as it did": (
        "import numbers_of as nu\n\ndef next():\n    buf = read(1)\n    buf = made(buf.astype(nu.small))\n    return use(buf[:-1], 4)\n",
        "\ndef next():\n    buf = read(1)\n    return use(buf[:-1], 4)\n",
    ),
    "a library that goes, and a value that was none of its own": (
        "import numbers_of as nu\n\ndef next():\n    buf = read(1)\n    buf = nu.made(2)\n    return use(buf[:-1], 4)\n",
        "\ndef next():\n    buf = read(1)\n    return use(buf[:-1].to(int), 4)\n",
    ),
    "a parameter with a default goes, and the keyword": (
        "def f(x, k=2):\n    return x * k\n\ny = f(1, k=3)\n",
        "def f(x):\n    return x\n\ny = f(1)\n",
    ),
    "calls and what they call, after two other changes": (
        "a = 1\nb = 2\n\n"
        "def soft_goes(x, k1=2):\n    return x * 3\n\nsoft_goes(1, k1=3)\n\n"
        "def soft_comes(x):\n    return x * 3\n\nsoft_comes(1)\n\n"
        "def hard_goes(x, *, k3):\n    return x * 3\n\nhard_goes(1, k3=3)\n\n"
        "def hard_comes(x):\n    return x * 3\n\nhard_comes(1)\n\n"
        "def place_goes(x, k5):\n    return x * 3\n\nplace_goes(1, 5)\n\n"
        "def place_comes(x):\n    return x * 3\n\nplace_comes(1)\n\n"
        "def front_comes(x):\n    return x * 3\n\nfront_comes(1)\n\n"
        "def call_comes(x):\n    return x * 3\n\n\n"
        "def call_goes(x, k9):\n    return x * 3\n\nq = call_goes(1, 9)\n\n"
        "def given_more(x):\n    return (x, 3)\n\nu, v = given_more(1)\n\n"
        "def given_less(x):\n    return (x, 3, 4)\n\nu, v, w = given_less(1)\n",
        "a = 10\nb = 20\n\n"
        "def soft_goes(x):\n    return x * 3\n\nsoft_goes(1)\n\n"
        "def soft_comes(x, k2=2):\n    return x * 3\n\nsoft_comes(1, k2=4)\n\n"
        "def hard_goes(x):\n    return x * 3\n\nhard_goes(1)\n\n"
        "def hard_comes(x, *, k4):\n    return x * 3\n\nhard_comes(1, k4=4)\n\n"
        "def place_goes(x):\n    return x * 3\n\nplace_goes(1)\n\n"
        "def place_comes(x, k6):\n    return x * 3\n\nplace_comes(1, 6)\n\n"
        "def front_comes(k7, x):\n    return x * 3\n\nfront_comes(7, 1)\n\n"
        "def call_comes(x, k8):\n    return x * 3\n\np = call_comes(1, 8)\n\n"
        "def call_goes(x):\n    return x * 3\n\n\n"
        "def given_more(x):\n    return (x, 3, 4)\n\nu, v, w = given_more(1)\n\n"
        "def given_less(x):\n    return (x, 3)\n\nu, v = given_less(1)\n",
    ),
    "names that come and go, after two other changes": (
        "a = 1\nb = 2\nuse(a, b)\n\nclass A:\n    old_rate = 1\n\n    def f(self):\n        self.m = 1\n        x(A.old_rate)\n        return 1\n\n    def g(self):\n        y(self.m, 3)\n        return 2\n\nk = make(1)\nuse(2)\none(k, 1)\nuse(3)\n",
        "a = 10\nb = 20\nuse(a, b)\n\nclass A:\n    new_rate = [2]\n\n    def f(self):\n        self.n = {3}\n        z(A.new_rate, 4, 5)\n        return 1\n\n    def g(self):\n        w[self.n] = 3\n        return 2\n\nuse(2)\nj = built(2, 3)\nuse(3)\ntwo[j] = 1\n",
    ),
    "values in place and at first, after two other changes": (
        "a = 1\nb = 2\nuse(a, b)\n\ndef f(x, xs):\n    x = x + g(xs.pop())\n    return h(x)\n\ndef i(n, x):\n    w = cat([ones(n), zeros(n)])\n    return x * w[n + 1]\n\nclass M:\n    def __init__(self):\n        self.m = self.start = 1\n    def f(self, x):\n        return x * self.m\n\nclass K:\n    def __init__(self):\n        self.k = 1\n    def f(self, x):\n        return x * self.k\n\nclass L:\n    def __init__(self):\n        self.l = table()[0] = None\n    def f(self, x):\n        self.l = p(x)\n        return x * self.l\n\ndef r(X):\n    B = X @ X\n    X = a * X + b * B + c * X @ B\n    return X\n\ndef t(X):\n    D = E = X @ X\n    X = a * X + b * D + c * X @ D\n    return X\n",
        "a = 10\nb = 20\nuse(a, b)\n\ndef f(x, xs):\n    y = xs.pop()\n    log(y)\n    k(y)\n    x = x + g(1)\n    return h(x)\n\ndef i(n, x):\n    w = cat([ones(n), half(n), zeros(n)])\n    return x * w[2 * n + 1]\n\nclass M:\n    def __init__(self):\n        self.m = self.start = None\n    def f(self, x):\n        self.m = q(x, 2)\n        return x * self.m\n\nclass K:\n    def __init__(self):\n        self.k = None\n    def f(self, x):\n        self.k = q(x)\n        return x * self.k\n\nclass L:\n    def __init__(self):\n        self.l = table()[0] = 1\n    def f(self, x):\n        return x * self.l\n\ndef r(X):\n    B = b * X + c * X @ X\n    X = a * X + B @ X\n    return X\n\ndef t(X):\n    D = E = b * X + c * X @ X\n    X = a * X + D @ X\n    return X\n",
    ),
    "one element in the place of one": ("x = [a, b(1), c]\ny = {d, e(2), f}\n", "x = [a, q[2], c]\ny = {d, r[3], f}\n"),
    "keywords of a dictionary that is no ModuleDict's are no attributes": (
        "class A:\n    def f(self, x):\n        return 1\n\nrun(1)\n",
        "class A:\n    def f(self, x):\n        one(x.speed)\n        y = four(x.frozen)\n        y[1] = 5\n        return 1\n\nrun(1)\ng = dict(speed=1)\ntwo(g)\n\nclass D(E, frozen=1):\n    pass\nthree(D, 2)\n",
    ),
    "members of members are none": (
        "class A:\n    def __init__(self):\n        run(1)\n\n    def f(self, x):\n        return 1\n",
        "class A:\n    def __init__(self):\n        run(1)\n        self.parts = ModuleDict(dict(head=made(dict(speed=1), rate=2), tail=dict(low=3)))\n\n    def f(self, x):\n        one(self.parts)\n        two(x.head, 1)\n        three(x.speed, 2, 3)\n        four(x.rate)\n        y = five(x.tail)\n        y[x.low] = 6\n        return 1\n",
    ),
    "what a label ties, and what one of both is for": (
        "run(1)\nuse(2)\n",
        "k = make('gate')\nrun(1)\nnote_of('gate', 1)\nuse(2)\ntrain(k, here=3)\n",
    ),
    "a definition that moves past one that changed, with other words": (
        "def f(x: int) -> int:\n    'One.'\n    n: int = g(x)\n    return n\n\nasync def a(x: int) -> int:\n    'One.'\n    return await g(x)\n\nclass C:\n    'One.'\n    n: int = 1\n\n    def m(self, x: int):\n        'One.'\n        return x\n\n"
        "def g(x):\n    return h(x, x, x, x, x, x, x, x * x - 1, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y)\n\nuse(f, g, C, a)\n",
        "def g(x):\n    return h(x, x, x, x, x, x, x, x * x - 5, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y, y)\n\n"
        "class C:\n    'Two.'\n    n: float = 1\n\n    def m(self, x: float):\n        'Two.'\n        return x\n\ndef f(x: float) -> float:\n    'Two.'\n    n: float = g(x)\n    return n\n\nasync def a(x: float) -> float:\n    'Two.'\n    return await g(x)\n\nuse(f, g, C, a)\n",
    ),
    "a value that has another form, a line that took it goes and another comes": (
        "def f(X):\n    B = g(X)\n    use(B)\n    a(1)\n    b(2)\n    return X\n",
        "def f(X):\n    B = k(X, 1)\n    a(1)\n    b(2)\n    quite.other(3)[B] = 4\n    return X\n",
    ),
    "parameters get a default, lose it, go by keyword, though calls are as they were": (
        "a = 1\nb = 2\n\ndef f(x, k=1):\n    return g(x, k)\n\ndef h(x, y=1):\n    return g(x, y)\n\ndef i(x, y):\n    return g(x, y)\n\ndef j(x, y):\n    return g(x, y)\n\nf(1, k=3)\nh(1, 2)\ni(1, 2)\nj(1, 2)\n",
        "a = 10\nb = 20\n\ndef f(x, *, k=1):\n    return g(x, k)\n\ndef h(x, y):\n    return g(x, y)\n\ndef i(x, y=1):\n    return g(x, y)\n\ndef j(x, /, y):\n    return g(x, y)\n\nf(1, k=3)\nh(1, 2)\ni(1, 2)\nj(1, 2)\n",
    ),
    "a number moves, and so do a name and what a call gives": (
        "N = 3\nP = M\nQ = made(1)\nR: int = 5\nS: int\n\ndef f(x):\n    return x + 1\n\ndef g(x):\n    return x + 2\n\nuse(f, g, N, P, Q, R)\n",
        "def f(x):\n    return x + 1\n\ndef g(x):\n    return x + 2\n\nR: int = 5\nN = 3\nS: int\nP = M\nQ = made(1)\nuse(f, g, N, P, Q, R)\n",
    ),
    "a definition that is replaced as a whole, after two other changes": (
        "a = 1\nb = 2\nuse(a, b)\n\ndef f(x):\n    return g(x, 1)\n\ndef h(x):\n    return x * x * x - 1\n\ndef c(s):\n    return 0.1 * s\n\ny = c(1)\n",
        "a = 10\nb = 20\nuse(a, b)\n\ndef c(s):\n    return (max(low, 0.2 * s ** 2), 2)\n\ndef f(x):\n    return g(x, 1)\n\ndef h(x):\n    return x * x * x * x * x - 3\n\ny, z = c(1)\n",
    ),
    "a loop over something else, and a new one over what nothing went over": (
        "for p in ps:\n    step(p)\nend(1)\n",
        "for p in qs:\n    step(p)\nend(1)\nfor z in zs:\n    also(z, 2)\n",
    ),
    "an attribute of another object, by two that put one of its name": (
        "class Config:\n    width = 3\n\nclass A:\n    def __init__(self, c):\n        self.w = c.width\n        self.start(1)\n\nclass Z:\n    def __init__(self, c):\n        self.w = c.width\n        self.end(1)\n",
        "class Config:\n    width = 3\n    cap = 30\n\nclass A:\n    def __init__(self, c):\n        self.w = c.width\n        self.cap = c.cap\n        self.start(1)\n        here(self.cap, 2, 3)\n\nclass Z:\n    def __init__(self, c):\n        self.w = c.width\n        self.cap = c.cap\n        self.end(1)\n        there(4, self.cap)\n",
    ),
    "a function gives something else back in a new line alone": (
        "a = 1\n\ndef f(x):\n    b(x)\n    return x\n\ny = f(1)\n",
        "a = 2\n\ndef f(x):\n    if x > 3:\n        return (x, 4)\n    b(x)\n    return x\n\ny, z = f(1)\n",
    ),
    "a method of its own, and a call that hands it a keyword no longer": (
        "class A(Base):\n    n = 1\n\ny = q.go(1, k=2)\n",
        "class A(Base):\n    n = 1\n\n    def go(self, x):\n        return super().go(x) + 1\n\ny = q.go(1)\n",
    ),
    "a constructor of both, and a call that hands it a keyword no longer": (
        "class A(Base):\n    def __init__(self, x):\n        self.x = x\n\ny = A(1, k=2)\n",
        "class A(Base):\n    def __init__(self, x):\n        self.x = x + 1\n\ny = A(1)\n",
    ),
    "parameters by place and by keyword, each with its argument": (
        "a = 1\nb = 2\n\ndef f(x):\n    return g(x)\n\ny = f(1)\n",
        "a = 10\nb = 20\n\ndef f(w, x, *, k):\n    return g(x)\n\ny = f(0, 1, k=2)\n",
    ),
    "definitions in blocks that are others": (
        "a = 1\n\nwith b as c:\n\n    def f(x, k):\n        return x\n\nwith b as c:\n\n    def g(x):\n        return x\n\ny = f(1, k=2)\nz = g(1)\n",
        "a = 10\n\nwith b as c, d as e:\n\n    def f(x):\n        return x\n\nwith b as c, d as e:\n\n    def g(x, k):\n        return x\n\ny = f(1)\nz = g(1, k=2)\n",
    ),
    "a pop of one list, and one of another": (
        "def f(x, xs, ys):\n    x = x + g(xs.pop())\n    return h(x)\n",
        "def f(x, xs, ys):\n    k(ys.pop(), 2)\n    x = x + g(1)\n    return h(x)\n",
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
