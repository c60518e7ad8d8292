"""An experiment's YAML file: its keys, the overrides of the command line, and messages that name file and line."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.config.presets import names, search
from harness.errors import UserError, near
from harness.yamlfile import YamlFile

FACTOR = re.compile(r"x([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)")
NOT_EXPERIMENTS = ("records", "scales")  # folders of experiments/ that hold something else
SCALED = (
    "set",
    "budgets",
    "target",
    "margin",
    "seeds",
    "axes",
    "primary",
    "published",
)  # keys that may depend on the scale


def experiment_names() -> list[str]:
    """Every experiment by its name: 'quickstart', 'deltas/r08'."""
    found = {
        p.relative_to(folder).with_suffix("")
        for folder in search(".")
        for p in folder.rglob("*.yaml")
    }
    return sorted(str(p) for p in found if p.parts[0] not in NOT_EXPERIMENTS)


def experiment_path(text: str) -> Path:
    """The file of EXP: a path, or a name in experiments/ such as quickstart or deltas/r08."""
    if text.endswith((".yaml", ".yml")):
        path = Path(text)
        if not path.is_file():
            raise UserError(f"{path}: no such experiment file{near(path.stem, experiment_names())}")
        return path
    for folder in search("."):
        if text in experiment_names() and (folder / f"{text}.yaml").is_file():
            return folder / f"{text}.yaml"
    known = experiment_names()
    by_hand = [
        name for name in known if "/" not in name
    ]  # where nothing is near: the catalogue is too long for a list
    raise UserError(f"unknown experiment '{text}'{near(text, known) or near(text, by_hand)}")


def in_folder(text: str) -> list[str]:
    """The experiments of a folder of experiments/ such as 'deltas'; EXP alone where it is none."""
    return [name for name in experiment_names() if name.startswith(f"{text}/")] or [text]


def factor_of(value: Any) -> float | None:
    """0.5 of 'x0.5'; None of what is no factor."""
    match = FACTOR.fullmatch(value) if isinstance(value, str) else None
    return float(match[1]) or None if match else None


class ExperimentFile:
    """The keys of one file, typed as they are asked for; every error is one line that begins with its place.

    data: the keys, those that --set overrides replaced. overrides: what --set gives beyond keys, dotted fields of every arm.
    """

    def __init__(self, path: Path, keys: Iterable[str], overrides: Mapping[str, Any]) -> None:
        keys, self.file = list(keys), YamlFile(path)
        self.path, self.data = path, dict(self.file.data)
        self.given = {
            k: v for k, v in overrides.items() if k in keys
        }  # --set scale=tiny, --set seeds=2
        for key in self.data:
            if key not in keys:
                raise self.fail(f"unknown key '{key}'{near(str(key), keys)}", str(key))
        self.overrides = {k: v for k, v in overrides.items() if k not in keys}
        self.data |= self.given
        self.data |= self._at_scale() | self.given

    def where(self, *keys: str) -> str:
        """'file:line' of the innermost key of the path that the file has, or '--set' where that replaced it."""
        if keys and keys[0] in self.given:
            return "--set"
        here = ("at_scale", self.scale, *keys)
        return self.file.where(*(here if keys and here in self.file.lines else keys))

    @property
    def scale(self) -> str:
        return str(self.data.get("scale", "gpt2"))

    def _at_scale(self) -> dict[str, Any]:
        """The keys that hold at this experiment's scale alone; its `set` adds to the file's."""
        sections = self.value("at_scale", dict, {}, "a mapping of scales to keys")
        for scale, section in sections.items():
            place = ("at_scale", str(scale))
            if scale not in names("scales"):
                raise self.fail(
                    f"at_scale: unknown scale '{scale}'{near(str(scale), names('scales'))}", *place
                )
            if not isinstance(section, dict):
                raise self.fail(f"at_scale: {scale} must be a mapping of keys to values", *place)
            for key in section:
                if key not in SCALED:
                    raise self.fail(
                        f"at_scale may hold {', '.join(SCALED)}, not '{key}'{near(str(key), SCALED)}",
                        *place,
                        key,
                    )
        own, general = dict(sections.get(self.scale, {})), self.data.get("set")
        if isinstance(own.get("set"), dict) and isinstance(general, dict):
            own["set"] = {**general, **own["set"]}
        return own

    def fail(self, message: str, *keys: str) -> UserError:
        return UserError(f"{self.where(*keys)}: {message}")

    def at(self, *keys: str) -> Callable[..., str]:
        """`where` for messages about what lies below these keys."""
        return lambda *below: self.where(*keys, *below)

    def value(self, key: str, kind: type | tuple[type, ...], default: Any, words: str) -> Any:
        """The value of a key, or the default; raises UserError if it is of another kind."""
        value = self.data.get(key, default)
        if value is not default and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            raise self.fail(f"{key} is {value!r}, but must be {words}", key)
        return value

    def items(self, key: str, kind: type | tuple[type, ...]) -> list[Any]:
        """The list of a key, [] where it is absent."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or any(
            not isinstance(v, kind) or isinstance(v, bool) for v in value
        ):
            raise self.fail(
                f"{key} must be a list of {'names' if kind is str else 'whole numbers'}", key
            )
        return value

    def choice(self, key: str, known: Iterable[str], default: str, message: str) -> str:
        """One of the known words; `message` has {value}, {known}."""
        value, known = self.value(key, str, default, "text"), list(known)
        if value not in known:
            raise self.fail(
                message.format(value=value, known=", ".join(known)) + near(value, known), key
            )
        return str(value)
