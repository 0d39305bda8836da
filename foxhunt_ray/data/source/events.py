"""Rows that are trades, quotes or book events and no bars; columns that tell rows of one stamp apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, refusal
from foxhunt_ray.data.parquet import opened
from foxhunt_ray.data.source.columns import is_text, plain
from foxhunt_ray.data.source.intervals import usual_step_of
from foxhunt_ray.data.source.merge import Piece
from foxhunt_ray.data.split import iso
from foxhunt_ray.errors import DamagedFileError

_BARS = ("open", "high", "low", "bid_close", "ask_close")
_QUOTES = ("bid", "ask", "bid_price", "ask_price", "bid_px_00", "ask_px_00")
_TRADES = ("trade_id", "buyer_maker", "is_buyer_maker", "qty", "quantity", "size", "amount", "aggressor_side")
_REGULAR = 0.5  # share of steps that are the usual one, from which rows are taken for bars
_FEWEST = 10
_SHORT_NS = 30 * 60 * 10**9
_LABELS = 1000  # distinct values of a column that tells contracts or sides apart


def event_findings(
    columns: Collection[str], stamps: Mapping[str, NDArray[np.int64]], *, file: str
) -> list[Finding]:
    """A refusal if rows are events: one price or bid and ask at stamps that follow no interval.

    Args:
        columns: names of what was read, as they are in the file or inside.
        stamps: int64 [n] of each symbol, UTC ns, sorted.
        file: the file, for the message.
    """
    names = {plain(name) for name in columns}
    if names & set(_BARS) or (not names & set(_QUOTES) and not ("price" in names and names & set(_TRADES))):
        return []
    total = sum(map(len, stamps.values()))
    steps = [np.diff(ts) for ts in stamps.values()]
    ties = sum(int((s == 0).sum()) for s in steps)
    usual = sum(int((s == usual_step_of(ts)).sum()) for s, ts in zip(steps, stamps.values(), strict=True))
    if total < _FEWEST or (usual >= _REGULAR * (total - len(stamps)) and ties < 0.01 * total):
        return []
    what = "quotes or book events" if any(n.startswith(("bid", "ask")) for n in names) else "trades"
    first, last = (f(int(ts[i]) for ts in stamps.values() if len(ts)) for f, i in ((min, 0), (max, -1)))
    step = "1s" if last - first < _SHORT_NS else "1m"
    tied = f", {ties:,} of them at the stamp of the one before" if ties else ""
    text = f"{total:,} {what} from {iso(first)} to {iso(last)}{tied}: events, not bars"
    return [
        refusal(text, file=file, count=total, action=f"aggregate: `foxhunt prepare PATH OUT --bars {step}`")
    ]


def telling_column(piece: Piece) -> str:
    """A column of the file in which no two rows of one stamp are equal; "" if there is none.

    Text is looked at before numbers, which may differ by chance; where no stamp comes twice there is nothing
    to tell apart.
    """
    if len(np.unique(piece.ts_event)) == len(piece.ts_event):
        return ""
    try:
        with opened(piece.path) as parquet:
            fields = [f for f in parquet.schema_arrow if is_text(f.type) or _is_code(f.type)]
            for field in sorted(fields, key=lambda f: not is_text(f.type)):
                column = parquet.read(columns=[field.name]).column(field.name)
                if piece.rows is not None:
                    column = column.take(piece.rows)
                if _tells_apart(column, piece.ts_event):
                    return str(field.name)
    except DamagedFileError:
        return ""
    return ""


def _is_code(dtype: Any) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_boolean(dtype))


def _tells_apart(column: pa.ChunkedArray, ts_event: NDArray[np.int64]) -> bool:
    if len(column) != len(ts_event):
        return False
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.combine_chunks().dictionary_encode()
    if not 1 < len(encoded.dictionary) <= min(_LABELS, len(column) // 2):
        return False
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    order = np.lexsort((codes, ts_event))
    same = (np.diff(ts_event[order]) == 0) & (np.diff(codes[order]) == 0)
    return not same.any()
