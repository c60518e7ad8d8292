"""Training: the protocol, the update, the clock."""
