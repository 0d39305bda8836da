"""The leak guard: columns of the files that look as if they held what is known only later.

Names, values missing at the end alone, a fit over the whole file, forecasts that are too good, and copies of
the future are told of each column; a model input among them is refused until the user decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal, warning
from foxhunt_ray.data.globs import fits
from foxhunt_ray.data.prices import price_series
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError

Series = NDArray[np.float64]
_ROWS = 250_000  # the last rows of a symbol that are looked at
_WORDS = frozenset(["target", "targets", "label", "labels", "future", "fwd", "forward", "lead", "next"])
_PHASES = frozenset(["msw", "sine", "span"])  # indicators whose lead is a phase or a shift to the right
_IDS = frozenset(["id", "ids", "sequence", "seq"])
_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# What the market itself gives at the end of a bar.
_MARKET = re.compile(r"volume|((bid|ask)_)?(open|high|low|close)|(bid|ask)(_(price|size|px|sz|ct))?(_\d+)?")
_HORIZONS = (1, 5, 24)
_SHIFTS = 24  # bars ahead that a copy of the price is looked for
_HOLES = 0.01  # share of missing values inside a column that counts as whole
_FEWEST, _FEWEST_IC = 30, 200  # values that a copy, and a correlation, must rest on
_MINUTE = 60 * 10**9  # on shorter steps the order book honestly tells the next moves
_IC, _DISTANCE_IC, _DEVIATIONS = 0.2, 0.3, 5.0  # what no honest input reaches, and how sure that must be
_SAME = 0.999  # correlation of two columns that are one
_STRAIGHT = 1e-5  # distance from a straight line as share of the range
_EPSILON = 2.0**-23  # of float32, in which many features are kept
_CLOCKS = np.array([1, 1e3, 1e6, 1e9, 60e9, 3600e9, *(86400e9 * np.array([1, 7, 360, 365, 365.25]))])
_FIT = "it is one straight line over the whole file, as a fit to all of it gives"
_DISTANCE, _LEVEL = "its distance from the price", "it"


@dataclass(frozen=True, eq=False)
class _Symbol:
    """What a symbol's columns are held against; by horizon, unless steps are too short for that, the log
    return ahead and the last one's correlation with it."""

    stamps: NDArray[np.int64]
    price: Series
    targets: list[Series]
    ahead: dict[int, Series]
    usual: dict[int, float]


@dataclass(frozen=True)
class _Evidence:
    """What one symbol shows of one column.

    Attributes:
        ends: rows at its end without a value though it is whole before.
        line: why it only numbers the rows, or that it is a fit; empty = neither.
        copy: of what it is a copy; empty = of nothing.
        ics: (what, horizon) to the correlation with the log return ahead, the usual one, and the rows.
    """

    ends: int
    line: str
    copy: str
    ics: dict[tuple[str, int], tuple[float, float, int]]


def leak_findings(
    bars: Sequence[Bars],
    targets: Sequence[Series],
    *,
    price: str,
    horizons: Sequence[int],
    inputs: Collection[str],
    allowed: Sequence[str],
) -> list[Finding]:
    """One finding for each column of the files that looks ahead, or that only numbers the rows.

    Prices and sizes that the market gives are passed over. Of a longer symbol the last 250,000 rows are
    looked at. Correlations are averaged over the symbols; values missing at the end count if a quarter of the
    symbols shows them (half, if only one row lacks its value); all else counts if one symbol shows it.

    Args:
        bars: every symbol.
        targets: float64 [n] or [n, H] of each symbol, the target of each row as last input row, NaN =
            unknown; empty = no target is looked at.
        price: ``target.price``; a symbol without it is looked at without prices.
        horizons: ``target.horizons`` [bars].
        inputs: names of the model's inputs.
        allowed: ``features.allow_leaks``, names or globs that are not refused.
    """
    seen: dict[str, list[_Evidence]] = {}
    for number, one in enumerate(bars):
        symbol = _symbol(one, targets[number] if len(targets) else None, price, (*_HORIZONS, *horizons))
        for name, values in one.columns.items():
            if name != price and not _MARKET.fullmatch(name):
                seen.setdefault(name, []).extend(_evidence(name, values[-_ROWS:], symbol))
    found = []
    for name, evidence in seen.items():
        reasons = [r for r in (_name(name), _ends(evidence), _proof(evidence), _forecast(evidence)) if r]
        numbers = [e.line for e in evidence if e.line]
        known = fits(name, *allowed)
        if reasons:
            found.append(_leak(name, "; ".join(reasons), known=known, used=name in inputs))
        elif numbers and not known:
            found.append(_number(name, numbers[0], used=name in inputs))
    return found


