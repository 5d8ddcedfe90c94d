#!/bin/bash
# compare.sh PROGRAM PROGRAM...: all print the same lines.
set -e
first=$1
wanted=$("$first")
[ "$(wc -l <<< "$wanted")" -gt 50 ] || { echo "$first printed too little" >&2; exit 1; }
shift
for program in "$@"; do
  if ! diff <(echo "$wanted") <("$program"); then
    echo "plans differ: $first and $program" >&2
    exit 1
  fi
  echo "$(basename "$(dirname "$program")"): the same plans"
done
