"""The configuration of one run: sections, presets, plug-ins, and what is refused."""
