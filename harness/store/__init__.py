"""The results folder: claims, attempts, results, plans."""
