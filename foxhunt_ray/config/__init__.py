"""The configuration: every knob in ``schema``, merging and TOML in ``load``, durations in ``units``."""

from foxhunt_ray.config.load import known_paths, load_config, preset_names, to_toml, with_values
from foxhunt_ray.config.schema import Choices, Config, Range
from foxhunt_ray.config.units import parse_bytes, parse_duration

__all__ = [
    "Choices",
    "Config",
    "Range",
    "known_paths",
    "load_config",
    "parse_bytes",
    "parse_duration",
    "preset_names",
    "to_toml",
    "with_values",
]
