"""Token ids from text, with a tiny tokenizer that the test trains."""

import io
import json
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

try:
    import tokenizers
except ImportError:
    tokenizers = None

from lrmoe import tokenize

TEXTS = ["the router sends a token to an expert", "every rank keeps two pairs and waits", "the planner counts"]
TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def make_tokenizer(folder: Path) -> None:
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<end>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.train_from_iterator(TEXTS, trainer)
    bpe.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": TEMPLATE}))


@unittest.skipIf(tokenizers is None, "no tokenizers in this interpreter")
class TokenizeTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.model = self.folder / "model"
        self.model.mkdir()
        make_tokenizer(self.model)
        self.bpe = tokenizers.Tokenizer.from_file(str(self.model / "tokenizer.json"))
        self.end = self.bpe.token_to_id("<end>")

    def ids(self, text):
        return self.bpe.encode(text).ids

    def write(self, name, *lines):
        path = self.folder / name
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return str(path)

    def run_main(self, *arguments, model=None):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = tokenize.main(["--tokenizer", str(model or self.model), *map(str, arguments)])
        return status, out.getvalue(), err.getvalue()

    def expect(self, *arguments):
        status, _, err = self.run_main(*arguments)
        self.assertEqual((status, err), (0, ""))

    def refusal(self, *arguments, model=None):
        status, _, err = self.run_main(*arguments, model=model)
        self.assertEqual(status, 2)
        self.assertEqual(err.count("\n"), 1, err)
        return err

    def lines(self, name):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def test_streams_hold_document_after_document(self):
        a = self.write("a.txt", *TEXTS[:2])
        b = self.write("b.jsonl", {"text": TEXTS[2]})
        want = [*self.ids(TEXTS[0] + "\n" + TEXTS[1] + "\n"), self.end, *self.ids(TEXTS[2]), self.end]
        self.expect(a, b, "-o", self.folder / "out.npy")
        ids = np.load(self.folder / "out.npy")
        self.assertEqual((ids.dtype, ids.tolist()), (np.uint16, want))
        self.expect(a, b, "-o", self.folder / "raw.bin")
        self.assertEqual(np.fromfile(self.folder / "raw.bin", "<u2").tolist(), want)
        facts = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(facts["tokens"], len(want))
        self.assertEqual(facts["documents"], 2)
        self.assertEqual(facts["dtype"], "uint16")
        self.assertEqual(facts["vocabulary"], 300 if self.bpe.get_vocab_size() == 300 else self.bpe.get_vocab_size())
        self.assertEqual(facts["tokenizer"], "model")

    def test_large_vocabularies_take_four_bytes(self):
        output = tokenize.Output(self.folder / "big.bin", 1 << 17)
        output.add(tokenize.Document([70000, 3]), "here")
        self.assertEqual(output.commit({})["dtype"], "uint32")
        self.assertEqual(np.fromfile(self.folder / "big.bin", "<u4").tolist(), [70000, 3])

    def test_prompts_are_not_trained_on(self):
        path = self.write("a.jsonl", {"prompt": TEXTS[0], "completion": " " + TEXTS[2]}, {"text": TEXTS[1]})
        self.expect(path, "-o", self.folder / "out.jsonl")
        first, second = self.lines("out.jsonl")
        self.assertEqual(first["tokens"], [*self.ids(TEXTS[0]), *self.ids(" " + TEXTS[2]), self.end])
        self.assertEqual(first["prompt"], len(self.ids(TEXTS[0])))
        self.assertEqual(second, {"tokens": [*self.ids(TEXTS[1]), self.end]})
        facts = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(facts["trained_tokens"], len(self.ids(" " + TEXTS[2])) + 1 + len(self.ids(TEXTS[1])))

    def test_lines_are_documents_where_asked(self):
        path = self.write("a.txt", *TEXTS, "")
        self.expect(path, "--lines", "-o", self.folder / "out.jsonl")
        self.assertEqual([line["tokens"] for line in self.lines("out.jsonl")], [[*self.ids(t), self.end] for t in TEXTS])
        self.expect(path, "--lines", "--eos", "", "-o", self.folder / "out.jsonl")
        self.assertEqual(self.lines("out.jsonl")[0]["tokens"], self.ids(TEXTS[0]))

    def test_the_assistant_is_trained_on_in_chats(self):
        try:
            import transformers  # noqa: F401
        except ImportError:
            self.skipTest("no transformers in this interpreter")
        chat = [{"role": "user", "content": "the router"}, {"role": "assistant", "content": "sends"},
                {"role": "user", "content": "every rank"}, {"role": "assistant", "content": "waits"}]
        path = self.write("a.jsonl", {"messages": chat})
        self.expect(path, "-o", self.folder / "out.jsonl")
        [line] = self.lines("out.jsonl")
        self.assertEqual(self.bpe.decode(line["tokens"], skip_special_tokens=False),
                         "<user>the router<end><assistant>sends<end><user>every rank<end><assistant>waits<end>")
        trained = [t for t, m in zip(line["tokens"], line["mask"], strict=True) if m]
        self.assertEqual(self.bpe.decode(trained, skip_special_tokens=False), "sends<end>waits<end>")

    def test_mistakes_are_one_line(self):
        text = self.write("a.txt", TEXTS[0])
        out = self.folder / "out.jsonl"
        pair = {"prompt": "a", "completion": "b"}
        self.assertIn("has no tokenizer.json", self.refusal(text, "-o", out, model=self.folder))
        self.assertIn("does not exist", self.refusal(text, "-o", out, model=self.folder / "none"))
        self.assertIn(".npy, .bin or .jsonl", self.refusal(text, "-o", self.folder / "out.txt"))
        self.assertIn("No such file", self.refusal(self.folder / "none.txt", "-o", out))
        self.assertIn("line 2: this is no JSON", self.refusal(self.write("b.jsonl", pair, "{"), "-o", out))
        self.assertIn("line 1: a line is an object with", self.refusal(self.write("c.jsonl", {"x": 1}), "-o", out))
        self.assertIn("'text' is no text", self.refusal(self.write("d.jsonl", {"text": 5}), "-o", out))
        self.assertIn("give -o a .jsonl", self.refusal(self.write("e.jsonl", pair), "-o", self.folder / "out.bin"))
        self.assertIn("none of the messages", self.refusal(
            self.write("f.jsonl", {"messages": [{"role": "user", "content": "a"}]}), "-o", out))
        self.assertIn("is an input", self.refusal(self.write("out.jsonl", pair), "-o", out))
        self.assertIn("not in", self.refusal(text, "--eos", "<none>", "-o", self.folder / "x.npy"))
        self.assertIn("no document", self.refusal(self.write("g.jsonl", ""), "-o", self.folder / "x.npy"))
        (self.folder / "h.txt").write_bytes(b"\xff\xfe")
        self.assertIn("not UTF-8", self.refusal(self.folder / "h.txt", "-o", self.folder / "x.npy"))
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith(("x", ".x"))], [])

    def test_run_by_its_path_it_does_not_stand_for_pythons_own(self):
        text = self.write("a.txt", TEXTS[0])
        done = subprocess.run([sys.executable, tokenize.__file__, text, "--tokenizer", self.model,
                               "-o", self.folder / "out.npy"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue((self.folder / "out.npy").is_file())


if __name__ == "__main__":
    unittest.main()
