"""Statistics, comparisons and pages from recorded runs: `from reports import load`."""

from reports.load import load

__all__ = ["load"]
