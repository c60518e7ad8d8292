"""Trainers that are not ours: their logs read, their scripts run as they are, their clocks seen."""
