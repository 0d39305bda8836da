"""Cached rows: made once by one process, bitwise what came in, and room is made of what nobody uses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.stream import cache as module
from foxhunt_ray.data.stream.cache import CachedRows, default_folder, open_rows
from foxhunt_ray.errors import ConfigError, DataError

Part = tuple[np.ndarray, np.ndarray]
KEYS = [f"{i:064x}" for i in range(8)]
ROWS, FEATURES, TARGETS = 1000, 3, 2
SIZE = 4 * ROWS * (FEATURES + TARGETS)
PLENTY = 10**9

# A process that loads the module alone, since its package imports Ray; key i holds rows that begin at i.
CHILD = f"""
import importlib.util, itertools, os, random, resource, sys, time
from pathlib import Path
import numpy as np
spec = importlib.util.spec_from_file_location("cache", {module.__file__!r})
cache = sys.modules["cache"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache)
folder, number = Path(sys.argv[1]), int(sys.argv[2])

def values(i):
    return [np.arange({ROWS} * w, dtype=np.float32).reshape(-1, w) + i for w in ({FEATURES}, {TARGETS})]

def opened(i, parts=None, limit=10**9):
    return cache.open_rows(folder, f"{{i:064x}}", rows={ROWS}, n_features={FEATURES}, n_targets={TARGETS},
        parts=parts or (lambda: [values(i)]), limit_bytes=limit)

def same(rows, i):
    return all(np.array_equal(a, b) for a, b in zip((rows.features, rows.targets), values(i)))

def say(*words):
    print(*words, flush=True)
"""


def child(code: str, folder: Path, number: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + code, str(folder), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def outcome(code: str, folder: Path) -> str:
    with child(code, folder) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    return output


def values(number: int) -> Part:
    features, targets = (
        np.arange(ROWS * w, dtype=np.float32).reshape(-1, w) + number for w in (FEATURES, TARGETS)
    )
    return features, targets


def never() -> list[Part]:
    raise AssertionError("parts was called")


def opened(
    folder: Path, number: int, limit: int = PLENTY, parts: Callable[[], Sequence[Part]] | None = None
) -> CachedRows:
    return open_rows(
        folder,
        KEYS[number],
        rows=ROWS,
        n_features=FEATURES,
        n_targets=TARGETS,
        parts=parts or (lambda: [values(number)]),
        limit_bytes=limit,
    )


def same(rows: CachedRows, number: int) -> bool:
    return all(map(np.array_equal, (rows.features, rows.targets), values(number)))


def kept(folder: Path) -> list[int]:
    """Numbers of the entries; nothing but entries and locks may be there."""
    names = sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))
    assert all(name.startswith("rows-") for name in names), names
    return [KEYS.index(name.removeprefix("rows-")) for name in names]


def entry(folder: Path, number: int) -> Path:
    return folder / f"rows-{KEYS[number]}"


def used_at(folder: Path, number: int, seconds: int) -> None:
    os.utime(entry(folder, number) / "meta.json", (seconds, seconds))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any),
    widths=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_of_all_symbols_come_back_bit_by_bit(
    lengths: list[int], widths: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    raw = [[rng.integers(0, 256, (n, 4 * w), np.uint8) for w in widths] for n in lengths]
    symbols: list[Part] = [(f.view(np.float32), t.view(np.float32)) for f, t in raw]  # NaN payloads too
    with tempfile.TemporaryDirectory() as folder:
        for parts in (lambda: symbols, never):  # made, then found
            rows = open_rows(
                Path(folder) / "cache",
                KEYS[1],
                rows=sum(lengths),
                n_features=widths[0],
                n_targets=widths[1],
                parts=parts,
                limit_bytes=PLENTY,
            )
            for i, array in enumerate((rows.features, rows.targets)):
                assert array.dtype == np.float32 and array.flags.c_contiguous
                assert array.tobytes() == b"".join(part[i].tobytes() for part in symbols)


def test_columns_of_a_wider_array_are_cached_as_they_are(tmp_path: Path) -> None:
    wide = np.arange(ROWS * 9, dtype=np.float32).reshape(9, ROWS).T
    rows = opened(tmp_path, 0, parts=lambda: [(wide[:, :FEATURES], wide[:, 5 : 5 + TARGETS])])
    assert np.array_equal(rows.features, wide[:, :FEATURES])
    assert np.array_equal(rows.targets, wide[:, 5 : 5 + TARGETS])


def test_four_processes_at_once_make_it_once_and_read_the_same(tmp_path: Path) -> None:
    code = """
