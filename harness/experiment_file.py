"""An experiment's YAML file: its keys, the overrides of the command line, and messages that name file and line."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.presets import find, names, near
from harness.yamlfile import YamlFile


def experiment_path(text: str) -> Path:
    """The file of EXP: a path, or a name in experiments/."""
    if text.endswith((".yaml", ".yml")):
        path = Path(text)
        if not path.is_file():
            raise UserError(f"{path}: no such experiment file{near(path.stem, names('.'))}")
        return path
    return find(".", text, "experiment")


class ExperimentFile:
    """The keys of one file, typed as they are asked for; every error is one line that begins with its place.

    data: the keys, those that --set overrides replaced. overrides: what --set gives beyond keys, dotted fields of every arm.
    """

    def __init__(self, path: Path, keys: Iterable[str], overrides: Mapping[str, Any]) -> None:
        keys, self.file = list(keys), YamlFile(path)
        self.path, self.data = path, dict(self.file.data)
        self.given = {k: v for k, v in overrides.items() if k in keys}  # --set scale=tiny, --set seeds=2
        for key in self.data:
            if key not in keys:
                raise self.fail(f"unknown key '{key}'{near(str(key), keys)}", str(key))
        self.overrides = {k: v for k, v in overrides.items() if k not in keys}
        self.data |= self.given

    def where(self, *keys: str) -> str:
        """'file:line' of the innermost key of the path that the file has, or '--set' where that replaced it."""
        return "--set" if keys and keys[0] in self.given else self.file.where(*keys)

    def fail(self, message: str, *keys: str) -> UserError:
        return UserError(f"{self.where(*keys)}: {message}")

    def at(self, *keys: str) -> Callable[..., str]:
        """`where` for messages about what lies below these keys."""
        return lambda *below: self.where(*keys, *below)

    def value(self, key: str, kind: type | tuple[type, ...], default: Any, words: str) -> Any:
        """The value of a key, or the default; raises UserError if it is of another kind."""
        value = self.data.get(key, default)
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise self.fail(f"{key} is {value!r}, but must be {words}", key)
        return value

    def items(self, key: str, kind: type) -> list[Any]:
        """The list of a key, [] where it is absent."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or any(not isinstance(v, kind) or isinstance(v, bool) for v in value):
            raise self.fail(f"{key} must be a list of {'names' if kind is str else 'whole numbers'}", key)
        return value

    def choice(self, key: str, known: Iterable[str], default: str, message: str) -> str:
        """One of the known words; `message` has {value}, {known}."""
        value, known = self.value(key, str, default, "text"), list(known)
        if value not in known:
            raise self.fail(message.format(value=value, known=", ".join(known)) + near(value, known), key)
        return str(value)
