"""Fine-tunes a Mixture-of-Experts model with half of the pairs in the backward pass.

    python -m lrmoe.tokenize ...                     # makes ids.npy with the model's tokenizer
    python examples/python/finetune.py MODEL_FOLDER ids.npy OUTPUT_FOLDER [STEPS]
"""

import sys

import lrmoe
import numpy as np
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

folder, ids, output = sys.argv[1:4]
tokens = np.load(ids).astype(np.int64)
rows = tokens[: len(tokens) // 128 * 128].reshape(-1, 128)
data = [{"input_ids": row, "labels": row} for row in rows]
model = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="lrmoe")
lrmoe.configure(model, ratio=0.5)
arguments = TrainingArguments(
    output,
    max_steps=int(sys.argv[4]) if len(sys.argv) > 4 else 100,
    learning_rate=1e-4,
    per_device_train_batch_size=4,
    logging_steps=5,
    report_to=[],
    use_cpu=True,
)
callback = lrmoe.LrmoeCallback(audit_every=50)
Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
model.save_pretrained(output)
