"""The secrets of this process's environment are left out whole, however a program writes them."""

import base64
import html
import json
import sys
from urllib.parse import quote, quote_plus

import pytest

from harness.provenance.own_secrets import own_in, printed_without_own, without_own

OWN = 'é"q\\z\t<&+ x/end'
RAW = OWN.encode()
WRITTEN = {
    **{"as it is": OWN, "Python": repr(OWN)[1:-1], "ASCII": ascii(OWN)[1:-1]},
    **{"JSON": json.dumps(OWN)[1:-1], "JSON in JSON": json.dumps(json.dumps(OWN)[1:-1])[1:-1]},
    **{"a URL": quote(OWN), "a part of a URL": quote(OWN, safe=""), "a form": quote_plus(OWN)},
    **{"a URL in a URL": quote(quote(OWN, safe=""), safe=""), "HTML": html.escape(OWN)},
    **{"bytes": repr(RAW)[2:-1], "digits": RAW.hex(), "capital digits": RAW.hex().upper()},
    "base64": base64.b64encode(RAW).decode(),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_nothing_of_an_own_secret_is_left_however_it_is_written(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({*WRITTEN.values()}) == len(WRITTEN)
    monkeypatch.setenv("MY_PASSWORD", OWN)
    assert without_own(f"x {WRITTEN[how]} y") == "x [redacted] y"
    monkeypatch.setenv("MY_PASSWORD", f"{OWN} ")  # as a file's last line
    assert without_own(f"x={WRITTEN['as it is']}, y") == "x=[redacted], y"


@pytest.mark.parametrize("n_before", range(4))
@pytest.mark.parametrize(
    ("own", "is_sought"), [(OWN, True), ("hunter28", True), ("hunter2", False)]
)
def test_of_a_secret_within_base64_only_what_others_decide_too_is_left(
    n_before: int, own: str, is_sought: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", own)
    raw = own.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"us~r"[:n_before] + raw + b" and more").decode()
        begin, end = -(-8 * n_before // 6), 8 * (n_before + len(raw)) // 6
        clean = f"{text[:begin]}[redacted]{text[end:]}" if is_sought else text
        assert without_own(text) == clean


def test_of_secrets_that_begin_alike_the_longer_one_is_left_out_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_TOKEN", "mnbvcxzlpo")
    monkeypatch.setenv("B_TOKEN", "mnbvcxzlpoasdfgh")
    assert without_own("mnbvcxzlpoasdfgh mnbvcxzlpoa") == "[redacted] [redacted]a"
    assert [own_in(text) for text in ("mnbvcxzlp", "xmnbvcxzlpo")] == [None, "A_TOKEN"]


def test_what_is_printed_meanwhile_is_printed_without_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_PASSWORD", OWN)
    before = sys.stdout, sys.stderr

    def prints_and_fails() -> None:
        assert sys.stdout.write(f"a {OWN}\n") == len(f"a {OWN}\n")
        print(OWN, file=sys.stderr)
        assert sys.stdout.encoding == before[0].encoding
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"), printed_without_own():
        prints_and_fails()
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == ("a [redacted]\n", "[redacted]\n")


@pytest.mark.parametrize(
    ("value", "text", "clean"),
    [
        ("https://me:abcdef1@host.example/x", "abcdef1 me", "[redacted] me"),
        ("https://me:abcde@host.example/x", "abcde me", "abcde me"),
        ("HTTPS://:abcdef1@host.example", "abcdef1", "[redacted]"),
        ("mailto me:abcdef1@host.example", "abcdef1", "abcdef1"),
    ],
)
def test_a_password_in_a_url_is_a_secret_whatever_the_variable_is_called(
    value: str, text: str, clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADDRESS", value)
    assert without_own(text) == clean


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("MY_TOKEN", "disabled", False),
        ("MY_TOKEN", "DryRun", False),
        ("MY_TOKEN", "disabled1", True),
        ("MY_TOKEN", "1234567", False),
        ("MY_TOKEN", "12345678", True),
        ("MY_TOKEN", "-12345.25e-10", False),
        ("MY_KEY", "/dev/null", False),
        ("MY_KEY", "/dev/null/key", True),
        ("MY_KEY", "dev/null", True),
        ("PWD", "abcdef12", False),
        ("OLDPWD", "abcdef12", False),
        ("MY_PWD", "abcdef12", True),
        ("MY_NOTE", "abcdef12", False),
    ],
)
def test_a_word_a_number_or_a_path_that_is_there_is_no_secret(
    name: str, value: str, is_secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert without_own(f"x {value} y") == ("x [redacted] y" if is_secret else f"x {value} y")
    assert own_in(f"x {value} y") == (name if is_secret else None)
