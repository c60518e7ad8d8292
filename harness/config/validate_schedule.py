"""What the schedules of a run must be to each other and to its data: a part of validate.py."""

from collections.abc import Iterator

from harness.config.plugins import switched_on
from harness.config.requires import value_text
from harness.config.run import BLOCK, RunConfig


def refused_windows(c: RunConfig) -> Iterator[str]:
    m, d, s = c.model, c.data, c.schedule
    by_document = m.attn_mask == "document"
    if by_document and d.micro_tokens != d.seq_len:
        yield (
            "model.attn_mask=document takes one sequence per forward pass: make "
            f"data.micro_tokens={d.micro_tokens} equal data.seq_len={d.seq_len}"
        )
    in_blocks = m.attn_window in ("block", "clipped", "counted") or m.attn_kernel == "flex"
    for field, seq_len in {"seq_len": d.seq_len, "val_seq_len": d.val_portion[1]}.items():
        if by_document and in_blocks and seq_len % BLOCK != 0:
            yield (
                f"data.{field}={seq_len} must be a multiple of {BLOCK} for "
                f"model.attn_window={value_text(m.attn_window)} and "
                f"model.attn_kernel={m.attn_kernel}: round it up"
            )
    if m.attn_window == "block" and s.window_tokens < BLOCK and not s.window_warmup:
        yield (
            f"schedule.window_tokens={s.window_tokens} is less than one block of {BLOCK} "
            "for model.attn_window=block: widen it"
        )


def refused_window_lists(c: RunConfig) -> Iterator[str]:
    m, s = c.model, c.schedule
    outside = sorted(set(m.attn_window_layers) - set(range(m.n_layer)))
    if outside:
        yield (
            f"model.attn_window_layers lists layer {outside[0]}, which lies outside the "
            f"{m.n_layer} layers of model.n_layer: count from 0"
        )
    if s.window_last_layer is not None and m.n_layer - 1 not in m.attn_window_layers:
        yield (
            f"schedule.window_last_layer={s.window_last_layer} is the window of layer "
            f"{m.n_layer - 1}, which model.attn_window_layers={list(m.attn_window_layers)} does "
            "not list: list it, or leave schedule.window_last_layer at null"
        )
    most = s.stages + (s.extension_steps > 0) + 1
    for field, values in {"windows": s.windows, "windows_short": s.windows_short}.items():
        if values and not s.stages <= len(values) <= most:
            yield (
                f"schedule.{field} is a list of {len(values)}, but must list those of the "
                f"schedule.stages={s.stages}, and at most {most}, with the extension's and the "
                "last validation's"
            )
        if values and min(values) < 0:
            yield f"schedule.{field}={list(values)} must not be negative: mend the list"
    if m.window_yarn and 0 in s.windows:
        yield (
            f"model.window_yarn follows schedule.windows={list(s.windows)} by their ratios, but "
            "one of them is 0: mend the list"
        )


def refused_ramps(c: RunConfig) -> Iterator[str]:
    s = c.schedule
    ramps = s.warmup_steps + (s.cooldown_steps or 0) + s.extension_steps
    if ramps > s.steps:
        extension = " + schedule.extension_steps" if s.extension_steps else ""
        yield (
            f"schedule.warmup_steps + schedule.cooldown_steps{extension} = {ramps} exceed "
            f"schedule.steps={s.steps}: shorten one of them"
        )
    cooldown = int((s.cooldown_frac or 0) * (s.steps - s.extension_steps)) + s.extension_steps
    if s.warmup_steps + cooldown > s.steps:
        yield (
            f"schedule.warmup_steps={s.warmup_steps} and the last "
            f"schedule.cooldown_frac={s.cooldown_frac} of schedule.steps={s.steps} overlap: "
            "shorten one of them"
        )
    if s.lr_floor > 0 and not s.cooldown_steps and not s.cooldown_frac:
        yield (
            f"schedule.lr_floor={s.lr_floor} ends a cooldown, but there is none: set "
            "schedule.cooldown_steps or schedule.cooldown_frac, "
            "or leave schedule.lr_floor at 0.0"
        )


def refused_stages(c: RunConfig) -> Iterator[str]:
    s = c.schedule
    if s.stages > s.steps - s.extension_steps:
        yield (
            f"schedule.stages={s.stages} do not fit into schedule.steps={s.steps} less "
            f"schedule.extension_steps={s.extension_steps}: take fewer, or more steps"
        )
    listed = {"schedule.stage_rates": s.stage_rates, "schedule.batch_growth": s.batch_growth}
    if len(c.data.max_doc_len) > 1:
        listed["data.max_doc_len"] = c.data.max_doc_len
    for field, values in listed.items():
        if values and len(values) != s.stages:
            yield (
                f"{field} lists {len(values)} values, but schedule.stages is {s.stages}: "
                "list one for each stage"
            )
        if values and min(values) <= 0:
            yield f"{field}={list(values)} must all be greater than 0: mend the list"


def refused_rest(c: RunConfig) -> Iterator[str]:
    s, steps = c.schedule, c.optim.scalar_freeze_steps
    if steps and not (s.window_warmup or s.windows or s.batch_growth):
        yield (
            f"optim.scalar_freeze_steps={steps} counts from a change of the window or the batch, "
            "but neither changes: set schedule.window_warmup, schedule.windows or "
            "schedule.batch_growth, or leave optim.scalar_freeze_steps at 0"
        )


def refused_alignment(c: RunConfig) -> Iterator[str]:
    for plug in switched_on(c.plugin) if c.data.alignment else ():
        if plug.hook("order"):
            yield (
                f"data.alignment and plug-in {plug.module.__file__} both decide where passes "
                "begin: leave one of them out"
            )
    if c.data.max_doc_len and min(c.data.max_doc_len) <= 0:
        yield f"data.max_doc_len={list(c.data.max_doc_len)} must be greater than 0: mend it"


def refused_losses(c: RunConfig) -> Iterator[str]:
    weights = {"next_tokens": c.loss.next_tokens, "prefix_weight": c.loss.prefix_weight}
    if c.loss.next_tokens and min(c.loss.next_tokens) <= 0:
        yield (
            f"loss.next_tokens={list(c.loss.next_tokens)} must be greater than 0: leave the last "
            "ones out, or list none"
        )
    for plug in switched_on(c.plugin):
        for field, value in weights.items():
            if plug.hook("loss") and value:
                yield (
                    f"loss.{field} and plug-in {plug.module.__file__} both decide what is trained "
                    "on: leave one of them out"
                )
