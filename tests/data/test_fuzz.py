"""Bytes of good files are flipped: the outcome is the right values or one sentence, never a crash or a hang.

The readings run in a process of their own, so that a crash of the decoder would be seen as one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 600
FLIPS = 400
READER = r"""
import hashlib, json, sys
from pathlib import Path
import numpy as np
from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import scan_market

good, work, seed, first, last, flips = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:7])
data, random = good.read_bytes(), np.random.default_rng(seed)
target = work / good.name

def reading():
    try:
        market = scan_market(load_config(None, {"data.path": str(target)}))
    except ValueError as err:  # a sentence for the whole path
        return "refused: " + str(err)
    if market.refusals:
        return "refused: " + str(market.refusals[0])
    digest = hashlib.sha256()
    for bars in market.bars:
        digest.update(repr((bars.symbol, sorted(bars.columns))).encode() + bars.ts_event.tobytes())
        for name in sorted(bars.columns):
            digest.update(bars.columns[name].tobytes())
    return digest.hexdigest()

target.write_bytes(data)
outcomes = [("", reading())]
for _ in range(flips):
    broken = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        broken[int(random.integers(first, last))] ^= int(random.integers(1, 256))
    target.write_bytes(broken)
    outcomes.append((broken == data, reading()))
print(json.dumps(outcomes))
"""


def good_file(folder: Path, *, compression: str, dictionary: bool) -> tuple[Path, list[tuple[int, int]]]:
    """A file with page checksums, and the byte ranges that lie inside pages for certain."""
    random = np.random.default_rng(1)
    close = 100 * np.exp(np.cumsum(random.standard_normal(ROWS) * 1e-3))
    stamps = 1_600_000_000 * 10**9 + np.arange(ROWS) * 3600 * 10**9
    table = pa.table(
        {
            "ts": pa.array(stamps, pa.timestamp("ns", "UTC")),
            "close": close,
            "volume": random.integers(1, 1000, ROWS),
            "symbol": ["AAA"] * ROWS,
        }
    )
    path = folder / "good.parquet"
    pq.write_table(table, path, compression=compression, use_dictionary=dictionary, write_page_checksum=True)
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(i) for i in range(2)]  # those of the values, which are a page each
    ends = [c.data_page_offset + c.total_compressed_size for c in chunks]
    return path, [(end - c.total_compressed_size // 2, end) for c, end in zip(chunks, ends, strict=True)]


def outcomes(good: Path, folder: Path, *, seed: int, span: tuple[int, int], flips: int) -> list[str]:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", READER, *map(str, (good, work, seed, *span, flips))],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"the reader died with {done.returncode}: {done.stderr[-2000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    return [outcome for _, outcome in found]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_flip_inside_a_checked_page_is_always_seen(tmp_path: Path, compression: str) -> None:
    good, pages = good_file(tmp_path, compression=compression, dictionary=False)
    for number, span in enumerate(pages):
        right, *others = outcomes(good, tmp_path, seed=number, span=span, flips=FLIPS // 8)
        assert len(right) == 64
        for outcome in others:
            assert outcome.startswith("refused: "), "other values were read in spite of a checksum"
            assert "cannot be decoded" in outcome


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_flip_anywhere_gives_a_reading_or_one_sentence(tmp_path: Path, dictionary: bool) -> None:
    good, _ = good_file(tmp_path, compression="snappy", dictionary=dictionary)
    size = good.stat().st_size
    _, *anywhere = outcomes(good, tmp_path, seed=7, span=(0, size), flips=FLIPS // 2)
    _, *footer = outcomes(good, tmp_path, seed=8, span=(size - 1500, size), flips=FLIPS // 2)
    for outcome in (*anywhere, *footer):
        if outcome.startswith("refused: "):
            assert "\n" not in outcome
            assert len(outcome) < 800
            assert "good.parquet" in outcome
    assert any(o.startswith("refused: ") for o in footer)