def _leak(name: str, why: str, *, known: bool, used: bool) -> Finding:
    text = f"looks into the future: {why}"
    if known:
        return note(f"{text}; allowed by features.allow_leaks", column=name)
    if not used:
        return warning(text, column=name, action="keep it out of features.columns")
    unless = f'if it is known at the bar\'s stamp, set features.allow_leaks=["{name}"]'
    action = f'leave it out with features.exclude=["{name}"], or, {unless}'
    return refusal(text, column=name, action=action)


def _number(name: str, what: str, *, used: bool) -> Finding:
    text = f"{what}, which says where a bar stands in the file and nothing of the market"
    action = f'leave it out with features.exclude=["{name}"]' if used else "keep it out of features.columns"
    return warning(text, column=name, action=action)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _TOKEN.findall(name)]


def _name(name: str) -> str:
    if name.startswith("&"):
        return "FreqAI begins the names of its labels with &"
    words = _words(name)
    hits = [w for w in words if w in _WORDS and (w != "lead" or not _PHASES.intersection(words))]
    return f"its name says {hits[0]!r}" if hits else "it is called y" if name.lower() == "y" else ""


def _ends(evidence: Sequence[_Evidence]) -> str:
    shown = [e.ends for e in evidence if e.ends]
    longest = max(shown, default=0)
    if not shown or len(shown) < len(evidence) * (0.25 if longest > 1 else 0.5):
        return ""
    rows = f"{longest} rows" if longest > 1 else "row"
    return f"it has no value in the last {rows} but hardly a gap before"


def _proof(evidence: Sequence[_Evidence]) -> str:
    """What a single symbol proves."""
    return next((e.copy for e in evidence if e.copy), _FIT if any(e.line == _FIT for e in evidence) else "")


def _forecast(evidence: Sequence[_Evidence]) -> str:
    """The largest correlation with later returns that is beyond what any honest input reaches."""
    best, text = 0.0, ""
    for key in dict.fromkeys(key for e in evidence for key in e.ics):
        what, horizon = key
        ic, usual, rows = np.array([e.ics[key] for e in evidence if key in e.ics]).T
        mean, own = np.average(ic, weights=rows), np.average(np.abs(usual), weights=rows)
        # The longest symbol decides how sure it is: symbols move together.
        sure = _DEVIATIONS / np.sqrt(rows.max() / horizon)
        if abs(mean) > max(own + (_IC if what == _LEVEL else _DISTANCE_IC), sure, best):
            best = abs(mean)
            ahead = "the next bar" if horizon == 1 else f"the next {horizon} bars"
            text = f"{what} has a correlation of {mean:+.2f} with the log return of {ahead}"
    return text


def _symbol(bars: Bars, target: Series | None, price: str, horizons: Sequence[int]) -> _Symbol:
    stamps = bars.ts_event[-_ROWS:]
    n = len(stamps)
    try:
        values = price_series(bars, price)[0][-_ROWS:]
    except DataError:  # a table of columns without a price can still be forecast
        values = np.full(n, np.nan)
    last = np.diff(np.log(values), prepend=np.nan)
    coarse = n > 1 and np.median(np.diff(stamps)) >= _MINUTE
    ahead = {h: _ahead(values, h) for h in horizons if h < n and coarse}
    usual = {h: _correlation(last, series)[0] for h, series in ahead.items()}
    known = [] if target is None else [*np.atleast_2d(target[-_ROWS:].T)]
    return _Symbol(stamps, values, known, ahead, usual)


