"""One source file: what its columns mean, and its rows in the canonical types."""
