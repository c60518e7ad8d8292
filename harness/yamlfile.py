"""YAML as the project's files use it.

One mapping, no key twice, every key's line known, 1e-3 a number, `on` a word.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UserError
from harness.run.parse import SafeLoader, check_yaml


class _Loader(SafeLoader):
    """Loader that refuses duplicate keys and remembers the line of every key.

    It reads 1e-3 as a float, and on, off, yes and no as words (as YAML 1.2 does).
    """

    def __init__(self, stream: str, name: str) -> None:
        super().__init__(stream)
        self.name, self.lines = name, dict[tuple[str, ...], int]()

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(f"{self.name}:{key.start_mark.line + 1}: a key must be plain text")
            if key.value in seen:
                raise UserError(
                    f"{self.name}:{key.start_mark.line + 1}: key '{key.value}' is given twice; keep"
                    " one of them"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def note_lines(self, node: Any, path: tuple[str, ...] = ()) -> None:
        """Remember every key's line."""
        if isinstance(node, yaml.SequenceNode):
            for entry in node.value:
                self.note_lines(entry, (*path, ""))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self.lines[(*path, str(key.value))] = key.start_mark.line + 1
                self.note_lines(value, (*path, str(key.value)))


_BOOL = "tag:yaml.org,2002:bool"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _INT, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
# numbers as YAML 1.2 has them, with _ between digits: 1:30 is a word, not 90
_Loader.add_implicit_resolver(
    _INT,
    re.compile(r"^[-+]?(?:0|[1-9][0-9_]{0,99}|0x[0-9a-fA-F_]{1,99}|0b[01_]{1,99})$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"^(?:[-+]?(?:[0-9][0-9_]*)?\.?[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*\."
        r"(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def parse_value(text: str) -> Any:
    """A value given on the command line, read as YAML would read it."""
    try:
        check_yaml(text)
        return _Loader(text, "--set").get_single_data()
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise UserError(
            f"--set: cannot read the value {text!r}: {error.__class__.__name__}"
        ) from None


def _in_plain_words(text: str, error: yaml.YAMLError) -> yaml.YAMLError:
    """What PyYAML's own parser says of what libyaml refuses: it names the character."""
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.YAMLError as own:
        return own
    except (ValueError, OverflowError):  # of letters and versions that there are not
        return error
    return error


def _refusal(path: Path, error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"{path}: not valid YAML: {str(error).splitlines()[0]}"
    mark = error.problem_mark or error.context_mark
    line = f":{mark.line + 1}" if mark else ""
    return f"{path}{line}: not valid YAML: {error.problem or error.context}"


class YamlFile:
    """A mapping read from a file, with `where(*keys)` for messages: 'file:line'."""

    def __init__(self, path: Path, *, told_in: str = "docs/experiments.md") -> None:
        """told_in: the page that says what belongs in it. Raises UserError."""
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UserError(f"{path}: cannot be read: {reason}") from None
        try:
            check_yaml(text)
            loader = _Loader(text, str(path))
            node = loader.get_single_node()
            if node is None:
                raise UserError(f"{path}: the file is empty; see {told_in} for what belongs in it")
            loader.note_lines(node)
            self.data = loader.construct_document(node)
        except yaml.YAMLError as error:
            raise UserError(_refusal(path, _in_plain_words(text, error))) from None
        except (RecursionError, ValueError, OverflowError) as error:
            raise UserError(_refusal(path, error)) from None
        self.lines = loader.lines
        if not isinstance(self.data, dict):
            raise UserError(
                f"{path}: must be a mapping of keys to values, not {type(self.data).__name__}"
            )

    def where(self, *keys: str) -> str:
        """'file:line' of the innermost key of the path that the file has."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return f"{self.path}:{self.lines[keys]}" if keys else str(self.path)
