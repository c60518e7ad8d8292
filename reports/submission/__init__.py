"""What a record pull request needs."""
