"""Secrets are left out of everything that is kept."""

import re
from collections.abc import Callable
from pathlib import Path

from harness.run.files import write_text
from harness.run.guarded import IN_FOLDER, read_bytes

# lengths are bounded, for a line of a log may be very long; singular only, for tokens are what this
# project counts
_SECRET = (
    r"(?:[\w.-]{0,100}[_.-])?(?:(?:hf|gh|github|gitlab|wandb|api|access|auth|bearer|refresh|"
    r"session|client|secret)?"
    r"(?:token|secret)|passw(?:or)?d|passphrase|credentials?|"
    r"(?:api|access|private|secret)[-_]?key|auth)"
)
# githubToken
_CAMEL = (
    r"(?-i:[a-z]\w{0,60}?(?:Token|Secret|Passw(?:or)?d|Passphrase|Credentials?|"
    r"(?:Api|Access|Private|Secret)Key))"
)
_TYPE = (  # of an annotation: a type is no secret
    r"(?:str|bytes|int|float|bool|None|Any|Optional|Final|SecretStr)"
)
_ANNOTATION = rf"\s*:\s*{_TYPE}[\w\[\]|., ]{{0,60}}\s*="
_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w-])({_SECRET}|{_CAMEL})([\"']?(?:{_ANNOTATION}|\s*[=:])\s*){_VALUE}"
)
_NO_SECRET = re.compile(
    rf"(?:None|True|False|null|true|false|lambda|\[redacted\]|{_TYPE})(?![\w.-])"
)
# SEPARATOR_TOKEN = 256 is a token to be trained on; a password may well be a number
_COUNT = re.compile(r"\d{1,6}[)\]}]*")


def _without_value(match: re.Match[str]) -> str:
    """`name = value` without the value, unless that can be no secret."""
    name, between, value = match.groups()
    harmless = name.lower().endswith("token") and (
        _COUNT.fullmatch(value) or len(value.strip("\"'")) < 5
    )
    return match[0] if harmless or _NO_SECRET.match(value) else f"{name}{between}[redacted]"


REDACTIONS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_ASSIGNED, _without_value),
    (re.compile(rf"(?i)((?<![\w-])--?{_SECRET}\s+){_VALUE}"), r"\1[redacted]"),
    (re.compile(r"(?i)\b(authorization:\s*\w+\s+)[^\s\"']+"), r"\1[redacted]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 [redacted]"),
    (re.compile(r"\b([a-z][a-z0-9+.-]{0,20}://)[^\s/@]{1,500}@"), r"\1[redacted]@"),
    (
        re.compile(
            r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|"
            r"sk-[A-Za-z0-9_-]{16,}|xox[abprs]-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|"
            r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|AIza[\w-]{30,}|wandb_v\d_\w{20,}|glpat-[\w-]{16,})"
        ),
        "[redacted]",
    ),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        "[redacted key]",
    ),
)


def redact(text: str) -> str:
    """The text without what looks like a password, token or key."""
    for pattern, replacement in REDACTIONS:
        text = pattern.sub(replacement, text)
    return text


def redact_file(path: Path) -> None:
    """The same for a file: what a process wrote into it itself has not been looked at before."""
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    clean = redact(text)
    if clean != text:
        write_text(path, clean, below=IN_FOLDER)
