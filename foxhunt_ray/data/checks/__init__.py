"""Checks of the values that were read: what looks wrong or too good is told, never mended."""
