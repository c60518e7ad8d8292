"""Small pairs of scripts of which a part alone would not take a step: what `tests.split_cases` keeps, too."""

ROTARY = """\
class Linear(Base):
    def forward(self, x):
        return apply(self.weight, x)

class Turn:
    def forward(self, x):
        return (x.cos(), x.sin())

def turned(x, cos, sin):
    return x * cos + sin

class Attention:
    def __init__(self, config):
        self.width = config.width
        self.turn = Turn()
        self.make_q = Linear(self.width, self.width, bias=False)
        self.out = Linear(self.width, self.width, bias=False)
    def forward(self, x):
        q, k = self.make_q(x)
        cos, sin = self.turn(q)
        q, k = (turned(q, cos, sin), turned(k, cos, sin))
        return q + k

net = Attention(config)
"""
TURNED = """\
class Linear(Base):
    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out, bias=False)
    def forward(self, x):
        return apply(self.weight, x)

class Turn:
    def forward(self, x):
        return x * x.cos() + x.sin()

class Attention:
    def __init__(self, width):
        self.make_q = Linear(width, width)
        self.out = Linear(width, width)
        self.turn = Turn()
    def forward(self, x):
        q, k = self.make_q(x)
        q, k = (self.turn(q), self.turn(k))
        return q + k

net = Attention(config.width)
"""
NET = """\
class Net(Module):
    def __init__(self):
        self.parts = ModuleDict(dict(table=Embedding(9)))
        self.skips = Parameter(ones(4))
    def forward(self, idx):
        x = self.parts.table(idx)
        for i in range(4):
            weighted = self.skips[i] * x
            x = blocks[i](x + weighted, 1)
        return x

net = Net()
optimizer = Adam([net.parts.table.weight])
"""
LOADER = """\
import numbers_of as nu

class Loader:
    def __init__(self, B):
        self.B = B
        self.reset()
    def reset(self):
        self.place = 0
        self.tokens = read(0)
    def advance(self):
        self.place = 1
        self.tokens = nu.read(1)
    def next(self):
        buf = self.tokens[self.place]
        buf = made(buf.astype(nu.small))
        return (buf[:-1].view(self.B, 4), self.B)

def forward(idx):
    x = embed(idx)
    return normed(x, 1)

batch: int = 64
device_batch: int = 16
B, T = (device_batch, 8)
assert batch % (B * world_size) == 0
loader = Loader(B)
for step in range(9):
    for i in range(4):
        loss = forward(loader.next())
        loss.backward()
    for p in parameters:
        p.grad /= 4
    update()
"""
INNER = """\
idx = 3

class Loader:
    def next(self):
        buf = read(1)
        return (buf[:-1].view(self.B, 4), self.B)

def forward(idx):
    x = embed(idx)
    def inner(y):
        return normed(y, 1)
    return inner(x)

def other(later):
    return later

loader = Loader()
loss = forward(loader.next())
"""
HANDED = """\
class Net(Module):
    def __init__(self):
        self.blocks = 1
        self.skips = Parameter(ones(4))
    def forward(self, x):
        x = self.blocks * x
        return x

net = Net()
optimizer = Adam([net.blocks])
"""
NOT_HANDED = HANDED.replace("        self.skips = Parameter(ones(4))\n", "")


def using(text: str, *lines: str) -> str:
    """The script with lines before its net gives its value back."""
    return text.replace(
        "        return x\n", "".join(f"        {s}\n" for s in (*lines, "return x"))
    )


def handing(text: str) -> str:
    """The script with the parameter among those that the optimizer is handed."""
    return text.replace("[net.blocks]", "[net.blocks, net.skips]")


USE, OTHER = "x = x + self.skips[0] * tell(1)", "also(self.skips, 2, 3)"

