"""Inputs of the user's own: a function of bars in a file named on the command line, and never in a config.

The function must use only rows up to each row: it is computed again on shortened histories, and what was
there before must come out the same, bit by bit.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.features import COMPUTED
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.split import iso
from foxhunt_ray.errors import ConfigError, DataError

# Shares of the history, uneven so that they do not all fall on the start of a day or week, within which a
# function may look ahead; one more cut leaves out the last row.
_CUTS = (0.137, 0.291, 0.457, 0.613, 0.739, 0.871, 0.953)
_Columns = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class UserFeatures:
    """A function of the user's that adds inputs.

    Attributes:
        spec: ``FILE.py:fn`` as it was given.
        digest: of the file's content.
        file: the file.
        function: maps ``Bars`` to columns of n numbers by name.
    """

    spec: str
    digest: str
    file: Path
    function: Callable[[Bars], Mapping[str, Any]]

    def apply(self, bars: Sequence[Bars]) -> tuple[tuple[Bars, ...], tuple[str, ...]]:
        """The bars with the columns added, and the names of these.

        Raises:
            DataError: the function fails, or what it returns cannot be used; names it and the symbol.
        """
        added = [self._columns(one) for one in bars]
        for one, columns in zip(bars, added, strict=True):
            if columns.keys() != added[0].keys():
                raise self._fault(one, "returns other columns than for the first symbol")
        made = [replace(one, columns=one.columns | columns) for one, columns in zip(bars, added, strict=True)]
        return tuple(made), tuple(added[0])

    def require_causal(self, bars: Sequence[Bars]) -> None:
        """Refuse a function whose values change when later rows are taken away.

        Raises:
            DataError: names the column and the first row that changed.
        """
        for one in bars:
            whole, n = self._columns(one), len(one.ts_event)
            self._compare(
                one, whole, self._columns(one), "is not deterministic: computed again it has other values"
            )
            for rows in sorted({int(n * share) for share in _CUTS} | {n - 1}):
                if rows > 0:
                    part = one.part(0, rows)
                    cut = iso(int(one.ts_event[rows]))
                    text = f"looks into the future: without the rows from {cut} on it has other values"
                    self._compare(part, whole, self._columns(part), text)

    def _columns(self, bars: Bars) -> _Columns:
        try:
            with np.errstate(all="ignore"):
                found = self.function(_guarded(bars))
        except Exception as err:
            failure = f"fails{_line(err, self.file)}: {type(err).__name__}: {err}"
            raise self._fault(bars, f"{failure} (given {len(bars.ts_event):,} bars)") from err
        if not isinstance(found, Mapping) or not found:
            raise self._fault(bars, f"returns {type(found).__name__}, expected columns by name")
        return dict(self._checked(bars, found))

    def _checked(self, bars: Bars, found: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float64]]]:
        for name, values in found.items():
            if not isinstance(name, str) or name in bars.columns or name in COMPUTED:
                raise self._fault(bars, f"calls a column {name!r}, a name that is taken; choose another")
            try:
                given = np.asarray(values)
                if given.dtype.kind not in "biufO":  # no text, no dates, no complex numbers
                    raise TypeError(given.dtype)
                column = given.astype(np.float64)
            except (TypeError, ValueError) as err:
                raise self._fault(bars, f"gives {name!r} values that are not numbers") from err
            if column.shape != bars.ts_event.shape:
                shape = f"{list(column.shape)} values, expected {len(bars.ts_event)}, one a bar"
                raise self._fault(bars, f"gives {name!r} {shape}")
            yield name, np.where(np.isfinite(column), column, np.nan)

    def _compare(self, bars: Bars, whole: _Columns, again: _Columns, what: str) -> None:
        if odd := sorted(whole.keys() ^ again.keys()):
            raise self._fault(
                bars, f"column {odd[0]!r} is not always there; return the same columns each time"
            )
        for name, values in again.items():
            before = whole[name][: len(values)]
            differs = np.flatnonzero((before != values) & ~(np.isnan(before) & np.isnan(values)))
            if len(differs):
                where = f"in {len(differs):,} rows, the first at {iso(int(bars.ts_event[differs[0]]))}"
                text = f"column {name!r} {what} {where}; use only rows up to each bar, and nothing random"
                raise self._fault(bars, text)

    def _fault(self, bars: Bars, what: str) -> DataError:
        return DataError(f"--features {self.spec}: {bars.symbol}: {what}")


class _Source(importlib.abc.SourceLoader):
    """Runs the very bytes whose digest is told: no compiled copy is read or left beside the file."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file, self._content = file, content

    def get_filename(self, fullname: str) -> str:
        """The file, for tracebacks."""
        return str(self._file)

    def get_data(self, path: str) -> bytes:
        """The file's bytes."""
        return self._content


def load_user_features(spec: str) -> UserFeatures:
    """The function that ``FILE.py:fn`` names. It runs with the rights of whoever starts the program.

    Raises:
        ConfigError: the file or the function is not there, or the file cannot be run.
    """
    path, _, name = spec.rpartition(":")
    if not path or not name.isidentifier():
        raise ConfigError(f"--features {spec}: expected FILE.py:fn, a Python file and a function in it")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"--features {spec}: no file {file}")
    if file.suffix != ".py":
        raise ConfigError(f"--features {spec}: {file} is no Python file; expected a name that ends in .py")
    content = file.read_bytes()
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    loader = importlib.util.spec_from_loader(f"foxhunt_user_{digest}", _Source(file, content))
    assert loader is not None and loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[loader.name] = module  # where dataclasses look their module up
    try:
        loader.loader.exec_module(module)
    except Exception as err:
        failure = f"cannot be run{_line(err, file)}: {type(err).__name__}: {err}"
        raise ConfigError(f"--features {spec}: {file} {failure}") from err
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"--features {spec}: {file} has no function {name!r}")
    return UserFeatures(spec, digest, file, function)


def _guarded(bars: Bars) -> Bars:
    """The same bars, which a function cannot write into."""
    columns = {name: values.view() for name, values in bars.columns.items()}
    given = Bars(bars.symbol, bars.ts_event.view(), columns)
    for values in (given.ts_event, *columns.values()):
        values.flags.writeable = False
    return given


def _line(err: BaseException, file: Path) -> str:
    """Where in the user's file it failed; empty if it did elsewhere."""
    lines = [frame.lineno for frame in traceback.extract_tb(err.__traceback__) if frame.filename == str(file)]
    return f" in line {lines[-1]}" if lines else ""
