"""Turns a run folder's metrics into TensorBoard event files.

    python -m lrmoe.tensorboard RUN_FOLDER [...] [--follow]

Reads RUN_FOLDER/metrics.jsonl, writes RUN_FOLDER/tensorboard/. Every number of a
line becomes a scalar of its name, every number of an object one of `OBJECT/NAME`,
every entry of an array under `layers` one of `NAME/layer-N`, where N is the model's
layer by the array `layer`. A gradient audit becomes `audit_PART_NAME/layer-N`, as in
`audit_experts_cosine/layer-0`. Converting again replaces the earlier event files.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tensorboard.summary import Writer

FOLLOW_SECONDS = 2.0


class InputError(Exception):
    """What is wrong with the input, in one line."""


def scalars(record: dict) -> Iterator[tuple[str, float]]:
    """(tag, value) of every number in one line of metrics.jsonl."""
    for name, value in record.items():
        if name == "layers":
            for layer_name, values in value.items():
                if layer_name == "layer":
                    continue
                numbers = value.get("layer", range(len(values)))
                for layer, entry in zip(numbers, values, strict=True):
                    if _is_number(entry):
                        yield f"{layer_name}/layer-{layer}", float(entry)
        elif name == "audit":
            for layer in value["layers"]:
                for part, agreement in layer.items():
                    if part != "layer":
                        yield from _numbers(f"audit_{part}_%s/layer-{layer['layer']}", agreement)
            yield from _numbers("audit_rest_%s", value["rest"])
        elif isinstance(value, dict):
            yield from _numbers(f"{name}/%s", value)
        elif name != "step" and _is_number(value):
            yield name, float(value)


def _numbers(tag: str, values: dict) -> Iterator[tuple[str, float]]:
    """(tag with the name in place of %s, value) of every number."""
    for name, value in values.items():
        if _is_number(value):
            yield tag % name, float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Conversion:
    """One run folder on its way to event files; may be continued as it grows."""

    def __init__(self, run: Path):
        self._metrics = run / "metrics.jsonl"
        if not self._metrics.is_file():
            raise InputError(f"{run} is no run folder: it holds no metrics.jsonl")
        self._offset = 0
        self._line = 0
        folder = run / "tensorboard"
        folder.mkdir(exist_ok=True)
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = Writer(str(folder))

    def advance(self) -> int:
        """Converts the lines that are complete by now; returns how many.

        A last line without its end (an interrupted run) waits until it is whole.
        """
        with self._metrics.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        for line in lines:
            self._line += 1
            try:
                record = json.loads(line)
                step = int(record["step"])
                for tag, value in scalars(record):
                    self._writer.add_scalar(tag, value, step)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{self._metrics}:{self._line}: not a line of metrics"
                    f" (a JSON object with `step`): {type(error).__name__}: {error}"
                ) from error
        self._offset += len(whole)
        self._writer.flush()
        return len(lines)

    def close(self) -> None:
        self._writer.close()


def convert(run: Path) -> int:
    """Converts a run folder as it stands; returns the number of steps."""
    conversion = Conversion(run)
    try:
        return conversion.advance()
    finally:
        conversion.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lrmoe.tensorboard", description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--follow", action="store_true", help="go on while the runs grow (Ctrl-C ends)")
    options = parser.parse_args(arguments)
    try:
        if not options.follow:
            for run in options.runs:
                print(f"{run / 'tensorboard'}: {convert(run)} steps")
            return 0
        conversions = [Conversion(run) for run in options.runs]
        while True:
            for conversion in conversions:
                conversion.advance()
            time.sleep(FOLLOW_SECONDS)
    except InputError as error:
        print(f"lrmoe.tensorboard: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
