"""What reports are made of: runs, step times, the published evidence; and tables for other tools."""
