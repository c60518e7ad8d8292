"""Secrets as shells, settings, dumps and people write them are left out; what only looks alike is not."""

import base64
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest

from harness.provenance.redact import redact
from harness.provenance.redacted_lines import RedactedLines

KEY = "Zk9vQ2xwT3BxUjdzVDh1VjlXeFl6MDEy"
HEX = "0123456789abcdef0123456789abcdef01234567"
PRINTED = (
    *(f"PGPASSWORD={KEY} psql", f"MYSQLPASSWORD={KEY}", f"SMTP_PASS={KEY}", "DB_PASS=hunter2x"),
    *(f"setenv FOO_TOKEN {KEY}", f'setx FOO_TOKEN "{KEY}"', f"set -x API_KEY {KEY}"),
    *(f"aws configure set aws_secret_access_key {KEY}", f"<password>{KEY}</password>"),
    *(f"\x1b[1mHF_TOKEN\x1b[0m: {KEY}", f"'api_key'\x1b[39m: \x1b[32m'{KEY}'\x1b[39m"),
    *(json.dumps({"name": "DB_PASSWORD", "value": KEY}), f"- name: HF_TOKEN\n  value: {KEY}\n"),
    f"<input name='password' value='{KEY}'>",
    *(f"Cookie: session={KEY}; csrf={KEY}", f"Set-Cookie: id={KEY}; Path=/"),
    *(f"sshpass -p {KEY} ssh x", f"openssl enc -passin pass:{KEY}", f"mysql -uroot -p{KEY} db"),
    *(f"client-key-data: {KEY}{KEY}", json.dumps({"kty": "RSA", "d": KEY})),
    *(f"the password is {KEY}", f"password -> {KEY}", f"wandb.login(key='{HEX}')"),
    *(f"lin_api_{KEY}", f"dp.pt.{KEY}"),
)
OWN = "Tr0ub4dor&3/é+x9"
RAW = OWN.encode()
WRITTEN: dict[str, Callable[[], str]] = {
    "bytes of Python": lambda: repr(RAW),
    "ASCII": lambda: ascii(OWN),
    "hexadecimal": RAW.hex,
    "hexadecimal in capitals": lambda: RAW.hex().upper(),
    "a URL in a URL": lambda: quote(quote(OWN, safe=""), safe=""),
}
SEEN_IN_LOGS = (
    *("set token embeddings to zero2", "the token is the 128000000th of the corpus"),
    *("forward_pass: 12.5 ms", "name: val_loss, value: 3.28", "name=untied_head value=0.25"),
    *(
        "mysql --port=3306",
        "the key is the 2nd input",
        "<key>cosine</key>",
        "config key-value 12345678",
    ),
)


@pytest.mark.parametrize("printed", PRINTED)
def test_no_way_to_write_a_secret_keeps_it(printed: str) -> None:
    for clean in (redact(printed), RedactedLines()(printed + "\n")):
        assert "[redacted]" in clean
        assert not [part for part in (KEY, HEX, "hunter2x") if part in clean]
        assert redact(clean) == clean


@pytest.mark.parametrize("line", SEEN_IN_LOGS)
def test_what_only_looks_like_one_is_kept(line: str) -> None:
    assert redact(line) == line


@pytest.mark.parametrize("how", WRITTEN)
def test_an_own_secret_is_left_out_however_it_is_dumped(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_DB_PASS", OWN)
    assert WRITTEN[how]() not in redact(f"x {WRITTEN[how]()} y")


@pytest.mark.parametrize("n_before", range(4))
def test_an_own_secret_is_left_out_of_a_text_in_base64(
    n_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_DB_PASSWORD", OWN)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        clean = redact(encode(b"user:"[:n_before] + RAW + b" and more").decode())
        left, _, right = clean.partition("[redacted]")
        assert len(left) <= 8
        assert len(right) <= 16
