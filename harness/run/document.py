"""Names for what has no fixed shape: the raw content of files, and values by dotted field."""

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]  # what a JSON or YAML file holds, or a part of it, as it was read
Content = dict[str, Any]  # what a JSON or YAML file, or `--json`, will hold
Schema = dict[str, Any]  # a JSON Schema, or a part of it
Cells = dict[str, Any]  # a row of a table: column -> what its cell says
Fields = Mapping[str, Any]  # dotted field of a configuration -> its value


def listed(value: Any) -> Any:
    """Tuples as lists, as JSON knows them."""
    if isinstance(value, Mapping):
        return {k: listed(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [listed(v) for v in value]
    return value
