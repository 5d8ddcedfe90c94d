"""Writes report.html for a run folder or for a comparison.

    python -m lrmoe.report FOLDER [...]

FOLDER is one of `lrmoe train` or of `lrmoe compare`.
"""

import argparse
import sys
from pathlib import Path

from lrmoe.report import InputError, write_report


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lrmoe.report", description=__doc__.split("\n")[0])
    parser.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="of `lrmoe train` or `lrmoe compare`",
    )
    for folder in parser.parse_args(arguments).folders:
        try:
            print(write_report(folder))
        except InputError as error:
            print(f"lrmoe.report: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"lrmoe.report: {error.filename or folder}: {error.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
