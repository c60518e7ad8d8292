"""Measurements of a machine: step times, parity, the acceptance of a GPU."""
