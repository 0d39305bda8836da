"""Inputs of the user's own: a function of bars in a file named on the command line, and never in a config.

The function must use only rows up to each row: it is computed again on shortened histories, and what was
there before must come out the same, bit by bit.
"""

from __future__ import annotations

import hashlib
import importlib.util
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

_CUTS = (0.2, 0.5, 0.8)  # of the history; one more cut leaves out the last row
_Columns = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class UserFeatures:
    """A function of the user's that adds inputs.

    Attributes:
        spec: ``FILE.py:fn`` as it was given.
        digest: of the file's content.
        function: maps ``Bars`` to columns of n numbers by name.
    """

    spec: str
    digest: str
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
            whole = self._columns(one)
            self._compare(one, whole, self._columns(one), "is not the same when computed again")
            for rows in sorted({int(len(one.ts_event) * share) for share in _CUTS} | {len(one.ts_event) - 1}):
                if rows > 0:
                    columns = {name: values[:rows] for name, values in one.columns.items()}
                    part = Bars(one.symbol, one.ts_event[:rows], columns)
                    text = (
                        f"looks into the future: without the rows from {iso(int(one.ts_event[rows]))} on it"
                    )
                    self._compare(part, whole, self._columns(part), f"{text} has other values")

    def _columns(self, bars: Bars) -> _Columns:
        try:
            with np.errstate(all="ignore"):
                found = self.function(replace(bars, columns=dict(bars.columns)))
        except Exception as err:
            line = traceback.extract_tb(err.__traceback__)[-1].lineno
            raise self._fault(bars, f"fails in line {line}: {type(err).__name__}: {err}") from err
        if not isinstance(found, Mapping) or not found:
            raise self._fault(bars, f"returns {type(found).__name__}, expected columns by name")
        return dict(self._checked(bars, found))

    def _checked(self, bars: Bars, found: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float64]]]:
        for name, values in found.items():
            if not isinstance(name, str) or name in bars.columns or name in COMPUTED:
                raise self._fault(bars, f"calls a column {name!r}, a name that is taken; choose another")
            try:
                column = np.asarray(values, np.float64)
            except (TypeError, ValueError) as err:
                raise self._fault(bars, f"gives {name!r} values that are not numbers") from err
            if column.shape != bars.ts_event.shape:
                shape = f"{list(column.shape)} values, expected {len(bars.ts_event)}, one a bar"
                raise self._fault(bars, f"gives {name!r} {shape}")
            yield name, column

    def _compare(self, bars: Bars, whole: _Columns, again: _Columns, what: str) -> None:
        for name, values in again.items():
            before = whole.get(name, np.empty(0))[: len(values)]
            if len(before) < len(values):
                raise self._fault(bars, f"column {name!r} is not always there")
            differs = np.flatnonzero((before != values) & ~(np.isnan(before) & np.isnan(values)))
            if len(differs):
                first = iso(int(bars.ts_event[differs[0]]))
                raise self._fault(
                    bars, f"column {name!r} {what} in {len(differs):,} rows, the first at {first}"
                )

    def _fault(self, bars: Bars, what: str) -> DataError:
        return DataError(f"--features {self.spec}: {bars.symbol}: {what}; use only rows up to each bar")


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
    loader = importlib.util.spec_from_file_location("foxhunt_user_features", file)
    if loader is None or loader.loader is None:
        raise ConfigError(f"--features {spec}: {file} is no Python file; expected a name that ends in .py")
    module = importlib.util.module_from_spec(loader)
    try:
        loader.loader.exec_module(module)
    except Exception as err:
        raise ConfigError(f"--features {spec}: {file} cannot be run: {type(err).__name__}: {err}") from err
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"--features {spec}: {file} has no function {name!r}")
    return UserFeatures(spec, hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest(), function)
