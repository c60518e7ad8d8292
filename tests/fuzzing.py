"""What fuzzers share: values and bytes that nobody expects, and commands in this process, with what they said and took."""

import contextlib
import io
import time
from typing import Any

from hypothesis import strategies as st

from harness.__main__ import main

NASTY = (
    *(
        None,
        True,
        "",
        "a",
        [],
        {},
        [[]],
        {"a": []},
        0,
        -1,
        1,
        2**63,
        10**400,
        1e200,
        1e308,
        -1e308,
        1e-320,
    ),
    *(
        "1:30",
        "x1e400",
        "-rf",
        "--help",
        "../../..",
        "/dev/zero",
        "\x1b[2J\x1b]0;x\x07",
        "x" * 5000,
        "\u202e",
    ),
)
VALUE = st.one_of(
    st.sampled_from(NASTY),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=5,
    ),
)


def changed(value: Any, data: st.DataObject) -> Any:
    """The value with something else at one place, which is drawn on the way down."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 9)):
        inner = dict(value) if isinstance(value, dict) else list(value)
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        key = data.draw(st.sampled_from(list(keys)))
        inner[key] = changed(inner[key], data)
        return inner
    return data.draw(VALUE)


def damaged(content: bytes, data: st.DataObject, way: str | None = None) -> bytes:
    """Other bytes: some replaced, all but the first so many left out, or the last so many twice."""
    way = way or data.draw(st.sampled_from(("bytes", "cut", "twice")))
    at = data.draw(st.integers(0, len(content)))
    if way == "cut":
        return content[:at]
    if way == "twice":
        return content + content[at:]
    return content[:at] + data.draw(st.binary(max_size=40)) + content[at + 4 :]


def said_by(words: tuple[object, ...]) -> tuple[Any, str, float]:
    """A command's exit code, its last words, and its seconds of processor."""
    out, err, began, code = io.StringIO(), io.StringIO(), time.process_time(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code or 0
    assert "\x1b" not in out.getvalue() + err.getvalue(), words
    return code, err.getvalue(), time.process_time() - began