def parts():
    with open(folder / "made", "a") as log:
        log.write("x")
    time.sleep(0.3)  # the others come meanwhile
    yield values(number)
say("ready")
input()
say(same(opened(number, parts), number))
"""
    children = [child(code, tmp_path, 5) for _ in range(4)]
    assert [c.stdout.readline() for c in children] == ["ready\n"] * 4
    for c in children:
        c.stdin.write("\n")
        c.stdin.flush()
    assert [c.communicate()[0] for c in children] == ["True\n"] * 4
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.parametrize("next_one", [0, 1])
def test_a_killed_writer_leaves_nothing_that_is_read_and_the_next_one_clears_up(
    tmp_path: Path, next_one: int
) -> None:
    code = """
def parts():
    f, t = values(0)
    yield f[:500], t[:500]
    say("half")
    time.sleep(600)
opened(0, parts)
"""
    with child(code, tmp_path) as process:
        assert process.stdout.readline() == "half\n"
        os.kill(process.pid, signal.SIGKILL)
    assert (tmp_path / f".tmp-{KEYS[0]}").is_dir()
    assert same(opened(tmp_path, next_one), next_one)
    assert kept(tmp_path) == [next_one]


def test_what_another_process_writes_is_left_alone_and_counts(tmp_path: Path) -> None:
    code = """
def parts():
    say("begun")
    input()
    yield values(0)
say(same(opened(0, parts), 0))
"""
    with child(code, tmp_path) as process:
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(ConfigError, match=f"beside {SIZE:,} bytes in use by process {process.pid};"):
            opened(tmp_path, 1, limit=2 * SIZE - 1)
        rows = opened(tmp_path, 1, limit=2 * SIZE)
        assert process.communicate("\n")[0] == "True\n"
    assert same(rows, 1) and kept(tmp_path) == [0, 1]


def truncated(path: Path) -> None:
    os.truncate(path / "features.f32", 4 * FEATURES * (ROWS - 1))


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        lambda path: (path / "targets.f32").unlink(),
        lambda path: (path / "meta.json").unlink(),
        lambda path: (path / "meta.json").write_bytes(b"\xff{"),
        lambda path: (path / "meta.json").write_text("[]"),
        lambda path: (path / "meta.json").write_text('{"shapes": {"features.f32": "abc"}}'),
        lambda path: (shutil.rmtree(path), path.mkdir()),
    ],
)
def test_a_damaged_entry_is_made_again_by_who_needs_it_and_removed_by_others(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    opened(tmp_path, 0)
    damage(entry(tmp_path, 0))
    assert same(opened(tmp_path, 0), 0)
    damage(entry(tmp_path, 0))
    assert same(opened(tmp_path, 1), 1)
    assert kept(tmp_path) == [1]


def test_rows_of_another_shape_under_the_key_are_made_again(tmp_path: Path) -> None:
    opened(tmp_path, 0)
    f, t = values(0)
    rows = open_rows(
        tmp_path,
        KEYS[0],
        rows=ROWS // 2,
        n_features=2 * FEATURES,  # as many bytes
        n_targets=2 * TARGETS,
        parts=lambda: [(f.reshape(ROWS // 2, -1), t.reshape(ROWS // 2, -1))],
        limit_bytes=PLENTY,
    )
    assert rows.features.shape == (ROWS // 2, 2 * FEATURES)


def test_entries_of_another_version_go_and_other_folders_stay(tmp_path: Path) -> None:
    opened(tmp_path, 0)
    opened(tmp_path, 1)
    for number in (0, 1):
        meta = json.loads((entry(tmp_path, number) / "meta.json").read_text())
        (entry(tmp_path, number) / "meta.json").write_text(json.dumps(meta | {"version": 0}))
    assert same(opened(tmp_path, 0), 0)
    assert kept(tmp_path) == [0]
    others = [tmp_path / name for name in ("2024", "deadbeef", "rows-2024", ".tmp-2024", KEYS[3])]
    for other in others:
        other.mkdir()
    opened(tmp_path, 1, limit=SIZE)
    assert all(other.is_dir() for other in others) and not entry(tmp_path, 0).exists()


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    for number in range(3):
        opened(tmp_path, number)
    for number, seconds in ((0, 1), (1, 2), (2, 3)):
        used_at(tmp_path, number, seconds)
    opened(tmp_path, 0)  # used again just now
    opened(tmp_path, 3, limit=3 * SIZE)
    assert kept(tmp_path) == [0, 2, 3]
    opened(tmp_path, 4, limit=4 * SIZE)
    assert kept(tmp_path) == [0, 2, 3, 4]


def test_what_is_in_use_stays_as_long_as_an_array_of_it_lives(tmp_path: Path) -> None:
    rows = opened(tmp_path, 0)
    targets = rows.targets
    used_at(tmp_path, 0, 1)
    opened(tmp_path, 1)
    opened(tmp_path, 2, limit=2 * SIZE)
    assert kept(tmp_path) == [0, 2]  # 0 is older, but in use
    del rows
    few = targets[10:20]
    del targets
    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()};"):
        opened(tmp_path, 3, limit=SIZE)
    assert kept(tmp_path) == [0, 2]  # nothing went for nothing
    assert np.array_equal(few, values(0)[1][10:20])
    del few
    opened(tmp_path, 3, limit=SIZE)
    assert kept(tmp_path) == [3]


def test_a_reader_of_another_process_and_its_forked_child_keep_it_in_use(tmp_path: Path) -> None:
    code = """
