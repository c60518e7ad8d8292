"""Which pieces of two lists of code are the same piece, changed."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from harness.split.merged import Parameter, key_of

SIMILAR = 0.5  # shared words of two pieces that are one piece, changed
SIMILAR_NAMESAKE = 0.7  # of two definitions of other names
SURE = 0.9
WORD = re.compile(r"\w+|[^\s\w]")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Gap = tuple[list[Any], list[Any]]  # pieces of OLD and of NEW between two that are alike


class Aligner:
    """Pairs pieces; what it has looked at once, it remembers.

    any_name: whether two definitions of other names may be one."""

    def __init__(self, *, any_name: bool) -> None:
        self.any_name = any_name
        self.words: dict[int, Counter[str]] = {}
        self.kept: list[Any] = []  # so that no identity is used twice
        # identities of definitions of NEW that stood elsewhere -> both
        self.moved: dict[int, tuple[Any, Any]] = {}

    def gaps(self, olds: Sequence[Any], news: Sequence[Any]) -> list[Gap | tuple[Any, Any]]:
        """Both lists as pairs and gaps in order: (old, new) that are one piece, or what is left.

        A gap is a pair of lists."""
        self._note_moved(olds, news)
        old_keys = [key_of(part) for part in olds]
        new_keys = [None if id(part) in self.moved else key_of(part) for part in news]
        matcher = SequenceMatcher(None, old_keys, new_keys, autojunk=False)
        pieces: list[Any] = []
        for kind, i1, i2, j1, j2 in matcher.get_opcodes():
            if kind == "equal":
                pieces += zip(olds[i1:i2], news[j1:j2], strict=True)
            else:
                pieces += self._in_gap(list(olds[i1:i2]), list(news[j1:j2]))
        return pieces

    def _note_moved(self, olds: Sequence[Any], news: Sequence[Any]) -> None:
        """Definitions of both lists in another order: those that are equal, else of least text."""
        before, after = _definitions(olds), _definitions(news)
        places = {name: n for n, name in enumerate(after)}
        # of definitions in one order: words of those that changed, and of all
        chains: list[tuple[int, int, list[str]]] = []
        for name in before:
            if name in places:
                below = [chain for chain in chains if places[chain[2][-1]] < places[name]]
                n_changed, n_all, names = max(below, default=(0, 0, []))
                n_words = self._words(before[name]).total()
                is_changed = key_of(before[name]) != key_of(after[name])
                n_changed += n_words if is_changed else 0
                chains.append((n_changed, n_all + n_words, [*names, name]))
        *_, stay = max(chains, default=(0, 0, []))
        for name in before:
            if name in places and name not in stay:
                self.moved[id(after[name])] = (before[name], after[name])

    def _in_gap(self, olds: list[Any], news: list[Any]) -> list[Any]:
        pieces: list[Any] = []
        i = j = 0
        for n_old, n_new in (*self._best_pairs(olds, news), (len(olds), len(news))):
            left = (olds[i:n_old], news[j:n_new])
            if left != ([], []):
                pieces.append(left)
            if n_old < len(olds):
                pieces.append((olds[n_old], news[n_new]))
            i, j = n_old + 1, n_new + 1
        return pieces

    def _best_pairs(self, olds: list[Any], news: list[Any]) -> list[tuple[int, int]]:
        """The pairs, in the order of both lists, that are most alike in all."""
        n, m = len(olds), len(news)
        best = [[0.0] * (m + 1) for _ in range(n + 1)]
        scores: dict[tuple[int, int], float] = {}
        for i in reversed(range(n)):
            for j in reversed(range(m)):
                score = self.likeness(olds[i], news[j])
                scores[i, j] = score
                paired = best[i + 1][j + 1] + score if score else 0.0
                best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
        pairs, i, j = [], 0, 0
        while i < n and j < m:
            score = scores[i, j]
            if score and best[i][j] == best[i + 1][j + 1] + score:
                pairs.append((i, j))
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1
        return pairs

    def likeness(self, old: Any, new: Any) -> float:
        """From 0, two pieces, to 1, the same one."""
        if type(old) is not type(new) or id(new) in self.moved:
            return 0.0
        if isinstance(old, Parameter | ast.keyword | ast.alias):
            return 1.0 if _name_of(old) == _name_of(new) else 0.0
        if isinstance(old, DEFINITIONS):
            if old.name == new.name:
                return 1.0
            alike = self._shared(old, new) if self.any_name else 0.0
            return alike if alike >= SIMILAR_NAMESAKE else 0.0
        alike = self._shared(old, new)
        if _head_of(old) is not None and _head_of(old) == _head_of(new):
            return max(alike, SURE)
        if self.any_name and isinstance(old, ast.Assign) and _form_of(old) == _form_of(new):
            return max(alike, SIMILAR)
        return alike if alike >= SIMILAR else 0.0

    def _shared(self, old: Any, new: Any) -> float:
        """The share of words that two pieces have in common."""
        ours, theirs = self._words(old), self._words(new)
        both = (ours & theirs).total()
        return both / max(1, ours.total() + theirs.total() - both)

    def _words(self, part: Any) -> Counter[str]:
        if id(part) not in self.words:
            self.words[id(part)] = Counter(WORD.findall(ast.unparse(part)))
            self.kept.append(part)
        return self.words[id(part)]


def _definitions(parts: Sequence[Any]) -> dict[str, Definition]:
    """The definitions of a list by their names, but for those that it has twice."""
    definitions = [part for part in parts if isinstance(part, DEFINITIONS)]
    n_named = Counter(part.name for part in definitions)
    return {part.name: part for part in definitions if n_named[part.name] == 1}


def _name_of(part: Any) -> str | None:
    if isinstance(part, Parameter):
        return part.name
    return part.name if isinstance(part, ast.alias) else part.arg


def _form_of(statement: ast.Assign) -> str:
    """What it is whatever its names are."""
    return re.sub(r"[^\W\d]\w*", "_", ast.unparse(statement))


def _head_of(part: Any) -> str | None:
    """What tells that two statements are the same one: what it assigns to, asks, or goes over."""
    if isinstance(part, ast.Assign):
        return " ".join(key_of(target) for target in part.targets)
    if isinstance(part, ast.AnnAssign | ast.AugAssign | ast.For):
        return key_of(part.target)
    if isinstance(part, ast.If | ast.While):
        return key_of(part.test)
    return None
