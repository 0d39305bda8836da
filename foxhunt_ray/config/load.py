"""Preset or file, then overrides, merged as plain mappings and validated once; and back to TOML."""

from __future__ import annotations

import copy
import datetime as dt
import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from foxhunt_ray.config.schema import Config
from foxhunt_ray.errors import ConfigError

PRESETS = Path(__file__).parent.parent / "presets"
_KIND = re.compile(r"\[|^(range|choices|(constrained-)?(int|float|str|bool))$")  # in a location, no key
_MAX_FILE_BYTES = 1_000_000


def load_config(
    source: str | Path | Mapping[str, Any] | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
) -> Config:
    """The config of a preset name or TOML file (None = defaults), with overrides on top.

    Args:
        source: name of a preset, path of a TOML file, or a tree of sections as ``model_dump`` gives it.
        overrides: ``section.field=value`` strings (the value is read as TOML, else as text), or a
            mapping from dotted path to value.

    Raises:
        ConfigError: unknown preset, file that is not TOML, unknown key, or a value out of range.
    """
    if isinstance(source, Mapping):
        tree = copy.deepcopy(dict(source))
    else:
        tree = _read(source) if source is not None else {}
    if isinstance(overrides, Mapping):
        pairs = list(overrides.items())
    else:
        pairs = [_parse_override(text) for text in overrides]
    for path, value in pairs:
        _put(tree, path, value)
    return _build(tree)


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """``config`` with the given dotted paths set, validated again as a whole.

    Raises:
        ConfigError: a path does not exist or a value is out of range.
    """
    tree = _plain(config)
    for path, value in values.items():
        _put(tree, path, value)
    return _build(tree)


def to_toml(config: Config) -> str:
    """TOML text that ``load_config`` reads back to an equal config."""
    return tomli_w.dumps(_plain(config))


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    return sorted(p.stem for p in PRESETS.glob("*.toml"))


def known_paths(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every dotted config path with its meaning and unit."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from known_paths(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.description or ""


def _plain(config: Config) -> dict[str, Any]:
    tree: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    return tree


def _read(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".toml":
        path = PRESETS / f"{source}.toml"
        if not path.is_file():
            raise ConfigError(
                f"--config {source}: no preset of that name; presets: {', '.join(preset_names())}; "
                "a file must end in .toml"
            )
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than 1 MB, not a config; give a smaller TOML file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read ({err.strerror}); give a TOML file") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as err:
        raise ConfigError(f"{path}: not valid TOML: {err}") from err


def _parse_override(text: str) -> tuple[str, Any]:
    path, sep, value = text.partition("=")
    if not sep or not path.strip():
        raise ConfigError(f"--set {text}: expected section.field=value, like optimizer.lr=1e-3")
    try:
        return path.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return path.strip(), value.strip()


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    keys = path.split(".")
    if path.startswith("search.space."):  # the rest is one key: a config path
        keys = ["search", "space", path.removeprefix("search.space.").strip('"')]
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: {key} is a value, not a section")
    tree[keys[-1]] = value


def _frozen(value: Any) -> Any:
    """Lists as tuples and dates as ISO text, which is how the strict schema holds them."""
    if isinstance(value, dict):
        return {k: _frozen(v) for k, v in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(v) for v in value)
    return value.isoformat() if isinstance(value, dt.date | dt.datetime) else value


def _build(tree: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(_frozen(tree))
    except ValidationError as err:
        found: dict[str, list[str]] = {}
        for error in err.errors():
            where, reason = _explain(error)
            found.setdefault(where, []).append(reason)
        # Of a value that may be of several types each type has an error of its own.
        told = [f"{where}{', or '.join(dict.fromkeys(reasons))}" for where, reasons in found.items()]
        raise ConfigError("; ".join(told)) from err


def _explain(error: Any) -> tuple[str, str]:
    """What was found where, and what is wrong with it."""
    where = ".".join(str(p) for p in error["loc"] if not _KIND.search(str(p)))
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where, [p for p, _ in known_paths()], n=2, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `foxhunt config` lists all keys"
        return f"unknown key {where}", hint
    reason = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    found = error.get("input")
    shown = "" if isinstance(found, dict) else f" = {found!r}"
    return f"{where}{shown}: ", reason
