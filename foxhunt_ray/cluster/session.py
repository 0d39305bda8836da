"""Join or start Ray, quietly, with the token decided once.

Ray reads its token mode when it is imported, so ``connect`` sets the environment first and Ray is imported
inside the functions. An instance started here is this run's own, whatever other Ray the machine runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from foxhunt_ray.cluster.nodes import alive_nodes, first_line
from foxhunt_ray.config import Config
from foxhunt_ray.errors import ClusterError

_TOKEN_FILE = Path(".ray") / "auth_token"  # below the home folder, where Ray writes it and looks for it
_MIN_STORE_BYTES = 128 * 2**20  # Ray refuses less than 75 MB
_STORE_PER_DATA = 2.5
_STORE_SHARE = 0.6  # of what is free: the store's memory is the machine's
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_REACH_S = 5.0
_QUIET_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_enable_metrics_collection": "false",  # nobody scrapes a run's own Ray, and its exporter complains
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else a killed worker is told on stderr, log_to_driver or not
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",  # a small /dev/shm, as in containers, is no reason to fail
}
_JOIN_ENV = {"RAY_NUM_REDIS_GET_RETRIES": "3"}  # Ray tries a refused token 20 times, a second each


@dataclass(frozen=True)
class Cluster:
    """The Ray that a run uses, and what it held when the run began."""

    address: str
    started: bool
    nodes: int
    cpus: float
    gpus: float


@contextlib.contextmanager
def connect(config: Config, *, data_bytes: int) -> Iterator[Cluster]:
    """A context in which Ray is up: the one at the configured address, else one started for this run.

    A Ray that this process has already initialised is used as it is and left running.

    Args:
        config: ``cluster.address`` goes before RAY_ADDRESS; with neither, or with "local", Ray is started.
        data_bytes: bytes of the rows, for which a Ray that is started gets room as far as there is some; what
            an object store cannot hold is mapped from files.

    Raises:
        ClusterError: the address does not answer, refuses the token or runs other versions; or there is no
            room for a Ray at all.
    """
    address = _address(config)
    prepare_environment(config)
    import ray

    mine = not ray.is_initialized()
    if mine and address == "local":
        _start(data_bytes)
    elif mine:
        _join(address)
    try:
        held = ray.cluster_resources()
        yield Cluster(
            address=ray.get_runtime_context().gcs_address,
            started=mine and address == "local",
            nodes=len(alive_nodes()),
            cpus=held.get("CPU", 0.0),
            gpus=held.get("GPU", 0.0),
        )
    finally:
        if mine:
            ray.shutdown()


def in_ray_job() -> bool:
    """Whether this process is the entrypoint of ``ray job submit``: its working folder is thrown away."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def prepare_environment(config: Config) -> None:
    """Set what Ray reads when it is imported; call it first where that is still to come.

    What the user has set stays. Once Ray is imported its token mode is left alone: its two halves would
    disagree.
    """
    if "ray" not in sys.modules and _has_token(os.environ, Path.home()):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    for name, value in (_QUIET_ENV | (_JOIN_ENV if _address(config) != "local" else {})).items():
        os.environ.setdefault(name, value)


def _address(config: Config) -> str:
    return config.cluster.address or os.environ.get("RAY_ADDRESS", "local")


def _has_token(env: Mapping[str, str], home: Path) -> bool:
    """Whether Ray would find a token; the token itself is never read."""
    named = env.get("RAY_AUTH_TOKEN") or env.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or (home / _TOKEN_FILE).is_file()


def _start(data_bytes: int) -> None:
    """Start Ray on this machine, with room for the data and for what trials send back."""
    import ray

    store_bytes = _store_bytes(data_bytes, _free())
    try:
        ray.init(
            address="local",
            object_store_memory=store_bytes,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,  # what goes wrong reaches the user as an error of ours
        )
    except (ValueError, RuntimeError, OSError) as err:
        raise ClusterError(
            f"Ray does not start on this machine, with an object store of {store_bytes / 1e6:.0f} MB: "
            f"{first_line(err)}"
        ) from err
    _tighten(Path.home() / _TOKEN_FILE)


def _join(address: str) -> None:
    import ray

    _check_reachable(address)
    try:
        with _native_stderr_closed():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, ray.exceptions.AuthenticationError) as err:
        # Ray reports a refused token, too, as a failed connection.
        raise ClusterError(f"{address}: Ray cannot be joined there; {_token_advice()}") from err
    except (RuntimeError, ValueError) as err:
        raise ClusterError(f"{address}: Ray cannot be joined there: {' '.join(str(err).split())}") from err


@contextlib.contextmanager
def _native_stderr_closed() -> Iterator[None]:
    """A context in which file descriptor 2 leads nowhere: Ray's C++ writes each refused try to it."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_reachable(address: str) -> None:
    """Refuse at once an address where nothing listens; Ray itself tries for minutes."""
    if "://" in address:
        raise ClusterError(
            f"address {address}: expected HOST:PORT of a head, used from a machine of its cluster; elsewhere "
            "use `ray job submit`, or run on this machine with RAY_ADDRESS unset or --address local"
        )
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # "auto", or what Ray refuses at once
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as err:
        raise ClusterError(
            f"{address}: no Ray cluster answers there ({err}); start one with `ray start --head`, or run on "
            "this machine with RAY_ADDRESS unset or --address local"
        ) from err


def _token_advice() -> str:
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return f"if it asks for a token, copy the head's ~/{_TOKEN_FILE} here: the one in use is not accepted"
    return f"if it asks for a token, copy the head's ~/{_TOKEN_FILE} here and export RAY_AUTH_MODE=token"


def _store_bytes(data_bytes: int, free: Mapping[Path, int]) -> int:
    """Size of an object store of which rows, look-back included, are less than half, if there is room.

    Args:
        data_bytes: of the rows.
        free: bytes free in shared memory, and on the disk that Ray falls back to where that is small, as it
            is in containers.
    """
    most = next((m for m in (int(_STORE_SHARE * f) for f in free.values()) if m >= _MIN_STORE_BYTES), 0)
    if not most:
        found = ", ".join(f"{size / 1e6:.0f} MB in {place}" for place, size in free.items())
        raise ClusterError(
            f"Ray's object store needs {_MIN_STORE_BYTES / 1e6:.0f} MB of memory, a part of what is free: "
            f"{found}; free some space"
        )
    return min(max(_MIN_STORE_BYTES, int(_STORE_PER_DATA * data_bytes)), most)


def _free() -> dict[Path, int]:
    places = [place for place in (_SHARED_MEMORY, Path(tempfile.gettempdir())) if place.is_dir()]
    return {place: shutil.disk_usage(place).free for place in places}


def _tighten(token: Path) -> None:
    """Take the token away from the machine's other users: Ray writes it readable by all."""
    with contextlib.suppress(FileNotFoundError):
        found = token.stat()
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:
            token.chmod(0o600)