# what a pair is about -> OLD, NEW
STEP_PAIRS: dict[str, tuple[str, str]] = {
    "elements of a tuple are changed place by place": (
        "a, b = (f(x, 1), f(y, 2))\nbetas = (0.8, 0.9)\n",
        "a, b = (g(x), g(y))\nbetas = (0.9, 0.95)\n",
    ),
    "a class turns values itself, and another one gets its own signature": (ROTARY, TURNED),
    "a parameter in place of another and the argument at its place": (
        "class A:\n    def __init__(self, config):\n        self.a = f(config.width)\n\na = A(config)\n",
        "class A:\n    def __init__(self, width):\n        self.a = f(width)\n\na = A(config.width)\n",
    ),
    "a member of a ModuleDict, where it is used, and who is handed it": (
        NET,
        NET.replace("Embedding(9))", "Embedding(9), values=Embedding(9))")
        .replace("        for", "        v = self.parts.values(idx)\n        x = mix(x, v)\n        for")
        .replace("weight])", "weight, net.parts.values.weight])"),
    ),
    "a parameter whose use is another line": (
        NET,
        NET.replace("weighted = self.skips[i] * x", "x = x + self.skips[i] * x")
        .replace("x + weighted, 1", "x, 1, mask"),
    ),
    "a parameter that goes": (
        NET,
        NET.replace("        self.skips = Parameter(ones(4))\n", "")
        .replace("            weighted = self.skips[i] * x\n", "")
        .replace("x + weighted, 1", "x, 1"),
    ),
    "lines in place of which a call stands": (
        LOADER,
        LOADER.replace("self.place = 0\n        self.tokens = read(0)", "self.advance()"),
    ),
    "a library that goes, and the values that were its own": (
        LOADER,
        LOADER.replace("import numbers_of as nu\n", "")
        .replace("nu.read(1)", "own_read(1)")
        .replace("        buf = made(buf.astype(nu.small))\n", "")
        .replace("buf[:-1]", "buf[:-1].to(int)"),
    ),
    "a dimension that one adds and another takes away": (
        LOADER,
        LOADER.replace(".view(self.B, 4)", "").replace(
            "embed(idx)", "embed(idx[None])"
        ).replace("def forward(idx):\n", "def forward(idx):\n    docs = counted(idx)\n    tell(docs)\n    note(docs)\n"),
    ),
    "lines of an inner function take what has a dimension more, those of others do not": (
        INNER,
        INNER.replace(".view(self.B, 4)", "")
        .replace("embed(idx)", "embed(idx[None])")
        .replace("(y):\n", "(y):\n        docs = counted(idx)\n        tell(docs)\n")
        .replace("(later):\n", "(later):\n    note(idx)\n"),
    ),
    "an entry, and another call in the place of a dimension, are none": (
        INNER,
        INNER.replace(".view(self.B, 4)", "[0]")
        .replace("embed(idx)", "embed(idx.unsqueeze(0))")
        .replace("(y):\n", "(y):\n        tell(idx)\n"),
    ),
    "numbers under an assertion": (
        LOADER,
        LOADER.replace("batch: int = 64", "batch: int = 8").replace("batch: int = 16", "batch: int = 4"),
    ),
    "lines that move into another block, and what follows them": (
        LOADER,
        LOADER.replace(
            "    for i in range(4):\n        loss = forward(loader.next())\n        loss.backward()\n"
            "    for p in parameters:\n        p.grad /= 4\n",
            "    loss = forward(loader.next())\n    loss.backward()\n    del loss\n",
        ),
    ),
    "a number that is one thing in two places, and pieces that are taken by their places": (
        "class N:\n    def __init__(self):\n        self.n = 6\n        self.t = table(9 * 12)\n"
        "    def forward(self, x):\n        v = self.t(x).chunk(12)\n        return v[self.n + 1]\n",
        "class N:\n    def __init__(self):\n        self.n = 6\n        self.t = table(9 * self.n)\n"
        "    def forward(self, x):\n        v = self.t(x).chunk(self.n)\n        return v[self.n - 1]\n",
    ),
    "a line that was written for what stands in place of a block": (
        "def step(ps):\n    for p in ps:\n        if mine(p):\n            g = p.grad\n            g = scaled(g)\n"
        "            put(g)\n        count(p)\n",
        "def step(ps):\n    for p in ps:\n        g = p.grad\n        kept.lerp(g)\n        count(p)\n",
    ),
    "who is handed a new parameter needs the line that uses it": (
        NOT_HANDED, handing(using(HANDED, USE))
    ),
    "who is handed a parameter no longer, whose use goes": (
        handing(using(HANDED, USE)), NOT_HANDED
    ),
    "a parameter of both that is used, and handed over, anew": (
        HANDED, handing(using(HANDED, USE))
    ),
    "a parameter of both that is used anew, and handed over no longer": (
        handing(HANDED), using(HANDED, USE)
    ),
    "a parameter that is made elsewhere, whose use is another line": (
        using(HANDED, "y = self.skips[1] * tell(1)"),
        using(
            HANDED.replace("        self.skips = Parameter(ones(4))\n", "        if big(3):\n            self.skips = Parameter(zeros(4))\n"),
            "look([self.skips, 3], here=2)",
        ),
    ),
    "a parameter of both whose use is another line, what takes it too": (
        using(HANDED, "y = self.skips[1] * tell(1)", "z = more(y, 1)"),
        using(HANDED, "w = [self.skips, 3]", "look(w, here=2)"),
    ),
    "a parameter that is used in two new lines": (NOT_HANDED, using(HANDED, USE, OTHER)),
    "a parameter that was used in two lines goes": (using(HANDED, USE, OTHER), NOT_HANDED),
    "a parameter and its one use go": (using(HANDED, USE), NOT_HANDED),
    "lines in the place of a call that put what it put": (
        LOADER.replace("self.place = 0\n        self.tokens = read(0)", "self.advance()"),
        LOADER,
    ),
    "a class that turned values itself, and one with its own signature, do no longer": (
        TURNED, ROTARY
    ),
}  # fmt: skip
