#!/usr/bin/env bash
# Trains the demo's model for 300 steps with all pairs, and with a quarter of them
# by three selections: sampled by the default metric, by update-norm and uniformly (the
# last two with the router's gradient centred and exact), and the largest scores. 5 to 10 minutes of a core each
# (docs/evidence.md has the figures).
#   bench/selection.sh [lrmoe compare's options, such as --set train.seed=2]
set -euo pipefail
cd "$(dirname "$0")/.."
runs=build/selection
rm -rf "$runs"
build/release/lrmoe compare bench/selection.toml --run "$runs" "$@" \
  --strategies lrmoe:ratio=1,lrmoe:ratio=0.25,lrmoe:ratio=0.25:metric=update-norm,lrmoe:ratio=0.25:metric=update-norm:router_gradient=exact,lrmoe:ratio=0.25:metric=random,lrmoe:ratio=0.25:metric=random:router_gradient=exact,lrmoe:ratio=0.25:mode=top:metric=update-norm
echo "mean training loss of the last 20 steps:"
find "$runs" -name metrics.jsonl | sort | while read -r file; do
  tail -n 20 "$file" | sed 's/.*"loss":\([0-9.e+-]*\).*/\1/' |
    awk -v run="$(basename "$(dirname "$file")")" '{ sum += $1 } END { printf "  %.3f  %s\n", sum / NR, run }'
done
