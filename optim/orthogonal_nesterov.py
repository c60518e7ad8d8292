"""OrthogonalNesterov, Muon's predecessor (record 3 and the script before record 4)."""

from optim.muon import Muon


class OrthogonalNesterov(Muon):
    """Muon with what came later left at its plain value, so it needs no code of its own.

    Sum momentum, Newton-Schulz with products, fp32 norm and fp32 result, a merged qkv matrix orthogonalised as one piece,
    every rank doing every matrix; record 3 scales the update by one, its successor to unit RMS.
    """
