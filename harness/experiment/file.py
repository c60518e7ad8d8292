"""An experiment's YAML file: its keys, what --set replaces, messages that name the line."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from harness.config.presets import names, search
from harness.config.run import toggles
from harness.errors import Mistakes, UserError, near
from harness.run.document import Content, Fields
from harness.run.renamed import in_todays_words, lines_in_todays_words
from harness.run.typed import FARTHEST
from harness.yamlfile import YamlFile

FACTOR = re.compile(r"x([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)")
NOT_EXPERIMENTS = ("records", "scales")  # folders of experiments/ that hold something else
MEANT = {  # what others call a key -> the key
    "steps": "budgets",
    "max_steps": "budgets",
    "iterations": "budgets",
    "epochs": "budgets",
    "baseline": "base",
    "variants": "changes",
    "grid": "axes",
    "sweep": "axes",
    "metric": "primary",
    "repeats": "seeds",
}
SCALED = (  # keys that may depend on the scale
    "set",
    "budgets",
    "target",
    "margin",
    "seeds",
    "axes",
    "primary",
    "published",
)


def experiment_names() -> list[str]:
    """Every experiment by its name: 'quickstart', 'deltas/r08'."""
    experiments = set()
    for folder in search("."):
        for path in folder.rglob("*.yaml"):
            name = path.relative_to(folder).with_suffix("")
            if name.parts[0] not in NOT_EXPERIMENTS:
                experiments.add(str(name))
    return sorted(experiments)


def _is_name(text: str) -> bool:
    """Whether a text may be one of experiment_names(), or lie in a folder that a link leads to."""
    parts = PurePosixPath(text).parts or (".",)
    return "/".join(parts) == text and parts[0] not in NOT_EXPERIMENTS and ".." not in parts


def experiment_path(text: str) -> Path:
    """The file of EXP: a path, or a name in experiments/ such as quickstart or deltas/r08."""
    if text.endswith((".yaml", ".yml")):
        path = Path(text)
        if not path.is_file():
            raise UserError(f"{path}: no such experiment file{near(path.stem, experiment_names())}")
        return path
    for folder in search("."):
        if (folder / f"{text}.yaml").is_file() and _is_name(text):
            return folder / f"{text}.yaml"
    every = experiment_names()
    # where nothing is near, those at the top: all of them are too many for a list
    at_top = [name for name in every if "/" not in name]
    raise UserError(f"unknown experiment '{text}'{near(text, every) or near(text, at_top)}")


def in_folder(text: str) -> list[str]:
    """The experiments of a folder of experiments/ such as 'deltas'; EXP alone where it is none."""
    return [name for name in experiment_names() if name.startswith(f"{text}/")] or [text]


def factor_of(value: Any) -> float | None:
    """0.5 of 'x0.5'; None of what is no factor, or one beyond all bounds."""
    if not isinstance(value, str):
        return None
    match = FACTOR.fullmatch(value)
    if match is None:
        return None
    factor = float(match[1])
    return factor if 0 < factor <= FARTHEST else None


def _meant(key: str, keys: Sequence[str]) -> str:
    """What was meant by a key that there is not."""
    if MEANT.get(key) in keys:
        return f"; did you mean '{MEANT[key]}'?"
    for field, _ in toggles():
        if "set" in keys and key in (field, field.partition(".")[2]):
            return f"; a field stands under `set` or in a change: set: {{{field}: ...}}"
    return near(key, keys)


class ExperimentFile:
    """The keys of one file, typed as they are asked for.

    Every error is one line that begins with its place. data: the keys, those that --set
    overrides replaced. overrides: what --set gives beyond keys, dotted fields of every arm.
    """

    def __init__(self, path: Path, keys: Iterable[str], overrides: Fields) -> None:
        keys = list(keys)
        self.path, self.file = path, YamlFile(path)
        self.data = in_todays_words(self.file.data, self.file.where)
        self.file.lines = lines_in_todays_words(self.file.lines)
        overrides = in_todays_words(overrides, lambda *keys: "--set")
        self.given: Content = {}  # of keys: --set scale=tiny, --set seeds=2
        self.overrides: Content = {}
        for key, value in overrides.items():
            target = self.given if key in keys else self.overrides
            target[key] = value
        self.mistakes = Mistakes()  # those found so far; what has read the keys refuses them
        for key in self.data:
            if key not in keys:
                with self.mistakes.gathered():
                    raise self.fail(f"unknown key '{key}'{_meant(str(key), keys)}", str(key))
        self.data |= self.given
        with self.mistakes.gathered():
            self.data |= self._at_scale() | self.given

    def where(self, *keys: str) -> str:
        """'file:line' of the innermost key of the path that the file has.

        '--set' where that replaced it.
        """
        if keys and keys[0] in self.given:
            return "--set"
        at_scale = ("at_scale", self.scale, *keys)
        if keys and at_scale in self.file.lines:
            return self.file.where(*at_scale)
        return self.file.where(*keys)

    @property
    def scale(self) -> str:
        return str(self.data.get("scale", "gpt2"))

    def _at_scale(self) -> Content:
        """The keys that hold at this experiment's scale alone; its `set` adds to the file's."""
        sections = self.value("at_scale", dict, {}, "a mapping of scales to keys")
        for scale, section in sections.items():
            self._check_section(scale, section)
        at_this = dict(sections.get(self.scale, {}))
        everywhere = self.data.get("set")
        if isinstance(at_this.get("set"), dict) and isinstance(everywhere, dict):
            at_this["set"] = {**everywhere, **at_this["set"]}
        return at_this

    def _check_section(self, scale: Any, section: Any) -> None:
        place = ("at_scale", str(scale))
        scales = names("scales")
        if scale not in scales:
            raise self.fail(f"at_scale: unknown scale '{scale}'{near(str(scale), scales)}", *place)
        if not isinstance(section, dict):
            raise self.fail(f"at_scale: {scale} must be a mapping of keys to values", *place)
        for key in section:
            if key not in SCALED:
                raise self.fail(
                    f"at_scale may hold {', '.join(SCALED)}, not '{key}'{near(str(key), SCALED)}",
                    *place,
                    key,
                )

    def fail(self, message: str, *keys: str) -> UserError:
        return UserError(f"{self.where(*keys)}: {message}")

    def at(self, *keys: str) -> Callable[..., str]:
        """`where` for messages about what lies below these keys."""

        def where(*below: str) -> str:
            return self.where(*keys, *below)

        return where

    def value(self, key: str, kind: type | tuple[type, ...], default: Any, must_be: str) -> Any:
        """The value of a key, or the default; raises UserError if it is of another kind."""
        value = self.data.get(key, default)
        if value is default:
            return value
        false_kind = isinstance(value, bool) and kind is not bool
        if false_kind or not isinstance(value, kind):
            raise self.fail(f"{key} is {value!r}, but must be {must_be}", key)
        return value

    def items(self, key: str, kind: type | tuple[type, ...]) -> list[Any]:
        """The list of a key, [] where it is absent."""
        value = self.data.get(key) or []
        sound = isinstance(value, list)
        for entry in value if sound else ():
            sound = sound and isinstance(entry, kind) and not isinstance(entry, bool)
        if not sound:
            kinds = "names" if kind is str else "whole numbers"
            raise self.fail(f"{key} must be a list of {kinds}", key)
        return value

    def choice(self, key: str, allowed: Iterable[str], default: str, message: str) -> str:
        """One of the choices; `message` has {value}, {choices}."""
        value = self.value(key, str, default, "text")
        choices = list(allowed)
        if value not in choices:
            said = message.format(value=value, choices=", ".join(choices))
            raise self.fail(said + near(value, choices), key)
        return str(value)
