"""Joining and starting Ray: refusals in seconds, the token decided once, silence."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from foxhunt_ray.cluster import connect, in_ray_job
from foxhunt_ray.cluster.session import _has_token, _store_bytes, _tighten
from foxhunt_ray.config import load_config
from foxhunt_ray.errors import ClusterError


@pytest.fixture(autouse=True)
def restored_environment() -> Iterator[None]:
    """What connecting sets for Ray ends with the test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def _run(code: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The code in a fresh interpreter, whose home is ``home`` and which inherits no Ray setting."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**kept, "HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("env", "file", "expected"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"RAY_AUTH_TOKEN": "x"}, False, True),
        ({"RAY_AUTH_TOKEN_PATH": "/elsewhere"}, False, True),
        ({"RAY_AUTH_TOKEN": ""}, False, False),
    ],
)
def test_token_is_found_where_ray_looks_for_it(
    env: dict[str, str], file: bool, expected: bool, tmp_path: Path
) -> None:
    if file:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").touch()

    assert _has_token(env, tmp_path) is expected


@pytest.mark.parametrize(("mode", "expected"), [("", "None"), ("disabled", "disabled"), ("token", "token")])
def test_auth_mode_of_the_user_is_never_overruled(mode: str, expected: str, tmp_path: Path) -> None:
    code = """
        import os
        from foxhunt_ray.cluster import prepare_environment
        from foxhunt_ray.config import load_config
        prepare_environment(load_config())
        print(os.environ.get("RAY_AUTH_MODE"))
    """
    env = {"RAY_AUTH_MODE": mode} if mode else {}

    assert _run(code, tmp_path, **env).stdout.strip() == expected


@pytest.mark.parametrize(("first", "expected"), [("os", "token"), ("ray", "None")])
def test_token_mode_is_set_only_before_ray_is_imported(first: str, expected: str, tmp_path: Path) -> None:
    # Ray's native part reads it at import: set later, the two halves would disagree and nothing would start.
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    code = f"""
        import os, {first}
        from foxhunt_ray.cluster import prepare_environment
        from foxhunt_ray.config import load_config
        prepare_environment(load_config())
        print(os.environ.get("RAY_AUTH_MODE"))
    """

    assert _run(code, tmp_path).stdout.strip() == expected


def test_token_file_is_tightened_to_its_owner(tmp_path: Path) -> None:
    token = tmp_path / "auth_token"
    token.write_text("secret")
    token.chmod(0o644)

    _tighten(token)
    _tighten(tmp_path / "absent")

    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text() == "secret"


def test_importing_cluster_loads_neither_ray_nor_torch(tmp_path: Path) -> None:
    found = _run("import sys, foxhunt_ray.cluster; print({'ray', 'torch'} & set(sys.modules))", tmp_path)

    assert found.stdout.strip() == "set()"


def test_address_where_nothing_listens_is_refused_by_name() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        address = f"127.0.0.1:{free.getsockname()[1]}"
        config = load_config(overrides={"cluster.address": address})

        with (
            pytest.raises(ClusterError, match=f"{address}: no Ray cluster answers there"),
            connect(config, data_bytes=0),
        ):
            pass


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "ray://10.0.0.1:10001"])
def test_address_of_another_service_is_refused_with_the_way_out(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)

    with (
        pytest.raises(ClusterError, match=f"{address}: expected HOST:PORT.*ray job submit"),
        connect(load_config(), data_bytes=0),
    ):
        pass


def test_address_that_is_none_is_refused() -> None:
    with (
        pytest.raises(ClusterError, match="nonsense: Ray cannot be joined"),
        connect(load_config(overrides={"cluster.address": "nonsense"}), data_bytes=0),
    ):
        pass


@pytest.mark.parametrize(
    ("data_bytes", "free", "expected"),
    [
        (0, 10**10, 128 * 2**20),  # what Ray needs in any case
        (10**9, 10**10, 25 * 10**8),  # rows and look-back are less than half of it
        (10**12, 10**10, 6 * 10**9),  # more rows than there is room for are mapped from files
    ],
)
def test_the_store_has_room_for_the_rows_as_far_as_memory_allows(
    data_bytes: int, free: int, expected: int
) -> None:
    assert _store_bytes(data_bytes, {Path("/dev/shm"): free}) == expected


def test_a_small_shared_memory_as_in_containers_gives_way_to_the_disk() -> None:
    free = {Path("/dev/shm"): 64 * 2**20, Path("/tmp"): 10**10}
    assert _store_bytes(10**9, free) == 25 * 10**8


def test_too_little_memory_for_any_store_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"needs 134 MB .* 100 MB in /dev/shm; free some space"):
        _store_bytes(0, {Path("/dev/shm"): 10**8})


def test_job_is_recognised_by_what_ray_injects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert not in_ray_job()

    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert in_ray_job()


@pytest.mark.cluster
@pytest.mark.slow
def test_local_ray_starts_silent_is_reused_and_ends(tmp_path: Path) -> None:
    code = """
        from foxhunt_ray.cluster import connect, trial_resources
        from foxhunt_ray.config import load_config
        config = load_config(overrides={"cluster.gpus_per_trial": 0})
        with connect(config, data_bytes=1000) as cluster:
            import ray
            with connect(config, data_bytes=1000) as again:
                print(cluster.started, again.started, cluster.nodes, again.address == cluster.address)
            print(ray.is_initialized(), trial_resources(config).concurrent >= 1)
        print(ray.is_initialized())
    """

    found = _run(code, tmp_path)

    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.split("\n") == ["True False 1 True", "True True", "False", ""]
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600


_JOIN = """
    import sys
    from foxhunt_ray.cluster import connect
    from foxhunt_ray.config import load_config
    from foxhunt_ray.errors import ClusterError
    try:
        with connect(load_config(overrides={"cluster.address": ADDRESS}), data_bytes=DATA) as cluster:
            print("joined", cluster.started, cluster.nodes)
    except ClusterError as err:
        print(err)
"""
_HEAD = """
from ray.cluster_utils import Cluster
head = Cluster(initialize_head=True, head_node_args={
    "num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000})
print(head.address, flush=True)
input()
head.shutdown()
"""


@pytest.mark.cluster
@pytest.mark.slow
def test_cluster_with_a_token_is_joined_with_it_and_refused_without(tmp_path: Path) -> None:
    keeper, stranger = tmp_path / "keeper", tmp_path / "stranger"
    stranger.mkdir()
    (keeper / ".ray").mkdir(parents=True)
    (keeper / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env |= {"HOME": str(keeper), "RAY_AUTH_MODE": "token"}
    with subprocess.Popen(
        [sys.executable, "-c", _HEAD], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as head:  # fmt: skip
        assert head.stdout and head.stdin
        join = _JOIN.replace("ADDRESS", repr(head.stdout.readline().strip()))

        joined = _run(join.replace("DATA", "1000"), keeper)
        more_data_than_store = _run(join.replace("DATA", "10**9"), keeper)
        refused = _run(join.replace("DATA", "1000"), stranger)
        head.stdin.write("\n")

    assert (joined.stdout, joined.stderr) == ("joined False 1\n", "")
    assert more_data_than_store.stdout == joined.stdout  # its rows are mapped from files
    assert "export RAY_AUTH_MODE=token" in refused.stdout
    assert refused.stderr == ""
