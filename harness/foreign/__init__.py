"""Trainers that are not ours: their logs read, their scripts run and judged as they are, their clocks looked at."""
