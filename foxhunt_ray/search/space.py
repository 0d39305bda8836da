"""The search space: ranges of the config as Optuna distributions, checked before anything is launched.

Every key is a dotted config path, so a trial is "the base config with these paths set". A whole number on
a logarithmic range is drawn as a real number and rounded: Optuna's own takes ten times as long to suggest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from foxhunt_ray.config import Choices, Config, Range, known_paths, with_values
from foxhunt_ray.errors import ConfigError

_INGESTED = "it changes what is read and prepared once for all trials; compare separate runs instead"
_MACHINERY = "it says how trials are run, not what they learn; set it for the whole run"
_INCOMPARABLE = "trials would be scored on different windows or steps; set it for the whole run"
_REFUSED_SECTIONS = {
    "data": _INGESTED,
    "features": _INGESTED,
    "target": _INGESTED,
    "split": _INGESTED,
    "loader": _MACHINERY,
    "search": _MACHINERY,
    "cluster": _MACHINERY,
}
_REFUSED_KEYS = {
    "seed": "picking the best of many seeds lifts validation and does nothing for test",
    "train.eval_windows": _INCOMPARABLE,
    "train.report_every": _INCOMPARABLE,
}
_ALLOWED_KEYS = ("data.context_length", "data.stride")


def check_space(config: Config) -> None:
    """Nothing, when every key of ``config.search.space`` may be searched and every end of it can be built.

    A value that fails only beside some values of other keys passes: the searcher draws again when it meets
    such a pair.

    Raises:
        ConfigError: an empty space, a key that does not exist or may not be searched, an end or choice that
            the config refuses, or a whole-number range with ends that are not. The message names the key.
    """
    if not config.search.space:
        raise ConfigError("search.space is empty: give it a key to search, or use `foxhunt train`")
    for key, dimension in config.search.space.items():
        _check_key(key)
        if isinstance(dimension, Range) and _draws_int(key, dimension):
            for end in (dimension.low, dimension.high):
                if end != int(end):
                    raise ConfigError(f'search.space "{key}": {end} is not a whole number, as {key} must be')
        for value in _ends(key, dimension):
            _check_value(config, key, value)


def distributions(space: Mapping[str, Range | Choices]) -> dict[str, BaseDistribution]:
    """The Optuna distribution of each key of ``space``, in its order."""
    return {key: _distribution(key, dimension) for key, dimension in space.items()}


def values_from(space: Mapping[str, Range | Choices], params: Mapping[str, Any]) -> dict[str, Any]:
    """Config values of a point drawn from ``distributions(space)``: whole numbers rounded and kept inside."""
    return {key: _value(key, dimension, params[key]) for key, dimension in space.items()}


def values_inside(space: Mapping[str, Range | Choices], values: Mapping[str, Any]) -> bool:
    """Whether ``values`` has exactly the keys of ``space``, each value within its range or choices."""
    return values.keys() == space.keys() and all(
        _inside(dimension, values[key]) for key, dimension in space.items()
    )


def _check_key(key: str) -> None:
    known = dict(known_paths())
    if key not in known:
        near = difflib.get_close_matches(key, known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`foxhunt config` lists all keys"
        raise ConfigError(f'search.space "{key}": no such config path; {hint}')
    reason = _REFUSED_KEYS.get(key) or _REFUSED_SECTIONS.get(key.partition(".")[0])
    if reason and key not in _ALLOWED_KEYS:
        raise ConfigError(f'search.space "{key}": not searched, because {reason}')


def _check_value(config: Config, key: str, value: Any) -> None:
    """Refuse a value that fails alone and beside every end of every other key."""
    try:
        with_values(config, {key: value})
    except ConfigError as err:
        if not any(_builds(config, {key: value, **other}) for other in _other_ends(config, key)):
            raise ConfigError(f'search.space "{key}": {err}') from err


def _other_ends(config: Config, key: str) -> Iterator[dict[str, Any]]:
    for other, dimension in config.search.space.items():
        if other != key:
            yield from ({other: value} for value in _ends(other, dimension))


def _builds(config: Config, values: Mapping[str, Any]) -> bool:
    try:
        with_values(config, values)
    except ConfigError:
        return False
    return True


def _ends(key: str, dimension: Range | Choices) -> tuple[Any, ...]:
    if isinstance(dimension, Choices):
        return dimension.choices
    return _value(key, dimension, dimension.low), _value(key, dimension, dimension.high)


def _distribution(key: str, dimension: Range | Choices) -> BaseDistribution:
    if isinstance(dimension, Choices):
        return CategoricalDistribution(dimension.choices)
    if _draws_int(key, dimension) and not dimension.log:
        return IntDistribution(int(dimension.low), int(dimension.high))
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _value(key: str, dimension: Range | Choices, drawn: Any) -> Any:
    if isinstance(dimension, Range) and _draws_int(key, dimension):
        return int(min(max(round(drawn), dimension.low), dimension.high))
    return drawn


def _inside(dimension: Range | Choices, value: Any) -> bool:
    if isinstance(dimension, Choices):
        return value in dimension.choices
    return isinstance(value, int | float) and dimension.low <= value <= dimension.high


def _draws_int(key: str, dimension: Range) -> bool:
    return dimension.is_int or _field_type(key) is int


def _field_type(key: str) -> Any:
    model: Any = Config
    *sections, name = key.split(".")
    for section in sections:
        model = model.model_fields[section].annotation
    return model.model_fields[name].annotation