rows = opened(0)
if os.fork():
    say("mapped")
    os._exit(0)
input()
say(same(rows, 0))
"""
    with child(code, tmp_path) as process:
        assert process.stdout.readline() == "mapped\n"
        assert process.wait() == 0  # its child lives on
        with pytest.raises(ConfigError, match=r"do not fit into .* in use by"):
            opened(tmp_path, 1, limit=SIZE)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "True\n"
    assert same(opened(tmp_path, 1, limit=SIZE), 1)
    assert kept(tmp_path) == [1]


def test_an_array_outlives_an_entry_that_is_damaged_and_made_again(tmp_path: Path) -> None:
    rows = opened(tmp_path, 0)
    (entry(tmp_path, 0) / "meta.json").write_text("")
    again = opened(tmp_path, 0)
    shutil.rmtree(tmp_path)
    assert same(rows, 0) and same(again, 0)


def test_rows_beyond_the_limit_are_refused_and_nothing_goes(tmp_path: Path) -> None:
    opened(tmp_path, 0)
    with pytest.raises(ConfigError) as refused:
        opened(tmp_path, 1, limit=SIZE - 1, parts=never)
    assert str(refused.value) == (
        f"{tmp_path}: {SIZE:,} bytes of rows do not fit into {SIZE - 1:,}; raise loader.cache_size, or point "
        "loader.cache_dir to another folder"
    )
    assert kept(tmp_path) == [0]


def test_processes_that_push_out_each_others_entries_read_what_they_asked_for(tmp_path: Path) -> None:
    code = f"""
order = random.Random(number)
for _ in range(30):
    i = order.randrange(8)
    assert same(opened(i, limit=4 * {SIZE}), i)
