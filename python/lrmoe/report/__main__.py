"""Writes report.html for a run folder, a comparison or a replay.

    python -m lrmoe.report [--words] FOLDER [...]
    python -m lrmoe.report REPLAY.json [-o FILE.html]

FOLDER is one of `lrmoe train` or of `lrmoe compare`, REPLAY.json what
`lrmoe replay --json` wrote; its page stands beside it unless -o names a file.
"""

import argparse
import sys
from pathlib import Path

from lrmoe.report import InputError, write_report
from lrmoe.report.data import read_report
from lrmoe.report.replay import write_replay
from lrmoe.report.text import to_text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lrmoe.report", description=__doc__.split("\n")[0])
    parser.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="of `lrmoe train` or `lrmoe compare`, or a file of `lrmoe replay --json`",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the page of a replay (one alone)"
    )
    parser.add_argument(
        "--words", action="store_true", help="also print what was saved and what it cost"
    )
    options = parser.parse_args(arguments)
    if options.output and (len(options.folders) != 1 or not options.folders[0].is_file()):
        parser.error("-o takes one replay's JSON file")
    for folder in options.folders:
        try:
            if folder.is_file():
                print(write_replay(folder, options.output))
                continue
            if options.words:
                print(to_text(read_report(folder)))
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
