"""What reports are made of: runs, step times, published evidence; tables for other tools."""
