"""One machine: its slots, its GPUs, its memory."""
