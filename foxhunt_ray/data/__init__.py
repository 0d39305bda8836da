"""Parquet on disk to batches on the device."""
