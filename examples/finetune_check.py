"""What a fine-tuning run did with prompt tokens, and whether Transformers computes the
same with the exported model as `lrmoe eval`.

    python examples/finetune_check.py RUN_FOLDER MODEL_DIR IDS.npy LOGITS.npy
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM


def report(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    print(f"loss of the first step {lines[0]['loss']:.3f}, of the last {lines[-1]['loss']:.3f}")
    trained = sum(line["trained_tokens"] for line in lines) / sum(line["tokens"] for line in lines)
    print(f"{trained:.0%} of the room for tokens is trained on; prompts and padding are the rest")
    print("layer   kept pairs without a delta (no GEMM row backward), a step")
    for i, layer in enumerate(lines[0]["layers"]["layer"]):
        print(f"{layer:>5}   {np.mean([line['layers']['zero_pairs'][i] for line in lines]):.0f}")


def main() -> None:
    run, model_dir, ids_file, logits_file = sys.argv[1:]
    report(Path(run))
    ids = torch.from_numpy(np.load(ids_file).astype(np.int64))
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(ids).logits.reshape(-1, model.config.vocab_size)
    ours = torch.from_numpy(np.load(logits_file))
    difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(f"logits of lrmoe eval and of Transformers, largest difference: {difference:.1e} of the largest logit")
    if difference > 1e-4:
        sys.exit("the logits differ")


if __name__ == "__main__":
    main()
