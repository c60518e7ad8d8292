"""The table of settings: a row for every role of parameters, a column for every setting.

A cell is a toggle by the name ROW_SETTING: head_beta1, up_lr_multiplier. Where it is null, the row
is as the row `like` it, in the end as the rule's own field says (adam_beta1). Parameters of one
role whose settings are equal are moved together (optim/build.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .toggle import MUON_ONLY, ORTHOGONAL, toggle

Records = Mapping[Any, str]  # value -> the record that it belongs to
Accepted = str | tuple[str | bool, ...]  # values of another field


@dataclass(frozen=True, kw_only=True)
class RoleSetting:
    """A column of the table.

    plain: the field of the configuration that a null cell stands for; None: `default` does.
    example: a value for the law tests. requires: what every cell needs. limits: of its values.
    record: the first one with such cells; None: the row's.
    """

    doc: str
    example: Any
    plain: str | None = None
    type: Any = float | None
    default: Any = None
    requires: Mapping[str, Accepted] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    record: str | None = None


SHARE = {"ge": 0, "lt": 1}
RATE = {"gt": 0, "le": 100}
SETTINGS: Mapping[str, RoleSetting] = {
    "rule": RoleSetting(
        doc="what moves",
        example="adam",
        plain="matrix_optimizer",
        type=Literal["adam"] | None,
        requires=ORTHOGONAL,
    ),
    "lr": RoleSetting(doc="Adam rate of", example=0.1, plain="adam_lr", limits=RATE),
    "beta1": RoleSetting(
        doc="Adam first-moment decay of",
        example=0.6,
        plain="adam_beta1",
        limits=SHARE,
        record="r52",
    ),
    "beta2": RoleSetting(
        doc="Adam second-moment decay of",
        example=0.5,
        plain="adam_beta2",
        limits=SHARE,
        record="r52",
    ),
    "eps": RoleSetting(
        doc="Adam epsilon of",
        example=1e-3,
        plain="adam_eps",
        limits={"gt": 0, "le": 1},
    ),
    "weight_decay": RoleSetting(
        doc="decay of", example=1.0, plain="weight_decay", limits={"ge": 0, "le": 100}, record="r50"
    ),
    "lr_multiplier": RoleSetting(
        doc="factor on muon_lr for",
        example=2.0,
        type=float,
        default=1.0,
        requires={**MUON_ONLY, "optim.update_scale": ("one",)},
        limits=RATE,
    ),
}
ADAM = ("lr", "beta1", "beta2", "eps", "weight_decay")
MATRIX = ("lr_multiplier",)
GATE = ("rule", *ADAM)


@dataclass(frozen=True, kw_only=True)
class RoleRow:
    """A role of parameters, or a part of one.

    like: the row whose settings it has where it gives none. settings: what it may give. choices:
    values of records, by setting; requires: what every cell needs.
    """

    doc: str
    record: str
    like: str | None = None
    settings: tuple[str, ...] = ADAM
    choices: Mapping[str, Records] = field(default_factory=dict)
    requires: Mapping[str, Accepted] = field(default_factory=dict)


UNTIED = {"model.tied_head": (False,)}
ROWS: Mapping[str, RoleRow] = {
    "embed": RoleRow(
        doc="the token table",
        record="r08",
        choices={
            "lr": {0.3: "r08", 0.6: "r11"},
            "beta1": {0.5: "r57"},
            "weight_decay": {0.75: "r55"},
        },
        requires=UNTIED,
    ),
    "value_embed": RoleRow(
        doc="the value tables",
        record="r14",
        like="embed",
        choices={"beta1": {0.75: "r57"}, "weight_decay": {0.025: "r55"}},
        requires={"model.value_embed": "not null"},
    ),
    "bigram": RoleRow(
        doc="the table of pairs of tokens",
        record="r62",
        like="value_embed",
        choices={"lr": {0.6: "r62"}, "beta1": {0.75: "r62"}, "weight_decay": {0.025: "r62"}},
        requires={"model.bigram_hash": "not null"},
    ),
    "head": RoleRow(
        doc="the head",
        record="r08",
        choices={
            "lr": {0.002: "r08", 0.008: "r11"},
            "beta1": {0.5: "r57"},
            "weight_decay": {0.75: "r55"},
        },
        requires=UNTIED,
    ),
    "scalar": RoleRow(
        doc="the mixing scalars",
        record="r09",
        choices={
            "lr": {0.02: "r09", 0.04: "r11"},
            "beta1": {0.9: "r52"},
            "beta2": {0.99: "r52"},
        },
    ),
    "residual": RoleRow(
        doc="the scales of the stream, in pairs those of x0, too",
        record="r52",
        like="scalar",
        requires={"model.x0_mix": (True,)},
    ),
    "x0": RoleRow(
        doc="the scales of x0",
        record="r52",
        like="scalar",
        choices={"lr": {0.008: "r73"}, "beta1": {0.65: "r52", 0.9: "r73"}},
        requires={"model.residual_form": ("apart", "sub_layers")},
    ),
    "post": RoleRow(
        doc="the scales of the branches",
        record="r73",
        like="scalar",
        choices={"lr": {0.008: "r73"}},
        requires={"model.residual_form": ("sub_layers",)},
    ),
    "skip": RoleRow(doc="the skips' weights", record="r52", like="scalar"),
    "xsa": RoleRow(
        doc="the shares of exclusive attention",
        record="r82",
        like="scalar",
        choices={"lr": {0.008: "r82"}, "beta1": {0.9: "r82"}},
        requires={"model.xsa": "not null"},
    ),
    "bigram_scale": RoleRow(
        doc="the blocks' factors on the rows of pairs",
        record="r73",
        like="scalar",
        choices={"lr": {0.008: "r73"}, "beta1": {0.9: "r73"}, "beta2": {0.95: "r73"}},
        requires={"model.bigram_hash": "not null"},
    ),
    "gate": RoleRow(
        doc="the gates of attention and of the values",
        record="r56",
        settings=GATE,
        choices={"beta1": {0.9: "r57"}, "beta2": {0.99: "r57"}},
    ),
    "smear_gate": RoleRow(
        doc="the smear's gate",
        record="r52",
        settings=GATE,
        choices={"lr": {8e-5: "r52"}, "beta1": {0.9: "r57"}, "beta2": {0.99: "r57"}},
        requires={"model.smear": (True,)},
    ),
    "skip_gate": RoleRow(
        doc="the skip's gate",
        record="r55",
        settings=GATE,
        choices={"lr": {4e-4: "r55"}, "beta1": {0.9: "r57"}, "beta2": {0.99: "r57"}},
        requires={"model.skip_gate": (True,)},
    ),
    "mudd": RoleRow(
        doc="the matrices of MUDD's makers",
        record="r81",
        settings=GATE,
        choices={"lr": {0.002: "r81"}, "beta1": {0.9: "r81"}, "beta2": {0.99: "r81"}},
        requires={"model.mudd": "not null"},
    ),
    "mudd_bias": RoleRow(
        doc="the biases of MUDD's makers",
        record="r81",
        like="scalar",
        choices={"lr": {0.002: "r81"}},
        requires={"model.mudd": "not null"},
    ),
    "mudd_gate": RoleRow(
        doc="the matrices of the makers of MUDD's gates",
        record="r85",
        settings=GATE,
        choices={"lr": {8e-4: "r85"}, "beta1": {0.9: "r85"}, "beta2": {0.99: "r85"}},
        requires={"model.mudd_gate": "not null"},
    ),
    "mudd_gate_bias": RoleRow(
        doc="the biases of MUDD's gates, and their scale",
        record="r85",
        like="scalar",
        choices={"lr": {8e-4: "r85"}},
        requires={"model.mudd_gate": "not null"},
    ),
    "attn": RoleRow(
        doc="q, k, v and the attention output",
        record="r27",
        settings=MATRIX,
        choices={"lr_multiplier": {2.0: "r48"}},
    ),
    "up": RoleRow(
        doc="the MLP's first matrix",
        record="r27",
        settings=MATRIX,
        choices={"lr_multiplier": {2.0: "r42"}},
    ),
    "down": RoleRow(
        doc="the MLP's second matrix",
        record="r27",
        settings=MATRIX,
        choices={"lr_multiplier": {4.0: "r48"}},
    ),
}
# part of a role, as the network's parameters name it -> its row; a role without parts is a row
ROW_OF_PART = {
    "bigram": "bigram",
    "residual": "residual",
    "x0": "x0",
    "post": "post",
    "skip": "skip",
    "xsa": "xsa",
    "bigram_scale": "bigram_scale",
    "gate": "gate",
    "smear_gate": "smear_gate",
    "skip_gate": "skip_gate",
    "mudd": "mudd",
    "mudd_bias": "mudd_bias",
    "mudd_gate": "mudd_gate",
    "mudd_gate_bias": "mudd_gate_bias",
    "qkv": "attn",
    "q": "attn",
    "k": "attn",
    "v": "attn",
    "out": "attn",
    "up": "up",
    "down": "down",
}


def row_of(role: str, part: str | None) -> str:
    """The row of a parameter's settings; a matrix that is no part of a block is as attention's."""
    if part is None:
        return "attn" if role == "hidden" else role
    return ROW_OF_PART[part]


def role_like(role: str) -> str:
    """The role that a role's parameters join where their settings are equal."""
    return (ROWS[role].like if role in ROWS else None) or role


