"""Finished runs sent to a results folder that lies elsewhere, and brought in from there."""
