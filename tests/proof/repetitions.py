"""Effects measured again: how often their verdict is wrong, among those whose published effect is tested."""

from collections.abc import Iterator

import numpy as np

from reports.stats.repetition import WITHIN_SHARE, gate, ratio_p
from tests.proof.row import SIZES, Row

STRENGTHS = (
    6.0,
    8.0,
    12.0,
    20.0,
)  # true published effects in their standard errors: 7.46 are tested
OURS = (0.5, 3.0)  # our standard error in those of the published side
FALSE = {  # kind -> true ratio of our effect to the published one
    "'reproduced', half again the published effect": 1 + WITHIN_SHARE,
    "'reproduced', half of the published effect": 1 - WITHIN_SHARE,
    "'smaller' or 'larger', the published effect": 1.0,
}


def verdicts(
    ours: np.ndarray, se: np.ndarray, published: np.ndarray, df: float
) -> tuple[np.ndarray, np.ndarray]:
    """(called reproduced, called smaller or larger) of tested effects; the published side's se is 1."""
    most, least, same = (
        ratio_p(ours, se, published, df=df, published_se=1.0, ratio=ratio)
        for ratio in (1 + WITHIN_SHARE, 1 - WITHIN_SHARE, 1.0)
    )
    reproduced = (most.less < 0.05) & (least.more < 0.05)
    return reproduced, ~reproduced & (np.minimum(same.less, same.more) < 0.025)


def repetitions(r: int) -> Iterator[Row]:
    """The worst of how strong the published effect and how sure ours is, given that it was tested."""
    tested = max(5 * r, 5_000)
    for kind, ratio in FALSE.items():
        for n in SIZES:
            df, worst = 2 * n - 2, 0.0
            for strength in STRENGTHS:
                for own_se in OURS:
                    rng = np.random.default_rng([37, n, int(strength), int(own_se), int(2 * ratio)])
                    published = np.empty(0)
                    while len(published) < tested:
                        drawn = rng.normal(strength, 1, 5 * tested)
                        published = np.r_[published, drawn[drawn > gate()]]
                    published = published[:tested]
                    ours = rng.normal(ratio * strength, own_se, tested)
                    se = own_se * np.sqrt(rng.chisquare(df, tested) / df)
                    reproduced, apart = verdicts(ours, se, published, df)
                    worst = max(worst, float((apart if ratio == 1 else reproduced).mean()))
            yield Row(kind=kind, n=str(n), noise="given that it is tested", replications=tested,
                      family_error=worst)  # fmt: skip
    for n in SIZES:
        df, rng = 2 * n - 2, np.random.default_rng([38, n])
        published = rng.normal(12, 1, tested)
        ours, se = rng.normal(12, 1, tested), np.sqrt(rng.chisquare(df, tested) / df)
        found = verdicts(ours, se, published, df)[0].mean()
        yield Row(kind="'reproduced', the published effect, of 12 of its standard errors", n=str(n), noise="equal",
                  replications=tested, power=float(found))  # fmt: skip
