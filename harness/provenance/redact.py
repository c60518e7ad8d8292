"""Secrets are left out of everything that is printed or kept.

By value, where this process has them in its environment (own_secrets.py), and by their look: what
is called a secret, what has the form of a known service's key, what stands where a secret stands.
secret_rules.py has all but the names.
"""

import re
import string
from pathlib import Path

from harness.provenance.own_secrets import HIDDEN, without_own
from harness.provenance.secret_rules import BEFORE_KEY, KEY_BEGINS, RULES, VALUE
from harness.run.files import write_text
from harness.run.guarded import IN_FOLDER, read_bytes

# The end of a name. Singular only, for tokens are what this project counts.
_ENDS = ("token", "secret", "password", "passwd", "pwd", "passphrase", "credential", "auth", "key")
_BEFORE = re.compile(  # a name that goes right on: githubtoken, githubToken
    r"(?:(?:.*[_.-])?(?:hf|gh|github|gitlab|wandb|api|access|auth|bearer|refresh|"
    r"session|client|secret|"
    r"db|sql)?|.*[_.-])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?:.*[_.-])?[a-z]\w{0,60}")
_OF_KEY = re.compile(rf"(?:.*[_.-]|.*[a-z](?=[A-Z]))?(?:{BEFORE_KEY})[-_]?", re.IGNORECASE)
_TYPE = (  # of an annotation: a type is no secret
    r"(?:str|bytes|int|float|bool|None|Any|Optional|Final|SecretStr)"
)
_ANNOTATION = rf"\s*:\s*{_TYPE}[\w\[\]|., ]{{0,60}}\s*="
_COLOURS = r"(?:\x1b\[[\d;]{0,20}m)*"  # of a terminal
_ASSIGNED = re.compile(  # behind the end of a name
    rf"(?i)(s?\\{{0,8}}[\"']?\]?{_COLOURS}(?:{_ANNOTATION}|[ \t]*(?:=>|:=|[=:]))[ \t]*{_COLOURS}"
    r"(?:[rbuf]{1,2}(?=[\"']))?)"
    rf"{VALUE}"
)
_NO_SECRET = re.compile(
    rf"(?:None|True|False|null|true|false|lambda|\[redacted|{_TYPE})(?![\w.-])|"
    r"os\.(?:environ|getenv)\b|getenv\(|\$\{?\w+\}?$|\{\w*\}$"
)
# SEPARATOR_TOKEN = 256 is a token to be trained on; a password may well be a number
_COUNT = re.compile(r"[+-]?\d{1,6}(?:\.\d*)?(?:e[+-]?\d+)?[)\]}]*")
LONGEST_NAME = 110
_FOLLOWS = re.compile(rf"[sS]?\\{{0,8}}[\"']?\]?{_COLOURS}\s*[=:]")
_NAME_ENDS = tuple(re.compile(end) for end in _ENDS)
_SMALL = {ord(letter): letter.lower() for letter in string.ascii_uppercase}
_MARKS = "\\\"'"


def _without_values(text: str, small: str) -> str:
    """`name = value` without the value wherever the name is a secret's; small: in small letters."""
    hits = sorted(
        hit.end() for end in _NAME_ENDS if end.pattern in small for hit in end.finditer(small)
    )
    pieces, done = [], 0
    for at in hits:
        assigned = _ASSIGNED.match(text, at) if at >= done and _is_name(text, at) else None
        if assigned is None or not _is_value(text, at, assigned):
            continue
        pieces += [text[done : assigned.end(1)], HIDDEN]
        done = assigned.end() - assigned[0].endswith("\n")
    return "".join([*pieces, text[done:]])


def _is_name(text: str, at: int) -> bool:
    """Whether what ends there is the name of a secret."""
    if not _FOLLOWS.match(text, at):
        return False
    begin = at
    while begin > max(0, at - LONGEST_NAME) and (
        text[begin - 1] in "_.-" or text[begin - 1].isalnum()
    ):
        begin -= 1
    name = text[begin:at]
    end = next(end for end in _ENDS if name.lower().endswith(end))
    core, before = name[-len(end) :], name[: -len(end)]
    if end == "key":
        return bool(_OF_KEY.fullmatch(before)) or (core == "KEY" and before[-1:] == "_")
    if before.lower().endswith("per_"):  # loss_per_token
        return False
    if end in ("password", "passwd", "passphrase"):  # PGPASSWORD: there is no other word
        return True
    return bool(_BEFORE.fullmatch(before) or (core[0].isupper() and _CAMEL.fullmatch(before)))