def setting(config: Any, row: str, name: str) -> Any:
    """What a row says of a setting: its cell, that of the row like it, or the plain field."""
    column, at = SETTINGS[name], row
    while at in ROWS:
        value = getattr(config, f"{at}_{name}", None)
        if value is not None:
            return value
        at = ROWS[at].like or ""
    return column.default if column.plain is None else getattr(config, column.plain)


def _cell(of: str, name: str) -> Any:
    """The toggle of the cell of a row and a setting."""
    row, column = ROWS[of], SETTINGS[name]
    choices = row.choices.get(name, {})
    requires = {**row.requires, **column.requires}
    if "rule" in row.settings and name != "rule":
        requires[f"optim.{of}_rule"] = ("adam",)
    doc = f"{column.doc} {row.doc}"
    if column.plain is not None:
        doc += f"; null: {column.plain if row.like is None else f'{row.like}_{name}'}"
    return toggle(
        column.default,
        record=next(iter(choices.values()), column.record or row.record),
        affects=("groups", "loss"),
        doc=doc,
        choices=choices,
        example=column.example,
        requires={"*": requires} if requires else {},
        **column.limits,
    )


Config = TypeVar("Config")


def with_rows(config: type[Config]) -> type[Config]:
    """A class that is about to be a dataclass, with the cells of the table as fields of its own."""
    for row in ROWS:
        for name in ROWS[row].settings:
            config.__annotations__[f"{row}_{name}"] = SETTINGS[name].type
            setattr(config, f"{row}_{name}", _cell(row, name))
    return config