say("done")
"""
    children = [child(code, tmp_path, number) for number in range(4)]
    assert [c.communicate()[0] for c in children] == ["done\n"] * 4
    assert 1 <= len(kept(tmp_path)) <= 4


@pytest.mark.parametrize("lengths", [[ROWS - 1], [600, 401], []])
def test_another_number_of_rows_is_refused_and_nothing_stays(tmp_path: Path, lengths: list[int]) -> None:
    parts = [(np.ones((n, FEATURES), np.float32), np.ones((n, TARGETS), np.float32)) for n in lengths]
    with pytest.raises(DataError, match=rf"^{sum(lengths):,} rows were read for the cache, expected 1,000;"):
        opened(tmp_path, 0, parts=lambda: parts)
    assert kept(tmp_path) == []


def test_rows_beyond_the_expected_ones_are_not_read_on(tmp_path: Path) -> None:
    def endless() -> Iterator[Part]:
        while True:
            yield values(0)

    with pytest.raises(DataError, match=r"^2,000 rows were read"):
        opened(tmp_path, 0, parts=endless)


def test_errors_of_the_parts_pass_as_they_are_and_the_next_one_makes_it(tmp_path: Path) -> None:
    def broken() -> Iterator[Part]:
        yield values(0)
        raise OSError("a parquet file is gone")

    with pytest.raises(OSError, match=r"^a parquet file is gone$"):
        opened(tmp_path, 0, parts=broken)
    with pytest.raises(AssertionError):
        opened(tmp_path, 0, parts=lambda: [(np.ones((ROWS, FEATURES + 1), np.float32), values(0)[1])])
    assert kept(tmp_path) == []
    assert same(opened(tmp_path, 0), 0)


def test_the_arrays_cannot_be_written(tmp_path: Path) -> None:
    rows = opened(tmp_path, 0)
    for array in (rows.features, rows.targets, rows.features[3:5]):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_a_full_disk_is_refused_before_anything_is_written_or_removed(small_disk: Path) -> None:
    folder = small_disk / "cache"
    opened(folder, 0)
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free - 16_384))
    with pytest.raises(ConfigError) as refused:
        open_rows(
            folder, KEYS[1], rows=ROWS, n_features=9, n_targets=1, parts=never, limit_bytes=PLENTY
        )  # would not fit without the idle entry either
    assert str(refused.value) == (
        f"{folder}: no room for 40,000 bytes of rows, 16,384 are free (No space left on device); "
        "make room, or point loader.cache_dir to another folder"
    )
    assert kept(folder) == [0]


def test_a_disk_that_has_no_room_for_the_last_file_is_handed_back_as_it_was(small_disk: Path) -> None:
    room = 4096 * -(-4 * ROWS * FEATURES // 4096) + 4096 * -(-4 * ROWS * TARGETS // 4096)
    (small_disk / "other").write_bytes(bytes(256 * 1024 - room))  # none for the meta
    with pytest.raises(ConfigError, match=f"no room for {SIZE:,} bytes of rows, {room:,} are free"):
        opened(small_disk / "cache", 0)
    assert kept(small_disk / "cache") == []
    assert shutil.disk_usage(small_disk).free == room


def test_idle_entries_go_for_a_disk_that_is_full(small_disk: Path) -> None:
    folder = small_disk / "cache"
    for number in range(4):
        opened(folder, number)
        used_at(folder, number, number + 1)
    oldest = opened(folder, 0)
    used_at(folder, 0, 1)
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096))  # for the new meta
    assert same(opened(folder, 4), 4)
    assert kept(folder) == [0, 2, 3, 4] and same(oldest, 0)


@pytest.mark.parametrize("when", ["before", "amid"])
def test_storage_that_fails_while_it_is_written_is_told_and_nothing_stays(tmp_path: Path, when: str) -> None:
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({SIZE // 4}, {SIZE // 4}))"
    code = f"""
def parts():
    f, t = values(0)
    yield f[:100], t[:100]
    {limit if when == "amid" else ""}
    yield f[100:], t[100:]
{limit if when == "before" else ""}
try:
    opened(0, parts)
except cache.ConfigError as err:
    say(err)
"""
    said = outcome(code, tmp_path)
    assert said.startswith(f"{tmp_path}: no room for {SIZE:,} bytes of rows, ")
    assert said.endswith("(File too large); make room, or point loader.cache_dir to another folder\n")
    assert kept(tmp_path) == []
    assert same(opened(tmp_path, 0), 0)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "cache", tmp_path / "file"):
        with pytest.raises(ConfigError) as refused:
            opened(folder, 0, parts=never)
        assert str(refused.value) == (
            f"{folder}: rows cannot be cached there (Not a directory); make it writable, or point "
            "loader.cache_dir to another folder"
        )


def test_a_folder_that_cannot_be_written_is_told() -> None:
    code = """
if os.geteuid() == 0:
    os.seteuid(65534)  # modes do not hold root back
try:
    opened(0)
except cache.ConfigError as err:
    say(err)
"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cache"
        folder.mkdir(mode=0o555)
        Path(name).chmod(0o755)
        assert outcome(code, folder).startswith(
            f"{folder}: rows cannot be cached there (Permission denied); "
        )


def test_a_folder_of_a_read_only_file_system_is_told(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ConfigError, match=r"cannot be cached there \(Read-only file system\)"):
        opened(small_disk / "cache", 0, parts=never)


def test_the_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOXHUNT_CACHE", "/disk/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/disk/b")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == Path("/disk/a")
    monkeypatch.setenv("FOXHUNT_CACHE", "")
    assert default_folder() == Path("/disk/b/foxhunt_ray")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == Path("/home/me/.cache/foxhunt_ray")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path("/home/me/.cache/foxhunt_ray")
