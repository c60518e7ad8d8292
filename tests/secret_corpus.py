"""200 secrets in 20 places: ten in each, drawn with a fixed seed."""

import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

PER_PLACE = 10
LETTERS = string.ascii_letters + string.digits
NAMES = ("WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "CLIENT_SECRET", "AWS_SECRET_ACCESS_KEY")
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A secret at its place: what a program prints, what must not get out, what is in its environment."""

    place: str
    printed: str
    hidden: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)


def one(place: str, printed: str, *hidden: str, **variables: str) -> Planted:
    return Planted(place=place, printed=printed, hidden=hidden, variables=variables)


def word(chance: random.Random, n: int = 24, letters: str = LETTERS) -> str:
    """Letters in no order, with a digit and letters of both sizes among them."""
    return "".join(chance.choices(letters, k=n - 3)) + "a7Q"


def password(chance: random.Random) -> str:
    """With what parts a URL or a list."""
    return word(chance, 9) + chance.choice("/@,") + word(chance, 7) + chance.choice("/@,") + "x9Z"


def own(i: int, chance: random.Random) -> Planted:
    value = chance.choice((word(chance), password(chance), word(chance, 40, "0123456789abcdef")))
    return one("its own variable", f"I use {value} here", value, **{f"OWN_{i}_TOKEN": value})


def own_encoded(i: int, chance: random.Random) -> Planted:
    value = word(chance, 12) + "+/ &=" + word(chance, 8)
    quoted = quote(value, safe="")
    return one("its own variable in a URL", f"GET /x?q={quoted}", quoted, **{f"Q{i}_SECRET": value})


def own_escaped(i: int, chance: random.Random) -> Planted:
    value = word(chance, 12) + '"\\' + word(chance, 8)
    in_json = json.dumps(json.dumps({"x": value}))
    hidden = json.dumps(json.dumps(value)[1:-1])[1:-1]
    return one("its own variable in JSON", in_json, hidden, **{f"STRIPE_{i}_KEY": value})


def own_lines(i: int, chance: random.Random) -> Planted:
    lines = [word(chance, 64) for _ in range(3)]
    text = "\n".join([BEGIN, *lines, END])
    return one("a line of its own key", f"> {lines[1]} <", *lines, **{f"SSH_{i}_PRIVATE_KEY": text})


def of_a_library(i: int, chance: random.Random) -> Planted:
    value = word(chance, 28)
    name = f"{('NCCL', 'TORCH', 'ABLATE')[i % 3]}_NOTE_{i}"
    told = (f"https://me:{value}@host.example/x", value, f"token={value}")[i // 3 % 3]
    return one("NCCL_, TORCH_, ABLATE_", "nothing", value, **{name: told})


def assigned(i: int, chance: random.Random) -> Planted:
    value = word(chance)
    name = (*NAMES, "STRIPE_KEY", "OPENAI_KEY", "githubToken", "apiKey", "MY_SERVICE_KEY")[i]
    return one("NAME=", f"{name}={value}", value)


def environ(i: int, chance: random.Random) -> Planted:
    value, name = word(chance), (*NAMES, "STRIPE_KEY")[i % 6]
    forms = (
        "os.environ['{}'] = '{}'",
        'os.environ["{}"]="{}"',
        "os.environ.setdefault('{}', '{}')",
    )
    return one("os.environ", forms[i % 3].format(name, value), value)


def escaped(i: int, chance: random.Random) -> Planted:
    value = word(chance)
    text = json.dumps({"a": 1, ("api_key", "password", "client_secret")[i % 3]: value, "b": 2})
    for _ in range(i % 3):
        text = json.dumps(text)
    return one("escaped JSON", text, value)


def private_key(i: int, chance: random.Random) -> Planted:
    lines = [word(chance, 64) for _ in range(5)]
    return one("a private key", "\n".join([BEGIN, *lines, END]), *lines)


def in_url(i: int, chance: random.Random) -> Planted:
    value = password(chance)
    scheme = ("https", "postgres", "redis", "git+https", "amqp")[i % 5]
    return one("a password in a URL", f"{scheme}://me:{value}@host.example:5432/db", value)


def signature(i: int, chance: random.Random) -> Planted:
    value = quote(word(chance, 43) + "=", safe="")
    forms = (
        "https://a.blob.core.windows.net/c/f?sv=2023-01-03&se=2026-01-01&sp=r&sig={}",
        "https://b.s3.amazonaws.com/f?X-Amz-Expires=60&X-Amz-Signature={}&x=1",
        "https://storage.googleapis.com/f?X-Goog-Signature={}",
    )
    return one("a signed URL", forms[i % 3].format(value), value)


def hook(i: int, chance: random.Random) -> Planted:
    value = word(chance)
    forms = (
        "https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/{}",
        "https://discord.com/api/webhooks/123456789012345678/{}",
        "https://acme.webhook.office.com/webhookb2/{}",
        "https://host.example/api/hooks/{}",
    )
    return one("a web hook", f"posted to {forms[i % 4].format(value)} twice", value)


def netrc(i: int, chance: random.Random) -> Planted:
    value = password(chance)
    forms = (
        "machine api.example login me password {}",
        "machine api.example\n  login me\n  password {}",
        "default login me password {}",
    )
    return one("netrc", forms[i % 3].format(value), value)


def header(i: int, chance: random.Random) -> Planted:
    value = word(chance)
    forms = (
        "Authorization: Bearer {}",
        "-H 'Authorization: token {}'",
        "{{'Authorization': 'Basic {}='}}",
        "authorization=bearer {}",
    )
    return one("a header", forms[i % 4].format(value), value)


def option(i: int, chance: random.Random) -> Planted:
    value = word(chance)
    forms = ("--token {}", "--api-key={}", "--wandb-api-key '{}'", "-u me:{}", "wandb login {}")
    return one("an option", f"$ tool {forms[i % 5].format(value)} x", value)


def over_lines(i: int, chance: random.Random) -> Planted:
    a, b = word(chance), word(chance)
    forms = ("password: |\n  {}\n  {}\nnext: 1", 'api_key = """{}\n{}"""', "DB_PASSWORD={}\\\n{}")
    return one("over several lines", forms[i % 3].format(a, b), a, b)


def of_a_service(i: int, chance: random.Random) -> Planted:
    forms = ("hf_{}", "ghp_{}", "sk-{}", "xoxb-{}", "glpat-{}", "sk_live_{}", "gsk_{}", "nvapi-{}")
    value = (*forms, "AIza{}", "npm_{}")[i].format(word(chance, 40))
    return one("a key of a service", f"({value})", value)


def connection(i: int, chance: random.Random) -> Planted:
    value = word(chance, 40) + "=="
    forms = ("AccountName=a;AccountKey={};x=1", "Server=h;Uid=me;Pwd={};", "SharedAccessKey={}")
    return one("a connection", forms[i % 3].format(value), value)


def in_python(i: int, chance: random.Random) -> Planted:
    value = password(chance)
    forms = ("{{'password': '{}', 'n': 3}}", "Config(auth_token='{}', lr=0.1)", 'secret := "{}"')
    return one("Python", forms[i % 3].format(value), value)


def raised(i: int, chance: random.Random) -> Planted:
    value = word(chance)
    forms = ("ValueError: no such token: {}", "HTTPError: 401 for https://me:{}@host.example/x")
    return one("an exception", forms[i % 2].format(value), value)


PLACES: tuple[Callable[[int, random.Random], Planted], ...] = (
    *(own, own_encoded, own_escaped, own_lines, of_a_library, assigned, environ, escaped),
    *(private_key, in_url, signature, hook, netrc, header, option, over_lines, of_a_service),
    *(connection, in_python, raised),
)


def corpus(seed: int) -> list[Planted]:
    """The same for the same seed."""
    chance = random.Random(seed)
    return [place(i, chance) for place in PLACES for i in range(PER_PLACE)]
