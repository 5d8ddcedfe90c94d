#!/usr/bin/env bash
# Fine-tunes a small Qwen3-MoE from a Hugging Face folder, exports it and has Transformers
# load it (docs/finetuning.md). Takes a minute or two; everything goes to build/finetune.
#   examples/finetune.sh [PYTHON]      after `make build` and `scripts/setup.sh --test`
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
lrmoe=build/release/lrmoe
out=build/finetune
export PYTHONPATH=python

rm -rf "$out"
mkdir -p "$out" build/corpus
[ -f build/corpus/perldoc.txt ] || perl scripts/corpus.pl build/corpus/perldoc.txt
"$python" examples/finetune_model.py build/corpus/perldoc.txt "$out"
"$python" -m lrmoe.tokenize --tokenizer "$out/model" "$out/pairs.jsonl" -o "$out/pairs-ids.jsonl"
"$lrmoe" train examples/finetune.toml --run "$out/run"
"$lrmoe" export "$out/run" "$out/tuned"
"$python" -c "import numpy as np; np.save('$out/ids.npy', np.random.default_rng(0).integers(0, 2048, (4, 64)))"
"$lrmoe" eval "$out/tuned" --tokens "$out/ids.npy" --logits "$out/logits.npy"
"$python" examples/finetune_check.py "$out/run" "$out/tuned" "$out/ids.npy" "$out/logits.npy"
