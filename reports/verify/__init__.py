"""Recomputing what a page says."""
