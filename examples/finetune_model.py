"""Makes what examples/finetune.sh fine-tunes: a small Qwen3-MoE with random weights, a
tokenizer trained on a text, and prompts with completions cut from its paragraphs.

    python examples/finetune_model.py TEXT FOLDER

Writes FOLDER/model (as save_pretrained does) and FOLDER/pairs.jsonl.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

VOCABULARY = 2048
END = "<|endoftext|>"


def make_tokenizer(text: str) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(text.split("\n\n"), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END)


def make_model(end: int) -> Qwen3MoeForCausalLM:
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, moe_intermediate_size=64, intermediate_size=256,
        num_experts=16, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1,
        max_position_embeddings=512, tie_word_embeddings=False, eos_token_id=end, bos_token_id=None))


def pairs(text: str) -> list[dict]:
    """The first two thirds of every paragraph's words, and the rest."""
    found = []
    for paragraph in text.split("\n\n"):
        words = paragraph.split()
        if 15 <= len(words) <= 60:
            cut = len(words) * 2 // 3
            found.append({"prompt": " ".join(words[:cut]), "completion": " " + " ".join(words[cut:])})
    return found


def main() -> None:
    text, folder = Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace"), Path(sys.argv[2])
    tokenizer = make_tokenizer(text)
    model = make_model(tokenizer.eos_token_id)
    tokenizer.save_pretrained(folder / "model")
    model.save_pretrained(folder / "model")
    examples = pairs(text)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in examples), encoding="utf-8")
    print(f"{folder}/model: {model.num_parameters() / 1e6:.1f} million parameters; "
          f"{len(examples)} prompts with completions")


if __name__ == "__main__":
    main()
