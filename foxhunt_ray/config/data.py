"""The sections that say what is read, what the model sees and forecasts, and how time is split."""

from __future__ import annotations

import datetime as dt
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from foxhunt_ray.config.section import Section
from foxhunt_ray.config.units import parse_duration


class DataConfig(Section):
    """What is read, and how rows become windows."""

    path: str | tuple[str, ...] = ""
    """File, folder or glob of parquet, or a list of them; empty = the built-in synthetic market."""
    context_length: int = Field(64, ge=1, le=65536)
    """Input length L of a window [bars]."""
    stride: int = Field(1, ge=1, le=65536)
    """Distance between the starts of training windows, counted from a segment's first row [bars]."""
    gap: Literal["break", "bridge", "session"] = "break"
    """Steps longer than max_gap: break = a window never crosses one; bridge = all are crossed;
    session = those within one day of data.timezone are crossed, those between days are not."""
    max_gap: str = ""
    """Longest step between two bars that is no gap [duration]; empty = 1.5 x the usual step, and a week for
    daily bars."""
    timezone: str = ""
    """IANA zone of stamps that carry none; empty = UTC, unless something shows local time."""
    stamp: Literal["auto", "start", "end"] = "auto"
    """Whether a stamp is the start or the end of its bar; auto = by the column's name, else the start."""
    dates: Literal["auto", "day_first", "month_first"] = "auto"
    """Order of dates like 5/11/2019 in text; auto = as the values prove it."""
    symbols: tuple[str, ...] = ()
    """Symbols to use; empty = all."""
    time_column: str = ""
    """Column that holds the bar's stamp; empty = found by type and name."""
    symbol_column: str = ""
    """Column that holds the symbol; empty = found by name, else hive key, metadata or file name."""
    wide: Literal["auto", "symbols", "features"] = "auto"
    """A table with a column for each symbol: symbols = each a price; features = columns of one symbol."""
    price_scale: float = Field(0.0, ge=0)
    """Divisor of integer prices, such as 10000; 0 = as the values or the vendor's names show it."""
    missing_columns: Literal["refuse", "fill", "drop"] = "refuse"
    """Columns that some files lack: fill = missing values there; drop = leave these columns out."""
    duplicates: str = "refuse"
    """Rows of one symbol and stamp that differ: refuse, first, last, or latest_by:COLUMN."""
    skip_bad: bool = False
    """Go on without damaged files, and say so."""

    @field_validator("max_gap")
    @classmethod
    def _gap_is_a_duration(cls, value: str) -> str:
        if value:
            parse_duration(value)
        return value

    @field_validator("duplicates")
    @classmethod
    def _rule_is_known(cls, value: str) -> str:
        rule, _, column = value.partition(":")
        if value not in ("refuse", "first", "last") and not (rule == "latest_by" and column):
            raise ValueError("expected refuse, first, last or latest_by:COLUMN")
        return value

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths to read, none for the synthetic market."""
        return self.path if isinstance(self.path, tuple) else tuple(p for p in [self.path] if p)

    @property
    def where(self) -> str:
        """The data in a word or two, for messages."""
        more = len(self.paths) - 1
        first = self.paths[0] if self.paths else "the synthetic market"
        return f"{first} and {more} more" if more > 0 else first


Group = Literal["all", "returns", "range", "volatility", "volume", "spread", "calendar", "session"]


class FeaturesConfig(Section):
    """Which inputs the model sees."""

    groups: tuple[Group, ...] = ("all",)
    """Named groups computed from prices; "all" = those the columns allow; empty = none."""
    columns: tuple[str, ...] = ()
    """Columns of the files used as they are; globs allowed."""
    exclude: tuple[str, ...] = ()
    """Inputs left out; globs allowed."""
    scale: Literal["standard", "robust", "none"] = "standard"
    """standard = subtract mean, divide by standard deviation; robust = median and interquartile range
    / 1.349; both of training rows only."""
    clip: float = Field(10.0, ge=0)
    """Largest magnitude after scaling [standard deviations]; 0 = no clipping."""
    missing: Literal["invalidate", "mask"] = "invalidate"
    """A missing input: invalidate = no window touches it; mask = 0 after scaling, and a flag beside it."""
    max_missing: float = Field(0.5, ge=0, le=1)
    """Columns of the files with a larger share of missing values are left out, and named."""
    allow_leaks: tuple[str, ...] = ()
    """Inputs that the leak guard does not refuse; globs allowed, ["*"] = guard off."""


class TargetConfig(Section):
    """What is forecast."""

    kind: Literal[
        "realised_vol", "log_return", "vol_scaled_return", "range", "direction", "price", "column"
    ] = "realised_vol"
    """realised_vol = log of root mean square one-step return; log_return; vol_scaled_return = log return
    by recent volatility; range = log of highest by lowest price; direction = sign of the log return;
    price = a close, learnt as the change from the last; column = a column's value."""
    column: str = ""
    """Column to forecast when kind = "column"."""
    horizon: int | tuple[int, ...] = 24
    """Distance from the last input bar to the target bar, or a list of them [bars]."""
    price: str = "auto"
    """auto = close, else the mid of bid and ask; or close, mid, or a column's name."""
    dead_zone: float = Field(0.0, ge=0, lt=1)
    """Log returns up to this magnitude have direction 0."""

    @field_validator("horizon")
    @classmethod
    def _horizons_ascend(cls, value: int | tuple[int, ...]) -> int | tuple[int, ...]:
        given = value if isinstance(value, tuple) else (value,)
        if not given or list(given) != sorted(set(given)) or not 1 <= given[0] <= given[-1] <= 65536:
            raise ValueError("expected bars from 1 to 65536, one number or an ascending list")
        return value

    @model_validator(mode="after")
    def _column_is_named(self) -> Self:
        if self.kind == "column" and not self.column:
            raise ValueError('target.kind = "column" needs target.column, the name of the column to forecast')
        return self

    @property
    def horizons(self) -> tuple[int, ...]:
        """Every horizon, ascending [bars]."""
        return self.horizon if isinstance(self.horizon, tuple) else (self.horizon,)

    @property
    def longest(self) -> int:
        """The longest horizon, which purges and validity follow [bars]."""
        return self.horizons[-1]


class SplitConfig(Section):
    """Chronological train, validation and test spans, as fractions of the time span or start dates."""

    train: float | str = 0.7
    """Fraction of the pooled time span, or the date at which training starts."""
    val: float | str = 0.15
    """Fraction of the pooled time span (0 = none), or the date at which validation starts."""
    test: float | str = 0.15
    """Fraction of the pooled time span (0 = none), or the date at which the test starts."""
    embargo: str = "0s"
    """Span after each boundary in which no window may end [duration]."""

    @model_validator(mode="after")
    def _spans_are_consistent(self) -> Self:
        parse_duration(self.embargo)
        parts = (self.train, self.val, self.test)
        dates = [p for p in parts if isinstance(p, str)]
        for text in dates:
            try:
                dt.datetime.fromisoformat(text)
            except ValueError as err:
                raise ValueError(f"{text!r} is not an ISO date such as 2016-01-01") from err
        if dates and not (isinstance(self.val, str) and isinstance(self.test, str)):
            raise ValueError("give val and test both as start dates, or all three as fractions")
        fractions = [p for p in parts if isinstance(p, float | int)]
        if not dates and (min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6):
            raise ValueError(f"fractions {parts} must be at least 0 and sum to 1")
        if not dates and self.train == 0:
            raise ValueError("train is 0: nothing to learn from")
        return self
