"""The command line: ``foxhunt VERB`` and ``python -m foxhunt_ray``.

A verb is parse -> Config -> one call -> print. Help and usage errors load nothing but the standard library;
each verb imports what it needs when it runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from foxhunt_ray.cli.options import build_parser
from foxhunt_ray.errors import FoxhuntError


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 the user must change something, 130 or 143 interrupted."""
    try:
        options = build_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed help or a usage error
        return int(stop.code or 0)
    try:
        return int(options.run(options, sys.argv if argv is None else ["foxhunt", *argv]))
    except FoxhuntError as err:
        print(f"foxhunt: {err}", file=sys.stderr)
        return err.exit_code
    except KeyboardInterrupt:
        print("foxhunt: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def entry() -> None:
    """The console script ``foxhunt``."""
    sys.exit(main())
