"""What the scales of a head in eight bits must be: a part of validate.py."""

from collections.abc import Iterator

from harness.config.run import RunConfig


def refused_float8(c: RunConfig) -> Iterator[str]:
    """Scales by which what is known to come would be no number in eight bits."""
    scales, of_mean = c.model.fp8_head, c.loss.reduction == "mean"
    if not scales:
        return
    if len(scales) != 3 or min(scales) <= 0:
        yield (
            f"model.fp8_head={list(scales)} must be three scales greater than 0, of the stream, "
            "the head's matrix and the gradient: mend the list"
        )
        return
    largest = c.model.d_model**0.5  # of a normed stream
    if largest > 448 * scales[0] * 1.000001:
        yield (
            f"model.fp8_head divides the stream by {scales[0]:.3g}, after which {largest:.3g}, its "
            f"largest value for model.d_model={c.model.d_model}, is beyond e4m3's 448: take at "
            f"least {largest / 448:.3g}"
        )
    gradient = sum(c.loss.next_tokens or (1.0,)) + c.loss.prefix_weight
    gradient *= c.loss.scale / (c.data.micro_tokens if of_mean else 1)
    if gradient > 57344 * scales[2]:
        yield (
            f"model.fp8_head divides the gradient by {scales[2]:.3g}, after which {gradient:.3g}, "
            f"its largest value for data.micro_tokens={c.data.micro_tokens}, loss.reduction="
            f"{c.loss.reduction} and loss.scale={c.loss.scale}, is beyond e5m2's 57344: take "
            f"at least {gradient / 57344:.3g}"
        )