def _is_value(text: str, at: int, assigned: re.Match[str]) -> bool:
    """Whether what is assigned to the name that ends there can be a secret."""
    value, end = assigned[2], text[max(0, at - 10) : at].lower()
    plain = value.strip(_MARKS)
    if not plain or _NO_SECRET.match(value):
        return False
    if assigned[1][:1] in "sS" and not end.endswith("credential"):
        return False
    if end.endswith("token"):
        return len(plain) >= 5 and not _COUNT.fullmatch(value)
    if text[at - 3 : at] == "KEY":
        return len(plain) >= 8 and (plain != value or any(letter.isdigit() for letter in plain))
    return len(plain) >= 8 or not end.endswith("key")


def redact(text: str) -> str:
    """The text without this process's own secrets and what looks like a password, token or key."""
    text = without_own(text)
    text = _without_values(text, _small(text))
    small = _small(text)
    for rule in RULES:
        if any(word in small for word in rule.words):
            text = rule.pattern.sub(rule.replacement, text)
    return text


BARE_KEY = re.compile(
    r"(?<![\w/.@%-])(?=[\w+-]*\d)(?=[\w+-]*[A-Za-z])(?=[\w+-]*[A-Z]|[0-9a-f]{32,}(?![\w-]))"
    r"[A-Za-z0-9][\w+-]{23,}(?![\w/.-])"
)
_OF_VERSIONS = re.compile(
    r"(?i)(?:commit|sha\d*|rev(?:ision)?|ref|digest|hash|uuid|id|checkpoint)\W*$"
)
_UUID = re.compile(r"(?i)(?:GPU-|MIG-)*[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def without_bare_keys(text: str) -> str:
    """The same without long words of letters and digits in no order, as keys are.

    For what is asked of a program: in a log digests, commits and run ids look like that.
    """

    def hidden(match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 20) : match.start()]
        is_phrase = len(re.findall("[_-]", match[0])) > 3 and not re.search(r"[^_-]{12}", match[0])
        ordered = (
            is_phrase
            or len(set(match[0])) < 10
            or _UUID.fullmatch(match[0])
            or _OF_VERSIONS.search(before)
        )
        return match[0] if ordered else HIDDEN

    return BARE_KEY.sub(hidden, redact(text))


def line_with_secret(code: str) -> int | None:
    """The first line of a program that holds a secret as it is; None where none does.

    A program has many names of secrets and few values: a text of letters and digits counts alone.
    """
    holds_own = without_own(code) != code
    for number, line in enumerate(code.split("\n"), 1):
        clean = without_own(line) if holds_own else line
        for rule in RULES:
            if rule.sure and any(word in line.lower() for word in rule.words):
                clean = rule.pattern.sub(rule.replacement, clean)
        if clean != line or KEY_BEGINS.search(line):
            return number
        if _has_literal(line):
            return number
    return None


def _has_literal(line: str) -> bool:
    """Whether a secret's name is given a text that has letters and digits."""
    clean = _without_values(line, _small(line))
    if clean == line:
        return False
    begin = next(i for i, (a, b) in enumerate(zip(line, clean, strict=False)) if a != b)
    literal = re.match(r"([\"'])([^\"'\s{}]{12,})\1", line[begin:])
    return literal is not None and bool(
        re.search(r"\d", literal[2]) and re.search(r"[a-zA-Z]", literal[2])
    )


def _small(text: str) -> str:
    """The text in small letters, each in its place: of some letters the small one is two."""
    return text.lower() if text.isascii() else text.translate(_SMALL)


def redact_file(path: Path) -> None:
    """The same for a file: what a process wrote into it itself has not been looked at before."""
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    clean = redact(text)
    if clean != text:
        write_text(path, clean, below=IN_FOLDER)
