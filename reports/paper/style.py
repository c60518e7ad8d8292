"""The page's style sheet as matplotlib needs it: what a class of a drawing looks like in print.

Colours, widths and fonts are declared in reports/page/templates/report.css alone. Of its rules
those count here that stand outside @media, begin with `svg` or are a colour class, and select one
element by its name and its classes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from reports.page.write import asset

Properties = dict[str, str]
ROOT = "figure svg:not(.clip)"  # whose properties every drawing inherits
INHERITED = ("color", "fill", "stroke", "stroke-width", "font-size", "font-weight")
COLOUR_CLASS = re.compile(r"\.(c\d|v-\w+)")
CSS_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
SELECTOR = re.compile(r"(?P<tag>[a-z]*)(?P<classes>(\.[\w-]+)*)(:not\(\.(?P<but>[\w-]+)\))?")
VARIABLE = re.compile(r"var\((--[\w-]+)\)")


@dataclass(frozen=True, kw_only=True)
class CssRule:
    """The properties of elements of a name, '' for any, with these classes and without another."""

    tag: str
    classes: frozenset[str]
    but: str
    properties: Properties

    @property
    def weight(self) -> tuple[int, bool]:
        """Of two rules for one property the heavier one holds, of equal ones the later."""
        return len(self.classes) + bool(self.but), bool(self.tag)

    def selects(self, tag: str, classes: Sequence[str]) -> bool:
        return self.tag in ("", tag) and self.classes <= set(classes) and self.but not in [*classes]


@dataclass(frozen=True, kw_only=True)
class Style:
    """The rules, the lighter ones first, and what the root of a drawing has."""

    rules: tuple[CssRule, ...]
    root: Properties
    fonts: tuple[str, ...]  # families, the best first

    def of(self, tag: str, classes: Sequence[str], inherited: Properties) -> Properties:
        """The properties of an element, its own over what it inherits."""
        properties = {name: inherited[name] for name in INHERITED if name in inherited}
        for rule in self.rules:
            if rule.selects(tag, classes):
                properties |= rule.properties
        if properties.get("fill") == "currentColor":
            properties["fill"] = properties["color"]
        if properties.get("stroke") == "currentColor":
            properties["stroke"] = properties["color"]
        return properties


@cache
def page_style() -> Style:
    """The style of the page on white paper."""
    text = re.sub(r"/\*.*?\*/", "", asset("report.css"), flags=re.DOTALL)
    outside = without_media(text)
    variables = properties_of(
        next(b for s, b in CSS_RULE.findall(outside) if s.strip() == ":root"), {}
    )
    rules, root = [], {}
    for selectors, body in CSS_RULE.findall(outside):
        properties = properties_of(body, variables)
        for selector in map(str.strip, selectors.split(",")):
            if selector == ROOT:
                root = properties
            rules += rule_of(selector, properties)
    rules.sort(key=lambda rule: rule.weight)
    fonts = [name.strip().strip('"') for name in variables["--sans"].split(",")]
    root = root | {"stroke": "none", "color": root["fill"], "font-size": "12px"}
    return Style(rules=tuple(rules), root=root, fonts=tuple(fonts))


def without_media(text: str) -> str:
    """A style sheet without what stands in @media; its braces nest one deep."""
    return re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", text)


def properties_of(body: str, variables: Properties) -> Properties:
    """Name -> value, variables replaced by their own."""
    properties = {}
    for declaration in body.split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            resolved = VARIABLE.sub(lambda v: variables.get(v[1], v[0]), value.strip())
            properties[name.strip()] = resolved
    return properties


def rule_of(selector: str, properties: Properties) -> list[CssRule]:
    """The rule of a selector that drawings know, none of another."""
    if selector.startswith("svg "):
        selector = selector.removeprefix("svg ")
    elif not COLOUR_CLASS.fullmatch(selector):
        return []
    match = SELECTOR.fullmatch(selector)
    if match is None:
        return []
    return [
        CssRule(
            tag=match["tag"],
            classes=frozenset(match["classes"].split(".")[1:]),
            but=match["but"] or "",
            properties=properties,
        )
    ]
