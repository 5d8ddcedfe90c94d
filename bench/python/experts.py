"""Forward and backward of one layer's routed experts: Transformers' implementations against
LRMoE's, on the same weights and routing, in one process; the methods take turns. Times are the
process's CPU seconds (with one thread: those of a machine that does nothing else), medians.

    python bench/python/experts.py [--threads 1] [--tokens 4096] [--rounds 5] [--json FILE]
"""

import argparse
import json
import statistics
import time

import lrmoe
import torch
import transformers
from torch.profiler import ProfilerActivity, profile


def layer(options, dtype):
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        hidden_size=options.hidden,
        moe_intermediate_size=options.width,
        num_experts=options.experts,
        num_experts_per_tok=options.top_k,
    )
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    experts = Qwen3MoeExperts(config)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return experts.to(dtype).train()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default in (
        ("threads", 1), ("tokens", 4096), ("hidden", 512), ("width", 192), ("experts", 64),
        ("top_k", 8), ("rounds", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ratio", type=float, default=0.25)
    parser.add_argument("--metric", default="update-router")
    parser.add_argument("--profile", action="store_true", help="operators' times, LRMoE's alone")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    results = {}
    for dtype in (torch.float32, torch.bfloat16):
        experts = layer(options, dtype)
        logits = torch.randn(options.tokens, options.experts)
        gates, ids = logits.softmax(-1).topk(options.top_k, -1)
        gates = (gates / gates.sum(-1, keepdim=True)).to(dtype).requires_grad_()
        x = torch.randn(options.tokens, options.hidden).to(dtype).requires_grad_()
        delta = torch.randn(options.tokens, options.hidden).to(dtype)

        def run(implementation, ratio):
            experts.config._experts_implementation = implementation
            if implementation == "lrmoe":
                lrmoe.configure(experts, ratio=ratio, metric=options.metric)
            start = time.process_time()
            out = experts(x, ids, gates)
            middle = time.process_time()
            torch.autograd.grad(out, [x, gates, *experts.parameters()], delta)
            return middle - start, time.process_time() - middle

        methods = {
            "grouped_mm": ("grouped_mm", 1),
            "lrmoe keep-all": ("lrmoe", 1),
            f"lrmoe {options.ratio:g}": ("lrmoe", options.ratio),
        }
        times = {name: [] for name in methods}
        for round_number in range(options.rounds + 1):
            for name, method in methods.items():
                seconds = run(*method)
                if round_number > 0:  # the first one warms up
                    times[name].append(seconds)
        base = statistics.median(map(sum, times["grouped_mm"]))
        for name, rows in times.items():
            forward, backward = (statistics.median(r[i] for r in rows) for i in (0, 1))
            both = statistics.median(map(sum, rows))
            results[f"{dtype}/{name}"] = {
                "forward": forward,
                "backward": backward,
                "ratio": both / base,
            }
            print(
                f"{str(dtype):15} {name:15} forward {forward * 1e3:7.1f} ms  backward "
                f"{backward * 1e3:7.1f} ms  both {both * 1e3:7.1f} ms  "
                f"{both / base:.3f} of grouped_mm"
            )
        if options.profile:
            for name, method in list(methods.items())[1:]:
                with profile(activities=[ProfilerActivity.CPU]) as seen:
                    run(*method)
                print(dtype, name)
                print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=14))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
