"""Corpora: where their documents come from, and how they are prepared, checked and copied."""
