"""Secrets are left out of everything that is printed or kept.

By value, where this process has them in its environment (own_secrets.py), and by their look: what
is called a secret, what has the form of a known service's key, what stands where a secret stands.
Every rule has the words without which it cannot apply: most of a log is asked for those alone.
"""

import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.provenance.own_secrets import without_own
from harness.run.files import write_text
from harness.run.guarded import IN_FOLDER, read_bytes

HIDDEN = "[redacted]"
# The end of a name. Singular only, for tokens are what this project counts.
_ENDS = ("token", "secret", "password", "passwd", "pwd", "passphrase", "credential", "auth", "key")
_BEFORE_KEY = (
    r"api|access|private|secret|account|signing|encryption|master|shared|sharedaccess|"
    r"webhook|deploy|"
    r"license|subscription|stripe|openai|anthropic|wandb|hf|aws|azure|gcp|s3|slack|bot|ssh|service"
)
NAMED = rf"(?:token|secret|passw(?:or)?d|passphrase|credentials?|auth|(?:{_BEFORE_KEY})[-_]?key)"
_BEFORE = re.compile(  # a name that goes right on: githubtoken, githubToken
    r"(?:(?:.*[_.-])?(?:hf|gh|github|gitlab|wandb|api|access|auth|bearer|refresh|"
    r"session|client|secret|"
    r"db|sql)?|.*[_.-])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?:.*[_.-])?[a-z]\w{0,60}")
_OF_KEY = re.compile(rf"(?:.*[_.-]|.*[a-z](?=[A-Z]))?(?:{_BEFORE_KEY})[-_]?", re.IGNORECASE)
_TYPE = (  # of an annotation: a type is no secret
    r"(?:str|bytes|int|float|bool|None|Any|Optional|Final|SecretStr)"
)
_ANNOTATION = rf"\s*:\s*{_TYPE}[\w\[\]|., ]{{0,60}}\s*="
_BARE = r"(?:[^\s,;&\"']|[,;&](?![\s,;&\"']|[\w.-]{1,60}\\?[\"']?\s?[=:]|$)){1,4000}"
_VALUE = (
    r"(\"\"\"[\s\S]{0,4000}?\"\"\"|'''[\s\S]{0,4000}?'''|"
    r"(?P<slashes>\\{1,8})(?P<mark>[\"']).{0,4000}?(?<!\\)(?P=slashes)(?P=mark)|"  # \"...\"
    r"\"(?:[^\"\\\n]|\\[\s\S])*\"|'(?:[^'\\\n]|\\[\s\S])*'|"
    r"[|>][+-]?\n(?:[ \t]+\S[^\n]*\n?){1,200}|"  # YAML's texts of several lines
    rf"(?:{_BARE}\\\n\s*){{1,50}}{_BARE}|{_BARE})"
)
_ASSIGNED = re.compile(  # behind the end of a name
    rf"(?i)(s?\\{{0,8}}[\"']?\]?(?:{_ANNOTATION}|[ \t]*(?:=>|:=|[=:]))[ \t]*"
    r"(?:[rbuf]{1,2}(?=[\"']))?)"
    rf"{_VALUE}"
)
_NO_SECRET = re.compile(
    rf"(?:None|True|False|null|true|false|lambda|\[redacted|{_TYPE})(?![\w.-])|"
    r"os\.(?:environ|getenv)\b|getenv\(|\$\{?\w+\}?$|\{\w*\}$"
)
# SEPARATOR_TOKEN = 256 is a token to be trained on; a password may well be a number
_COUNT = re.compile(r"[+-]?\d{1,6}(?:\.\d*)?(?:e[+-]?\d+)?[)\]}]*")
LONGEST_NAME = 110
_FOLLOWS = re.compile(r"[sS]?\\{0,8}[\"']?\]?\s*[=:]")
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
        found = _ASSIGNED.match(text, at) if at >= done and _is_name(text, at) else None
        if found is None or not _is_value(text, at, found):
            continue
        pieces += [text[done : found.end(1)], HIDDEN]
        done = found.end() - found[0].endswith("\n")
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
    return bool(_BEFORE.fullmatch(before) or (core[0].isupper() and _CAMEL.fullmatch(before)))


def _is_value(text: str, at: int, found: re.Match[str]) -> bool:
    """Whether what is assigned to the name that ends there can be a secret."""
    value, end = found[2], text[max(0, at - 10) : at].lower()
    plain = value.strip(_MARKS)
    if not plain or _NO_SECRET.match(value):
        return False
    if found[1][:1] in "sS" and not end.endswith("credential"):
        return False
    if end.endswith("token"):
        return len(plain) >= 5 and not _COUNT.fullmatch(value)
    if text[at - 4 : at] == "_KEY" or text[at - 3 : at] == "KEY":
        return len(plain) >= 8 and (plain != value or any(letter.isdigit() for letter in plain))
    return len(plain) >= 8 or not end.endswith("key")


def _without_user(match: re.Match[str]) -> str:
    """`-u name:password` without the password; 1000:1000 is a user and a group."""
    return match[0] if match[3].isdigit() else f"{match[1]}{match[2]}:{HIDDEN}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A look of secrets, and what is put in its place."""

    words: tuple[str, ...]  # one of these stands in every text, in small letters, that has it
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = HIDDEN
    sure: bool = False  # it is no secret's name alone, so that it counts in a program too


KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
RULES = (
    Rule(
        words=("private key", "private-lines"),
        pattern=re.compile(
            rf"{KEY_BEGINS.pattern}[\s\S]*?(?:{KEY_ENDS.pattern}|\Z)|"
            r"Private-Lines: \d+\s*\n(?:[A-Za-z0-9+/=]+\n?)+"
        ),
        replacement="[redacted key]",
    ),
    Rule(
        words=("://",),
        pattern=re.compile(
            r"\b([a-z][a-z0-9+.-]{0,20}://)"
            r"(?:[^\s/@:\"'<>]{0,200}:(?!\d{1,5}/)[^\s\"'<>]{1,500}|[^\s/@]{1,500})@(?=[\w\[])"
        ),
        replacement=rf"\1{HIDDEN}@",
    ),
    Rule(
        words=("hook",),
        sure=True,
        pattern=re.compile(
            r"(?i)(https?://(?:hooks?\.[\w.-]{1,100}|[\w.-]{1,100}\.webhook\.office\.com|"
            r"[\w.-]{0,60}discord(?:app)?\.com/api/webhooks|"
            r"[\w.-]{1,100}/(?:[\w.-]{1,40}/){0,3}(?:web)?hooks?)/)[^\s\"'<>]+"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("sig", "key=", "code="),
        pattern=re.compile(
            r"(?i)([?&;](?:amp;)?(?:sig|signature|x-amz-signature|x-goog-signature|key|code)=)"
            r"[^\s&\"'<>;,]{6,}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("password", "passwd"),
        pattern=re.compile(
            r"(?i)((?:\b(?:machine|default|login)\s[^\n]{0,200}?\s|^\s*)"
            r"passw(?:or)?d\s+)(?![=:])\S+"
            r"(?=[ \t]*(?:$|account|machine|#))",
            re.MULTILINE,
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("env", "setdefault"),
        pattern=re.compile(
            rf"(?i)((?:environ|env|setdefault|getenv|putenv|setenv)\b[.\w]{{0,20}}\(\s*\\?[\"']"
            rf"(?:[\w.-]{{0,100}}[_.-])?(?:{NAMED}|KEY)\\?[\"']\s*,\s*)(?!\[redacted){_VALUE}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("token", "secret", "passw", "passphrase", "credential", "auth", "key"),
        pattern=re.compile(
            rf"(?i)((?<![\w-])--?(?:[\w.-]{{0,100}}[_.-])?(?:{NAMED})\s+)(?!-|\[redacted){_VALUE}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("-u", "--user"),
        pattern=re.compile(r"((?<![\w-])(?:-u|--user)[ =]+)([^\s:\"'/]{1,100}):([^\s\"']{4,})"),
        replacement=_without_user,
    ),
    Rule(
        words=("wandb login",),
        pattern=re.compile(r"(\bwandb login\s+(?:--\S+\s+){0,3})[^\s-]\S{15,}"),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("authorization",),
        pattern=re.compile(r"(?i)\b(authorization\\*[\"']?\s*[:=]\s*\\*[\"']?\w+\s+)[^\s\"'\\]+"),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("bearer", "basic"),
        pattern=re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*[\d=])[A-Za-z0-9._~+/=-]{8,}"),
        replacement=rf"\1 {HIDDEN}",
    ),
    Rule(
        words=(
            *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "sk_", "rk_"),
            *("xox", "xapp-", "akia", "asia", "eyj", "aiza", "wandb_v", "glpat-", "npm_", "pypi-"),
            *("sg.", "ya29.", "nvapi-", "r8_", "gsk_", "hvs.", "dop_v1_", "shpat_", "dapi", "key-"),
            *("age-secret", "whsec_", "bot", ":aa"),
        ),
        sure=True,
        pattern=re.compile(
            r"(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|"
            r"github_pat_\w{20,}|"
            r"sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_\w{10,}|whsec_[\w+/=-]{16,}|"
            r"xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|"
            r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|AIza[\w-]{30,}|wandb_v\d_\w{20,}|glpat-[\w-]{16,}|"
            r"npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|ya29\.[\w-]{20,}|"
            r"nvapi-[\w-]{20,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{20,}|hvs\.[\w-]{20,}|"
            r"dop_v1_[0-9a-f]{40,}|shpat_[0-9a-f]{20,}|dapi[0-9a-f]{32}|key-[0-9a-f]{32}|"
            r"AGE-SECRET-KEY-1[A-Z0-9]{20,}|(?:bot)?\d{8,10}:AA[\w-]{30,})"
        ),
    ),
)


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

    def hidden(found: re.Match[str]) -> str:
        before = found.string[max(0, found.start() - 20) : found.start()]
        words = len(re.findall("[_-]", found[0])) > 3 and not re.search(r"[^_-]{12}", found[0])
        ordered = (
            words
            or len(set(found[0])) < 10
            or _UUID.fullmatch(found[0])
            or _OF_VERSIONS.search(before)
        )
        return found[0] if ordered else HIDDEN

    return BARE_KEY.sub(hidden, redact(text))


def line_with_secret(code: str) -> int | None:
    """The first line of a program that holds a secret as it is; None where none does.

    A program has many names of secrets and few values: a text of letters and digits counts alone.
    """
    for number, line in enumerate(code.split("\n"), 1):
        clean = without_own(line)
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
    found = re.match(r"([\"'])([^\"'\s{}]{12,})\1", line[begin:])
    return found is not None and bool(
        re.search(r"\d", found[2]) and re.search(r"[a-zA-Z]", found[2])
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
