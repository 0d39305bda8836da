"""Every file under a path is accounted for, and each that cannot be read says why in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.data.discover import FileEntry, discover
from foxhunt_ray.errors import DataError


def write(path: Path, rows: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"close": pa.array([1.0] * rows)}), path)
    return path


def found(path: str) -> list[FileEntry]:
    return discover([path])


def only(entries: list[FileEntry]) -> FileEntry:
    assert len(entries) == 1
    return entries[0]


def test_one_file_is_read_and_its_rows_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "EURUSD.parquet", rows=5)
    assert found(str(file)) == [FileEntry(str(file), "read", rows=5)]


def test_a_file_that_is_named_itself_needs_no_suffix(tmp_path: Path) -> None:
    assert only(found(str(write(tmp_path / "_part-0")))).status == "read"


def test_a_folder_is_searched_to_its_depths_and_sorted_by_path(tmp_path: Path) -> None:
    names = ["b.parquet", "a/z.pq", "a/b/c.PARQUET"]
    for name in names:
        write(tmp_path / name)
    seen = [os.path.relpath(e.path, tmp_path) for e in found(str(tmp_path))]
    assert seen == ["a/b/c.PARQUET", "a/z.pq", "b.parquet"]


def test_a_relative_path_stays_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "bars" / "A.parquet")
    monkeypatch.chdir(tmp_path)
    assert only(found("bars")).path == "bars/A.parquet"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.parquet", ["a.parquet"]),
        ("s*", ["sub/b.parquet"]),
        ("**", ["a.parquet", "sub/b.parquet"]),
        ("**/*.parquet", ["a.parquet", "sub/b.parquet"]),
    ],
)
def test_a_glob_names_files_and_folders_each_once(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "sub" / "b.parquet")
    entries = found(str(tmp_path / pattern))
    assert [os.path.relpath(e.path, tmp_path) for e in entries] == expected


def test_an_existing_name_with_brackets_is_no_pattern(tmp_path: Path) -> None:
    assert only(found(str(write(tmp_path / "bars[1]" / "a.parquet").parent))).status == "read"


@pytest.mark.parametrize(
    ("folder", "symbol"),
    [
        ("symbol=000660", "000660"),
        ("ticker=BTC%2FUSD/year=2024", "BTC/USD"),
        ("Symbol=A/symbol=B", "B"),
        ("year=2024", ""),
    ],
)
def test_a_hive_folder_names_the_symbol(tmp_path: Path, folder: str, symbol: str) -> None:
    write(tmp_path / folder / "part-0.parquet")
    assert only(found(str(tmp_path))).symbol == symbol


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("_SUCCESS", "hidden: _SUCCESS begins with _"),
        (".a.parquet.crc", "hidden: .a.parquet.crc begins with ."),
        ("_temporary/b.parquet", "hidden: _temporary begins with _"),
        ("prices.csv", "not parquet by its name"),
        ("bars.feather", "not parquet by its name"),
    ],
)
def test_other_files_are_skipped_with_a_reason(tmp_path: Path, name: str, reason: str) -> None:
    write(tmp_path / "a.parquet")
    other = tmp_path / name
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(b"x")
    skipped = only([e for e in found(str(tmp_path)) if e.status == "skipped"])
    assert (skipped.path, skipped.reason) == (str(other), reason)


def test_a_pipe_is_skipped_and_not_opened(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    os.mkfifo(tmp_path / "b.parquet")
    assert found(str(tmp_path))[1].reason == "not a regular file"


def test_a_link_to_a_folder_above_does_not_loop(tmp_path: Path) -> None:
    write(tmp_path / "bars" / "a.parquet")
    (tmp_path / "bars" / "again").symlink_to(tmp_path / "bars")
    assert only(found(str(tmp_path))).status == "read"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "zero bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"ts,close\r\n2020-01-01,1.0\r\n", "text such as CSV"),
        ("Zeit;Schlußkurs\n".encode(), "text such as CSV"),
        (b"<!DOCTYPE html><title>404</title>", "HTML page"),
        (b"PARE" + bytes(20) + b"PARE", "encrypted"),
        (b"ARROW1\0\0", "Feather"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PAR1" + bytes(100), "truncated: 104 bytes"),
        (b"PAR1PAR1", "truncated: 8 bytes"),
        (b"PAR1" + bytes(100) + b"PAR1", "footer cannot be read"),
        (bytes(100), "does not begin with PAR1"),
    ],
)
def test_what_is_no_parquet_is_refused_with_its_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "bars.parquet"
    file.write_bytes(content)
    entry = only(found(str(tmp_path)))
    assert entry.status == "refused"
    assert reason in entry.reason and "\n" not in entry.reason


def test_files_without_rows_or_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "empty.parquet", rows=0)
    pq.write_table(pa.table({}), tmp_path / "void.parquet")
    assert [e.reason.split(";")[0] for e in found(str(tmp_path))] == ["holds no rows"] * 2


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "nowhere")
    entry = only(found(str(tmp_path)))
    assert entry.status == "refused" and "cannot be opened" in entry.reason


def test_a_missing_path_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path / "fx_hourly" / "a.parquet")
    with pytest.raises(DataError, match=r"fx_hour: does not exist; .*did you mean .*fx_hourly\?"):
        found(str(tmp_path / "fx_hour"))


def test_an_empty_path_does_not_exist() -> None:
    with pytest.raises(DataError, match="an empty path: does not exist"):
        found("")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="an empty folder"):
        found(str(tmp_path))


def test_a_folder_without_parquet_says_what_it_holds(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "_SUCCESS"):
        (tmp_path / name).touch()
    with pytest.raises(
        DataError, match=r"no parquet file in .*found 3 other files \(_SUCCESS, a.csv, b.csv\)"
    ):
        found(str(tmp_path))


def test_a_glob_without_a_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\*\.parquet: the pattern matches nothing"):
        found(str(tmp_path / "*.parquet"))


def test_remote_storage_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="s3://bucket/bars: remote storage is not read yet"):
        found("s3://bucket/bars")