def _evidence(name: str, values: Series, symbol: _Symbol) -> Iterator[_Evidence]:
    """At most one piece of evidence: none of a column that hardly has values or does not vary."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < _FEWEST or values[known].min() == values[known].max():
        return
    copy = "it is the target itself" if any(_is_same(values, t) for t in symbol.targets) else ""
    ics, shown = {}, ((_LEVEL, values), (_DISTANCE, _distance(values, symbol.price)))
    for horizon, ahead in symbol.ahead.items():
        for what, series in shown:
            ic, n = _correlation(series, ahead)
            if abs(ic) > _SAME and not copy and _is_same(series, ahead):
                copy = f"{what} is the log return of {horizon} bars ahead"
            if n >= _FEWEST_IC:
                ic = _without_outliers(series, ahead, ic) if abs(ic) > _IC else ic
                ics[what, horizon] = ic, symbol.usual[horizon], n
    copy = _later_price(values, symbol.price) or copy
    line = _line(values, symbol.stamps, known) or _id(name, values[known])
    yield _Evidence(_missing_end(values, known, symbol.price), line, copy, ics)


def _missing_end(values: Series, known: NDArray[np.int64], price: Series) -> int:
    first, last = int(known[0]), int(known[-1])
    holes = last + 1 - first - len(known)
    after = price[last + 1 :]
    # A source that ended long ago does not look a quarter of the file ahead.
    is_end = np.isfinite(after).all() and len(after) <= len(values) / 4
    return len(after) if is_end and holes <= _HOLES * (last + 1 - first) else 0


def _line(values: Series, stamps: NDArray[np.int64], known: NDArray[np.int64]) -> str:
    """What a column is that is a straight line by row or by time; empty = it is none."""
    of = values[known]
    rise, rounding = float(of[-1] - of[0]), 2 * _EPSILON * float(np.abs(of).max())
    if abs(rise) <= 1000 * rounding:
        return ""
    for axis in (known, stamps[known]):
        along = (axis - axis[0]) / float(axis[-1] - axis[0])
        if np.abs(of - of[0] - rise * along).max() <= _STRAIGHT * abs(rise) + rounding:
            break
    else:
        return ""
    step = abs(rise) / float(known[-1] - known[0])
    clocks = abs(rise) / float(stamps[known[-1]] - stamps[known[0]]) * _CLOCKS
    if step != 1 and (np.abs(clocks - 1) < 1e-6).any():
        return "it is the time"
    whole = step if step >= 1 else 1 / step  # rows counted in steps, or as parts of a whole
    return "it is a row number" if abs(whole - np.rint(whole)) < 1e-6 * whole else _FIT


def _id(name: str, of: Series) -> str:
    grows = _IDS.intersection(_words(name)[-1:]) and (np.diff(of) >= 0).all()
    return "it is an id that only grows" if grows and (of == np.rint(of)).all() else ""


def _later_price(values: Series, price: Series) -> str:
    """Whether the column is the price of one later bar, and not that of its own."""
    shifts = np.arange(1, _SHIFTS + 1)
    rows = np.flatnonzero(np.isfinite(values[:-_SHIFTS]))
    rows = rows[:: max(1, len(rows) // 64)]
    if not len(rows) or _equal(values, price):
        return ""
    later = price[rows[:, None] + shifts]
    for k in shifts[(np.isclose(values[rows, None], later, rtol=1e-6, atol=0) | np.isnan(later)).all(axis=0)]:
        if _equal(values[:-k], price[k:]):
            return "it is the price of the next bar" if k == 1 else f"it is the price of {k} bars later"
    return ""


def _equal(a: Series, b: Series) -> bool:
    both = np.isfinite(a) & np.isfinite(b)
    return bool(both.sum() >= _FEWEST and np.allclose(a[both], b[both], rtol=1e-6, atol=0))


def _distance(values: Series, price: Series) -> Series:
    """Log distance of a column that lies about the price; nothing of another one."""
    ratio = np.divide(values, price, out=np.full(len(values), np.nan), where=(values > 0) & (price > 0))
    known = ratio[np.isfinite(ratio)]
    near = len(known) >= _FEWEST and 0.6 < float(np.median(known)) < 1.6
    logs: Series = np.log(ratio if near else ratio[:0])
    return logs


def _ahead(price: Series, horizon: int) -> Series:
    logs = np.log(price)
    return np.concatenate([logs[horizon:], np.full(horizon, np.nan)]) - logs


def _is_same(a: Series, b: Series) -> bool:
    """Whether two series are one up to scale; so are their changes, unlike those of two slow ones."""
    level, n = _correlation(a, b)
    return n >= _FEWEST and abs(level) > _SAME and abs(_correlation(np.diff(a), np.diff(b))[0]) > _SAME


def _without_outliers(a: Series, b: Series, ic: float) -> float:
    """The smaller of a correlation and that of the values clipped to their inner 98 %."""
    both = np.isfinite(a) & np.isfinite(b)
    x, y = (np.clip(v[both], *np.quantile(v[both], [0.01, 0.99])) for v in (a, b))
    return min(ic, _correlation(x, y)[0], key=abs)


def _correlation(a: Series, b: Series) -> tuple[float, int]:
    """Pearson correlation over the rows where both are finite, and their number; 0 if one does not vary."""
    if len(a) != len(b):
        return 0.0, 0
    both = np.isfinite(a) & np.isfinite(b)
    n = int(both.sum())
    x, y = (v[both] - v[both].mean() if n > 1 else v[:0] for v in (a, b))
    sizes = [float(np.abs(v).max(initial=0)) for v in (x, y)]
    if not all(sizes):
        return 0.0, n
    x, y = x / sizes[0], y / sizes[1]  # no overflow of squares
    return float(x @ y / np.sqrt((x @ x) * (y @ y))), n
