"""Hugging Face folders through `lrmoe export` and `lrmoe inspect`: bits, memory, damage."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy
from families import (
    Run, eager, error, glm4, lrmoe, mixtral, olmoe, program, qwen3, randomise, tokens, torch,
)  # fmt: skip

if torch is not None:
    from safetensors.torch import load_file, save_file


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


class Folders(unittest.TestCase):
    def setUp(self):
        program()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def save(self, model, **options):
        model.save_pretrained(self.folder / "in", **options)
        return self.folder / "in"

    def assert_same_weights(self, a, b):
        a, b = a.state_dict(), b.state_dict()
        self.assertEqual(set(a), set(b))
        for name in a:
            self.assertEqual(a[name].dtype, b[name].dtype, name)
            self.assertTrue(torch.equal(bits(a[name]), bits(b[name])), name)

    def test_round_trip_is_bit_equal(self):
        for seed, (make, dtype) in enumerate(
            (
                (qwen3, "bfloat16"), (glm4, "bfloat16"), (olmoe, "float16"), (mixtral, "float32"),
                (glm4, "float32"),
            )
        ):  # fmt: skip
            with self.subTest(make.__name__, dtype=dtype):
                shutil.rmtree(self.folder / "in", ignore_errors=True)
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                model = randomise(make(), seed)
                with torch.no_grad():  # values whose bits arithmetic may lose
                    model.model.embed_tokens.weight[3, :2] = torch.tensor([-0.0, 1e-40])
                    experts = [m for m in model.modules() if type(m).__name__.endswith("Experts")]
                    experts[0].down_proj[1, 2, :2] = torch.tensor([-0.0, 6e-8])
                source = self.save(model)
                kind = type(model)
                model = kind.from_pretrained(source, dtype=getattr(torch, dtype))
                shutil.rmtree(source)
                # In many files, read; and in many, written.
                self.save(model, max_shard_size="60KB" if seed % 2 else "5GB")
                (source / "tokenizer.json").write_text('{"made": "up"}')
                lrmoe(
                    "export", source, self.folder / "out", "--ranks", 1 + seed % 3,
                    "--shard-size", "5GB" if seed % 2 else "60KB",
                )  # fmt: skip
                self.assert_same_weights(
                    kind.from_pretrained(source, dtype="auto"),
                    kind.from_pretrained(self.folder / "out", dtype="auto"),
                )
                for name in ("config.json", "generation_config.json", "tokenizer.json"):
                    self.assertEqual(
                        (source / name).read_bytes(), (self.folder / "out" / name).read_bytes()
                    )

    def test_all_experts_in_one_tensor(self):
        model = randomise(qwen3(), 4)
        ids = tokens(2, 20)
        logits, _, _ = eager(model, ids)
        source = self.save(model)
        tensors = load_file(source / "model.safetensors")
        tensors = {n: t for n, t in tensors.items() if ".experts." not in n}
        tensors |= {n: p.detach() for n, p in model.named_parameters() if ".experts." in n}
        save_file(tensors, source / "model.safetensors", {"format": "pt"})
        self.assertLess(error(Run(source, ids, "--ranks", 2).logits, logits), 1e-5)
        lrmoe("export", source, self.folder / "out")
        self.assert_same_weights(model, type(model).from_pretrained(self.folder / "out"))

    def test_layers_for_multi_token_prediction_are_kept(self):
        source = self.save(randomise(glm4(num_nextn_predict_layers=1), 4))
        tensors = load_file(source / "model.safetensors")
        extra = "model.layers.2.eh_proj.weight"
        tensors[extra] = torch.randn(4, 6)
        save_file(tensors, source / "model.safetensors", {"format": "pt"})
        found = json.loads(lrmoe("inspect", source, "--json", "-"))
        self.assertTrue(found["usable"])
        self.assertIn(extra, found["notices"][0])
        lrmoe("export", source, self.folder / "out")
        self.assertTrue(
            torch.equal(load_file(self.folder / "out/model.safetensors")[extra], tensors[extra])
        )

    def test_inspect_counts_parameters(self):
        for make in (qwen3, glm4, olmoe, mixtral):
            with self.subTest(make.__name__):
                model = make()
                source = self.save(model)
                found = json.loads(lrmoe("inspect", source, "--json", "-"))
                biases = sum(b.numel() for n, b in model.named_buffers() if "correction_bias" in n)
                total = sum(p.numel() for p in model.parameters()) + biases
                self.assertEqual(found["parameters"]["total"], total)
                self.assertEqual(found["family"], model.config.model_type)
                self.assertEqual(found["expert_bytes"], 4 * found["parameters"]["expert"])
                shutil.rmtree(source)

    def test_what_cannot_be_computed_is_named(self):
        source = self.save(qwen3())
        config = json.loads((source / "config.json").read_text())
        config |= {"hidden_act": "gelu", "attention_dropout": 0.5}
        (source / "config.json").write_text(json.dumps(config))
        refused = json.loads(lrmoe("inspect", source, "--json", "-"))["refused"]
        self.assertEqual(len(refused), 2)
        numpy.save(self.folder / "ids.npy", tokens(1, 8))
        message = lrmoe("eval", source, "--tokens", self.folder / "ids.npy", fails=True)
        self.assertRegex(message, r"config\.json': hidden_act = \"gelu\" cannot be used")
        self.assertEqual(message.count("\n"), 1)

    def refusal(self, source):
        numpy.save(self.folder / "ids.npy", tokens(1, 8))
        message = lrmoe("eval", source, "--tokens", self.folder / "ids.npy", fails=True)
        self.assertEqual(message.count("\n"), 1, message)
        return message

    def test_damaged_folders(self):
        source = self.save(qwen3(), max_shard_size="60KB")
        index = source / "model.safetensors.index.json"
        files = json.loads(index.read_text())
        name = "model.layers.1.mlp.experts.5.up_proj.weight"
        file = source / files["weight_map"][name]
        whole = file.read_bytes()
        tensors = load_file(file)

        def with_tensors(changed):
            save_file(changed, file, {"format": "pt"})
            message = self.refusal(source)
            file.write_bytes(whole)
            return message

        def rest(text):
            return f"{file.name}': tensor '{name}' {text}"

        missing = with_tensors({n: t for n, t in tensors.items() if n != name})
        self.assertIn(f"{file.name}': there is no tensor '{name}'", missing)
        self.assertIn(
            rest("is [40, 63]; by config.json it is [40, 64]"),
            with_tensors(tensors | {name: tensors[name][:, 1:].contiguous()}),
        )
        self.assertIn(
            rest("is of dtype I32"), with_tensors(tensors | {name: tensors[name].to(torch.int32)})
        )
        self.assertIn("tensor 'made.up' is not in the index", with_tensors(tensors | {
            "made.up": torch.ones(3)}))  # fmt: skip
        other = next(f for f in set(files["weight_map"].values()) if f != file.name)
        duplicate = load_file(source / other) | {name: tensors[name]}
        whole_other = (source / other).read_bytes()
        save_file(duplicate, source / other, {"format": "pt"})
        self.assertRegex(self.refusal(source), rf"tensor '{name}' is in '.*' too")
        (source / other).write_bytes(whole_other)

        file.write_bytes(whole[:-10])
        self.assertRegex(self.refusal(source), rf"{file.name}': tensor '.*': ends at .* cut off")
        file.unlink()
        self.assertRegex(self.refusal(source), rf"{file.name}': No such file")
        file.write_bytes(whole)

        files["weight_map"][name] = "../" + file.name
        index.write_text(json.dumps(files))
        self.assertRegex(self.refusal(source), rf"index.json': tensor '{name}' is said to be in")
        index.write_text("[1]")
        self.assertRegex(self.refusal(source), "index.json': no index of safetensors files")
        index.unlink()
        self.assertIn("has neither model.safetensors nor", self.refusal(source))

    def test_unexpected_tensors_in_a_single_file(self):
        source = self.save(qwen3())
        file = source / "model.safetensors"
        save_file(load_file(file) | {"made.up": torch.ones(3)}, file, {"format": "pt"})
        self.assertIn(
            "model.safetensors': tensor 'made.up' is not part of this qwen3_moe model",
            self.refusal(source),
        )

    def test_header_attacks(self):
        source = self.save(qwen3())
        file = source / "model.safetensors"
        whole = file.read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        header = json.loads(whole[8 : 8 + length])
        name = "model.norm.weight"

        def attack(begin, end, shape=None):
            changed = json.loads(json.dumps(header))
            changed[name] |= {"data_offsets": [begin, end], "shape": shape or header[name]["shape"]}
            text = json.dumps(changed).encode()
            file.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
            message = self.refusal(source)
            self.assertIn("model.safetensors': tensor", message)

        begin, end = header[name]["data_offsets"]
        attack(begin - 4, end - 4)  # an overlap
        attack(-1, end)
        attack(begin, 2**63)
        attack(begin, 2**64 + end)
        attack(begin, end, [2**62, 2**62])
        attack(begin, end, [-64])
        for size in (2**63, 2**64 - 1, len(whole)):
            file.write_bytes(struct.pack("<Q", size) + whole[8:])
            self.assertIn("its header would take", self.refusal(source))

    def test_memory_stays_below_twice_the_model(self):
        model = glm4(
            hidden_size=256, moe_intermediate_size=512, n_routed_experts=64, num_hidden_layers=5,
            intermediate_size=512, num_experts_per_tok=2,
        )  # fmt: skip
        model = model.to(torch.bfloat16)
        source = self.save(model)
        bytes_of_model = (source / "model.safetensors").stat().st_size
        self.assertGreater(bytes_of_model, 150e6)
        small = self.folder / "small"
        qwen3().save_pretrained(small)
        numpy.save(self.folder / "ids.npy", tokens(1, 16))

        def peak(*arguments):
            script = (
                "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
                "stdout=subprocess.DEVNULL); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
            )
            command = [sys.executable, "-c", script, program(), *map(str, arguments)]
            return 1024 * int(subprocess.run(command, check=True, capture_output=True).stdout)

        given = ("--tokens", self.folder / "ids.npy")
        base = peak("eval", small, *given)
        for ranks in (1, 2):
            added = peak("eval", source, *given, "--ranks", ranks) - base
            self.assertLess(added, 1.5 * bytes_of_model, f"{ranks} ranks")
        added = peak("export", source, self.folder / "out", "--ranks", 2) - base
        self.assertLess(added, 1.5 * bytes_of_model, "export")


if __name__ == "__main__":
    unittest.main()
