"""Every error that this package raises on purpose.

    FoxhuntError
    ├── ConfigError      (also ValueError)       a setting, option or preset is wrong          exit 2
    ├── DataError        (also ValueError)       a file, column or value cannot be used        exit 2
    │   └── DamagedFileError                     a file that cannot be decoded                 exit 2
    ├── ClusterError                             what was asked of Ray does not exist there    exit 2
    ├── DivergedError    (also ArithmeticError)  training produced a loss that is not finite   exit 1
    ├── CheckpointError                          a saved state cannot be written or read       exit 1
    └── SearchError                              the search ended without a usable trial       exit 1

A message says what was found (file, column, value), what was expected, and what to do.
"""


class FoxhuntError(Exception):
    """Any failure that this package can explain in a sentence."""

    exit_code = 1


class ConfigError(FoxhuntError, ValueError):
    """A setting, a command-line option or a preset that cannot be used."""

    exit_code = 2


class DataError(FoxhuntError, ValueError):
    """A file, column or value that cannot be used; the message names the file."""

    exit_code = 2


class DamagedFileError(DataError):
    """A file that is truncated, corrupt, or not parquet; ``data.skip_bad`` goes on without it."""


class ClusterError(FoxhuntError):
    """Ray, or what was asked of it, is not there: address, token, CPUs, GPUs, storage."""

    exit_code = 2


class DivergedError(FoxhuntError, ArithmeticError):
    """Training produced a loss or gradient that is not finite."""


class CheckpointError(FoxhuntError):
    """A saved state could not be written, read, or does not belong to this model."""


class SearchError(FoxhuntError):
    """A search that ended without a single usable trial."""
