"""What a run will see: files, symbols, span, gaps, features, and windows per split. No torch, no Ray.

``check`` prints it, ``prepare`` moves it into the object store. It holds the rows themselves, so that nothing
is read twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Choices, Config, Range, parse_duration
from foxhunt_ray.data.checks.jumps import jump_findings
from foxhunt_ray.data.checks.leaks import leak_findings
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.features import feature_rows
from foxhunt_ray.data.findings import Finding, note
from foxhunt_ray.data.gaps import gap_findings, segment_starts
from foxhunt_ray.data.inputs import Inputs, bad_rows, choose_inputs
from foxhunt_ray.data.prices import price_series
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.source.intervals import most_common
from foxhunt_ray.data.split import Span, iso, split_spans
from foxhunt_ray.data.synthetic import best_possible, ridge_ceiling
from foxhunt_ray.data.targets import hide_across_gaps, last_values, target_rows
from foxhunt_ray.data.windows import Rows, SymbolIndex, window_ends
from foxhunt_ray.errors import DataError

_DAY = 86400 * 10**9


@dataclass(frozen=True, eq=False)
class Survey:
    """The data of a run, read and understood.

    Attributes:
        market: bars of every symbol, files and notes.
        inputs: what the model sees, F of them.
        rows: float32 [n, F] inputs of each symbol.
        targets: float64 [n, H] targets of each row as last input row, for each symbol.
        index: what the window plan must know of each symbol.
        spans: the splits, by name.
        context_length: the longest L that the config or its search space asks for [bars].
        max_gap: longest step inside a segment [ns].
        findings: what was detected or assumed.
    """

    config: Config
    market: Market
    inputs: Inputs
    rows: tuple[NDArray[np.float32], ...]
    targets: tuple[NDArray[np.float64], ...]
    index: tuple[SymbolIndex, ...]
    spans: dict[str, Span]
    context_length: int
    max_gap: int
    findings: tuple[Finding, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The findings that do not stop a run, a sentence each."""
        return tuple(str(f) for f in self.findings if f.level != "refusal")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the F inputs."""
        return self.inputs.names

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols, in the order of all per-symbol tuples."""
        return tuple(b.symbol for b in self.market.bars)

    def ends(self, split: str | None, *, known_target: bool = True) -> list[Rows]:
        """End rows of the valid windows at the longest context and the base stride, one array a symbol.

        Args:
            split: train, val or test; None = all rows.
            known_target: leave out windows whose target is not known yet.
        """
        span = self.spans.get(split, Span("", 0, 0)) if split else None
        return [
            window_ends(
                index,
                span,
                context_length=self.context_length,
                stride=self.config.data.stride,
                horizon=self.config.target.longest,
                known_target=known_target,
            )
            for index in self.index
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs and targets as float32."""
        return sum(4 * x.size + 4 * y.size for x, y in zip(self.rows, self.targets, strict=True))

    @cached_property
    def window_counts(self) -> dict[str, int]:
        """Valid windows of train, val and test."""
        return {name: sum(map(len, self.ends(name))) for name in ("train", "val", "test")}

    def last(self, split: str) -> NDArray[np.float64]:
        """Forecast "as it was last time" of each window of a split: float64 [N, H], NaN = none."""
        ends = self.ends(split)
        parts = zip(self.market.bars, self.targets, ends, strict=True)
        return np.concatenate([last_values(b, t, self.config)[e] for b, t, e in parts])

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the rows that were read: symbols, stamps, inputs and targets."""
        digest = hashlib.blake2b(repr((self.symbols, self.features)).encode(), digest_size=16)
        for index, rows, targets in zip(self.index, self.rows, self.targets, strict=True):
            for part in (index.ts_event, rows, targets):
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        """The ``data`` table of results.json."""
        data: dict[str, Any] = {
            "files": sum(f.status == "read" for f in self.market.files),
            "symbols": list(self.symbols),
            "rows": sum(map(len, self.rows)),
            "features": list(self.features),
            "windows": dict(self.window_counts),
            "splits": self._split_times(),
            "dropped": dict(self.market.dropped),
        }
        return data | ({"ceilings": ceilings} if (ceilings := self._ceilings()) else {})

    def _split_times(self) -> dict[str, dict[str, str]]:
        first = min(int(i.ts_event[0]) for i in self.index)
        last = max(int(i.ts_event[-1]) for i in self.index)
        return {
            s.name: {"start": iso(max(s.start, first)), "end": iso(s.end if s.end <= last else last)}
            for s in self.spans.values()
        }

    def _ceilings(self) -> dict[str, float]:
        """Best possible and best linear skill, where they are known: the synthetic market's own target."""
        target = self.config.target
        if self.config.data.path or target.kind != "log_return" or target.horizons != (1,):
            return {}
        best = best_possible(self.market)
        ends = self.ends("test")
        truth = np.concatenate([t[e, 0] for t, e in zip(self.targets, ends, strict=True)])
        mean = np.concatenate([best[b.symbol][e] for b, e in zip(self.market.bars, ends, strict=True)])
        if not len(truth):
            return {}
        skill = float(1 - np.mean((truth - mean) ** 2) / np.mean(truth**2))
        return {"ridge": ridge_ceiling(self.context_length), "best": skill}


def survey_market(
    config: Config,
    market: Market,
    *,
    inputs: Inputs | None = None,
    more: Sequence[str] = (),
    max_gap: int | None = None,
) -> Survey:
    """Features, targets, segments and splits of bars that were read.

    Args:
        config: the run's config.
        market: the bars.
        inputs: those of a trained model, whose data are not judged again; None = chosen from the config and
            the columns.
        more: columns that are inputs whatever the config says.
        max_gap: longest step inside a segment [ns]; None = from the config, else by the usual step.

    Raises:
        DataError: a column that features or target need is not there or empty.
        ConfigError: split dates outside the data.
    """
    bars, findings = market.bars, list(market.findings)
    step = usual_step(bars)
    gap = max_gap or (parse_duration(config.data.max_gap) if config.data.max_gap else _usual_gap(step))
    chosen = inputs or choose_inputs(bars, config, more=more)
    findings += chosen.findings
    if config.target.kind != "column":
        findings.append(note(f"price: {price_series(bars[0], config.target.price)[1]}"))
    findings.append(note(f"usual step {_duration(step)}; a longer step than {_duration(gap)} is a gap"))
    rows = tuple(_rows(bars, chosen, config.target.price))
    across = [target_rows(b, config) for b in bars]
    policy, zone = config.data.gap, config.data.timezone
    segments = [segment_starts(b.ts_event, max_gap=gap, policy=policy, timezone=zone) for b in bars]
    hidden = zip(across, segments, strict=True)
    targets = tuple(hide_across_gaps(t, s, config.target.horizons) for t, s in hidden)
    bad = [bad_rows(x, chosen.names, chosen.optional) for x in rows]
    parts = zip(bars, segments, bad, targets, strict=True)
    index = tuple(SymbolIndex(b.ts_event, s, x, _rows_with_nan(y)) for b, s, x, y in parts)
    first = min(int(b.ts_event[0]) for b in bars)
    last = max(int(b.ts_event[-1]) for b in bars)
    spans = split_spans(config, first, last)
    length = longest_context(config)
    found = Survey(config, market, chosen, rows, targets, index, spans, length, gap, tuple(findings))
    if inputs is None:
        findings += _lost_to_gaps(found, across)
        findings += leak_findings(
            bars,
            across,
            price=config.target.price,
            horizons=config.target.horizons,
            inputs=chosen.names,
            allowed=config.features.allow_leaks,
        )
        findings += jump_findings(bars, config.target.price)
    return replace(found, findings=tuple(findings))


def _rows(bars: Sequence[Bars], inputs: Inputs, price: str) -> Iterator[NDArray[np.float32]]:
    """The inputs of each symbol, in memory that the system can write out."""
    scratch = Scratch()
    for one in bars:
        out = scratch.empty((len(one.ts_event), len(inputs.names)), np.float32)
        yield feature_rows(one, inputs.names, price, optional=inputs.optional, out=out)
        scratch.release()


def _lost_to_gaps(found: Survey, across: Sequence[NDArray[np.float64]]) -> list[Finding]:
    """What the gaps cost in windows, and the symbols that are too short for one."""
    bridged = tuple(
        replace(i, segment_first=i.segment_first[:1], target_missing=_rows_with_nan(t))
        for i, t in zip(found.index, across, strict=True)
    )
    possible, kept = ([len(e) for e in replace(found, index=i).ends(None)] for i in (bridged, found.index))
    findings = gap_findings(
        {b.symbol: b.ts_event for b in found.market.bars},
        max_gap=found.max_gap,
        policy=found.config.data.gap,
        across=dict(zip(found.symbols, possible, strict=True)),
        kept=dict(zip(found.symbols, kept, strict=True)),
    )
    short = [s for s, windows in zip(found.symbols, possible, strict=True) if not windows]
    if short and len(short) < len(found.symbols):
        findings.append(note(f"too short for one window: {listed(short)}", count=len(short)))
    return findings


def longest_context(config: Config) -> int:
    """The longest input that the config or its search space asks for [bars]."""
    dimension = config.search.space.get("data.context_length")
    lengths = [config.data.context_length]
    if isinstance(dimension, Range):
        lengths.append(int(dimension.high))
    elif isinstance(dimension, Choices):
        lengths += [int(c) for c in dimension.choices]
    return max(lengths)


def usual_step(bars: Sequence[Bars]) -> int:
    """The most common step between neighbouring bars, over all symbols [ns].

    Raises:
        DataError: no symbol has two bars.
    """
    step, count = most_common(np.concatenate([np.diff(b.ts_event) for b in bars]))
    if not count:
        raise DataError(f"no symbol has two bars ({len(bars)} symbols); a forecast needs a series")
    return step


def _usual_gap(step: int) -> int:
    """Longest step that is no gap: daily bars have weekends and holidays [ns]."""
    return 7 * _DAY if step == _DAY else step * 3 // 2


def _rows_with_nan(values: NDArray[np.floating]) -> Rows:
    return np.flatnonzero(np.isnan(values).any(axis=1))


def _duration(nanoseconds: int) -> str:
    for unit, size in (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("min", 60 * 10**9), ("s", 10**9)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:g} {unit}"
    return f"{nanoseconds} ns"
