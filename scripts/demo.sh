#!/usr/bin/env bash
# Trains the example with several strategies from the same start, prints how they
# compare, says in words what was saved and what it cost, writes report.html, and turns the
# metrics into TensorBoard event files.
#   scripts/demo.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
runs=build/demo
rm -rf "$runs"
# A loss that all of them get to; a run ends at the first evaluation that is there.
build/release/lrmoe compare examples/demo.toml --run "$runs" --target-loss 2.1 \
  --strategies fixed,symi:capacity_factor=1,symi:capacity_factor=inf,lrmoe:ratio=1,lrmoe:ratio=0.5,lrmoe:ratio=0.25
echo
if ! PYTHONPATH=python "$python" -m lrmoe.report --words "$runs"; then
  echo "report.html was not written"
fi
if "$python" -c 'import tensorboard' 2> /dev/null; then
  mapfile -t folders < <(find "$runs" -name metrics.jsonl -printf '%h\n' | sort)
  PYTHONPATH=python "$python" -m lrmoe.tensorboard "${folders[@]}" > /dev/null
  echo "TensorBoard: $(dirname "$python")/tensorboard --logdir $runs"
else
  echo "No tensorboard in $python: event files were not written"
fi
