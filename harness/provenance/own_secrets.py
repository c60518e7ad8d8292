"""The secrets in this process's environment, known by value, left out wherever they stand."""

import base64
import html
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote, quote_plus

HIDDEN = "[redacted]"  # stands where a secret stood
LEAST = 6  # letters; a shorter value is a word of any text
ALONE = 10  # letters; a shorter value counts only where no letter or digit stands beside it
LEAST_LINE = 16  # letters of a line of a value that has several
_NAME = re.compile(
    r"(?i)(?:.*[_.-])?(?:\w*token|\w*secret|passw(?:or)?d|\w*passwd|pwd|pgpassword|passphrase|"
    r"credentials?|\w*key|auth|pass|pat|dsn|cookie|webhook|\w*webhook_url|signature|sas)"
)
_IN_URL = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[^\s/@:]{0,200}:([^\s]{1,500})@", re.IGNORECASE)
_WORDS = {"disabled", "enabled", "offline", "online", "required", "default", "public", "dryrun"}
_NUMBER = re.compile(r"[+-]?\d{1,7}(?:\.\d*)?(?:e[+-]?\d+)?")
_OF_URLS = str.maketrans("+/", "-_")
_PARTED = ("PWD", "OLDPWD")  # where the shell is


def without_own(text: str) -> str:
    """The text without the values of secret-looking variables, however they are written."""
    for value, alone in _own(tuple(os.environ.items())):
        if value in text:
            text = alone.sub(HIDDEN, text) if alone else text.replace(value, HIDDEN)
    return text


def own_in(text: str) -> str | None:
    """The name of a variable whose secret stands in the text; None where none does."""
    for name, value in os.environ.items():
        if any(secret in text for secret in _secrets_of(name, value)):
            return name
    return None


class OwnLeftOut:
    """A stream of text that leaves this process's own secrets out of what it is given."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(without_own(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printed_without_own() -> Iterator[None]:
    """What is printed meanwhile is printed without this process's own secrets."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = OwnLeftOut(out), OwnLeftOut(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


@lru_cache(maxsize=4)
def _own(
    variables: tuple[tuple[str, str], ...],
) -> tuple[tuple[str, re.Pattern[str] | None], ...]:
    """(a secret in one of its writings, how it is looked for if it is short), longest first."""
    written: set[str] = set()
    for name, value in variables:
        for secret in _secrets_of(name, value):
            written |= _writings(secret)
    secrets = []
    for text in sorted(written, key=len, reverse=True):
        alone = None
        if len(text) < ALONE:
            alone = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
        secrets.append((text, alone))
    return tuple(secrets)


def _secrets_of(name: str, value: str) -> list[str]:
    """What of a variable is secret."""
    secrets = []
    if _NAME.fullmatch(name) and name not in _PARTED and not _harmless(value):
        secrets.append(value)
        lines = value.splitlines()
        if len(lines) > 1:
            lines = [line.strip() for line in lines if "-----" not in line]  # of any key
            secrets += [line for line in lines if len(line) >= LEAST_LINE]
    secrets += [password for password in _IN_URL.findall(value) if not _harmless(password)]
    return secrets


def _harmless(value: str) -> bool:
    """Whether a value is too much like any word, number or path to be looked for."""
    if len(value) < LEAST or value.lower() in _WORDS or _NUMBER.fullmatch(value):
        return True
    return value.startswith(("/", "~", "./")) and os.path.lexists(Path(value).expanduser())


def _writings(secret: str) -> set[str]:
    """The secret as it is, and as URLs, JSON, Python, HTML, headers and dumps write it."""
    in_json = json.dumps(secret)[1:-1]
    raw = secret.encode("utf-8", "surrogateescape")
    encoded = base64.b64encode(raw).decode()
    return {
        *_inside_base64(raw),
        raw.hex(),
        raw.hex().upper(),
        repr(raw)[2:-1],
        ascii(secret)[1:-1],
        quote(quote(raw, safe=""), safe=""),
        secret,
        secret.strip(),
        in_json,
        json.dumps(in_json)[1:-1],
        repr(secret)[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        html.escape(secret),
        encoded,
    }


def _inside_base64(raw: bytes) -> Iterator[str]:
    """What its bytes alone decide of a text in base64, wherever in that they stand."""
    for n_before in range(3):
        encoded = base64.b64encode(bytes(n_before) + raw).decode()
        begin, end = -(-8 * n_before // 6), 8 * (n_before + len(raw)) // 6
        if end - begin >= ALONE:
            yield encoded[begin:end]
            yield encoded[begin:end].translate(_OF_URLS)
