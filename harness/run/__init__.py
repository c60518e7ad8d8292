"""One run: its specification, its name, its result, and the reading of its directory."""
