"""docs/bring_your_data.md is true: its commands run, and every refusal it quotes is said word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.cli import main

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "bring_your_data.md").read_text(encoding="utf-8")
HOUR, N = 3600 * 10**9, 400
START = 1_577_836_800 * 10**9  # 2020-01-01
CLOSE = np.round(100 * np.exp(np.cumsum(np.random.default_rng(0).standard_normal(N) * 1e-3)), 2)


def utc(ns: Any = None) -> Any:
    return pa.array(START + HOUR * np.arange(N) if ns is None else ns, pa.timestamp("ns", "UTC"))


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"ts": utc(), "close": CLOSE} | columns), path, write_page_checksum=True)


def raw(content: bytes) -> Callable[[Path], None]:
    return lambda bars: (bars / "A.parquet").write_bytes(content) and None


def truncated(bars: Path) -> None:
    write(bars / "A.parquet")
    (bars / "A.parquet").write_bytes((bars / "A.parquet").read_bytes()[:5000])


def flipped(bars: Path) -> None:
    write(bars / "A.parquet")
    data = bytearray((bars / "A.parquet").read_bytes())
    data[2500] ^= 255
    (bars / "A.parquet").write_bytes(data)


def no_rows(bars: Path) -> None:
    pq.write_table(pa.table({"ts": utc([]), "close": np.empty(0)}), bars / "A.parquet")


def one(**columns: Any) -> Callable[[Path], None]:
    return lambda bars: write(bars / "A.parquet", **columns)


def two(first: dict[str, Any], second: dict[str, Any]) -> Callable[[Path], None]:
    def make(bars: Path) -> None:
        write(bars / "A.parquet", **first)
        write(bars / "B.parquet", **second)

    return make


def without(name: str) -> Callable[[Path], None]:
    table = pa.table({"ts": utc(), "close": CLOSE}).drop_columns(name)
    return lambda bars: pq.write_table(table, bars / "A.parquet")


def parts(bars: Path) -> None:
    for number in range(2):
        write(bars / f"part-{number}.parquet")


def two_homes(bars: Path) -> None:
    for home in ("polygon", "yahoo"):
        write(bars / home / "AAPL.parquet")


def session(bars: Path) -> None:
    days = np.arange(40)[:, None] * 24 + np.arange(9, 17)
    stamps = (START + HOUR * days.ravel()[:N]).astype("M8[ns]")
    n = len(stamps)
    pq.write_table(pa.table({"ts": stamps, "close": CLOSE[:n]}), bars / "A.parquet")


def conflicting(bars: Path) -> None:
    write(bars / "symbol=A" / "jan.parquet")
    write(bars / "symbol=A" / "feb.parquet", ts=utc(START + HOUR * np.arange(N - 1, 2 * N - 1)))


def interleaved(bars: Path) -> None:
    sides = pa.array(["bid", "ask"] * (N // 2))
    write(
        bars / "A.parquet", ts=utc(START + HOUR * (np.arange(N) // 2)), close=CLOSE + np.arange(N), side=sides
    )


def trades(bars: Path) -> None:
    stamps = START + np.cumsum(np.random.default_rng(0).integers(1, 60 * 10**9, N))
    pq.write_table(pa.table({"ts": utc(stamps), "price": CLOSE, "size": CLOSE}), bars / "A.parquet")


def wide(bars: Path) -> None:
    names = ("AAPL", "MSFT", "IBM")
    table = {"ts": utc()} | {name: CLOSE + i for i, name in enumerate(names)}
    pq.write_table(pa.table(table), bars / "prices.parquet")


MINUTES = {"ts": utc(START + 60 * 10**9 * np.arange(N))}
NAIVE = {"ts": (START + HOUR * np.arange(N)).astype("M8[ns]")}
DATES = {"ts": pa.array(["1/2/2020"] * N)}
CASES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "zero bytes": (raw(b""), []),
    "truncated": (truncated, []),
    "damaged page": (flipped, []),
    "no rows": (no_rows, []),
    "LFS pointer": (raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"), []),
    "HTML": (raw(b"<!DOCTYPE html><html>"), []),
    "CSV": (raw(b"ts,close\n2020-01-01,1\n"), []),
    "encrypted": (raw(b"PARE" + bytes(20) + b"PARE"), []),
    "no time column": (without("ts"), []),
    "no price": (without("close"), []),
    "times": (one(ts=CLOSE, start=utc(), finish=utc()), []),
    "local time": (session, []),
    "dates": (one(**DATES), []),
    "two clocks": (one(time=utc(START + 5 * HOUR + HOUR * np.arange(N))), []),
    "parts": (parts, []),
    "two homes": (two_homes, []),
    "price scale": (one(close=np.arange(N) * 977 + 1_234_567), []),
    "wide": (wide, []),
    "price text": (one(close=pa.array(["1,234.5"] * N)), []),
    "missing column": (two({}, {"volume": CLOSE}), []),
    "zones": (two(NAIVE, {}), []),
    "kinds of stamps": (two({"ts": np.arange(N) * 3600 + START // 10**9}, {}), []),
    "text and numbers": (two({"x": CLOSE}, {"x": pa.array(["a"] * N)}), []),
    "capitals": (two({"Spread": CLOSE}, {"spread": CLOSE}), []),
    "intervals": (two({}, MINUTES), []),
    "conflicting rows": (conflicting, []),
    "interleaved": (interleaved, []),
    "trades": (trades, []),
    "target among the inputs": (one(target_5=CLOSE[::-1].copy()), ["--set", 'features.columns=["target_5"]']),
    "too few bars": (one(), ["--set", "data.context_length=300"]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_refusal_is_said_as_the_page_says(case, tmp_path, capsys):
    make, options = CASES[case]
    bars = tmp_path / "bars"
    bars.mkdir()
    make(bars)
    assert main(["check", str(bars), *options]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in (out + err).splitlines() if line.startswith(("refus", "foxhunt:"))]
    told = [re.sub(r"^(refusal|refused|foxhunt:) +", "", line).replace(str(bars), "bars") for line in lines]
    assert f"`{told[0]}`" in TEXT or f"``{told[0]}``" in TEXT, told[0]


def test_every_command_of_the_page_runs(market, tmp_path):
    code = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)[1]
    (tmp_path / "bars").mkdir()
    files = sorted(market.glob("*.parquet"))
    for file, name in zip(files, ("EURUSD", "XAUUSD"), strict=True):
        (tmp_path / "bars" / f"{name}.parquet").write_bytes(file.read_bytes())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_function_of_the_page_is_causal_and_becomes_an_input(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1])
    write(tmp_path / "A.parquet")
    assert main(["check", str(tmp_path / "A.parquet"), "--features", f"{tmp_path / 'mine.py'}:fn"]) == 0
    assert " over_mean\n" in capsys.readouterr().out
