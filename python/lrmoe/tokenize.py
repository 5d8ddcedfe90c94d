"""Makes token ids for `lrmoe train` with a model's own tokenizer.

    python -m lrmoe.tokenize --tokenizer MODEL_DIR IN [...] -o OUT.{npy,bin,jsonl}

The tokenizer is a Hugging Face folder or a tokenizer.json. Inputs, by their names:
`.jsonl` and `.json-lines` are JSON lines, an object each with `text`, with `prompt` and
`completion`, or with `messages` (through the model's chat template, which needs
transformers); everything else is plain text, a document per file (`--lines`: per line).
A document ends in the end-of-text token where the model has one.

`.npy` and `.bin` hold one stream of ids, document after document; `.jsonl` a line per
document, {"tokens": [...]}, with the number of prompt tokens or a mask, which are not
trained on. Beside it OUT.json tells tokenizer, vocabulary and counts. Both files appear
whole or not at all.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # run by its path: this folder's tokenize.py would stand for Python's own
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]

import argparse
import itertools
import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

DOCUMENTS_AT_ONCE = 256
JSON_LINES = {".jsonl", ".ndjson", ".json-lines"}
NPY_HEADER = 128  # bytes; the shape is known at the end only


class InputError(Exception):
    """What is wrong with the input, in one line."""


def one_line(text: object, longest: int = 160) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= longest else flat[:longest] + "..."


@dataclass
class Document:
    """Token ids, and how many of the first or which of all are not trained on."""

    tokens: list[int]
    prompt: int = 0
    mask: list[int] | None = None

    def trained(self) -> int:
        if self.mask is not None:
            return sum(self.mask[1:])
        return len(self.tokens) - max(self.prompt, 1)


@dataclass
class Source:
    """One thing to make a document of; `where` begins messages about it."""

    where: str
    text: str = ""
    completion: str | None = None  # then `text` is the prompt
    messages: list | None = None


@dataclass
class ModelTokenizer:
    """A tokenizer.json and what its folder says of the end-of-text token and chats."""

    name: str
    path: Path
    folder: Path | None
    eos: int | None = None
    vocabulary: int = 0
    fast: object = None
    _chat: object = field(default=None, repr=False)

    @staticmethod
    def load(place: str, eos: str | None) -> ModelTokenizer:
        try:
            import tokenizers
        except ImportError:
            raise InputError("this needs the package tokenizers (it comes with transformers)") from None
        path = Path(place)
        folder = path if path.is_dir() else None
        file = path / "tokenizer.json" if folder else path
        if not file.is_file():
            what = "has no tokenizer.json" if folder else "does not exist"
            raise InputError(f"--tokenizer {place}: it {what}; name a model's folder or a tokenizer.json")
        try:
            fast = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise InputError(f"--tokenizer {file}: it cannot be read: {one_line(error)}") from None
        fast.no_truncation()
        fast.no_padding()
        own = ModelTokenizer(path.resolve().name, file, folder, fast=fast)
        own.vocabulary = 1 + max(fast.get_vocab(with_added_tokens=True).values(), default=-1)
        own.eos = own._find_eos(eos)
        return own

    def _find_eos(self, wanted: str | None) -> int | None:
        token = wanted
        if token is None and self.folder:
            token = _read_json(self.folder / "tokenizer_config.json").get("eos_token")
            token = token.get("content") if isinstance(token, dict) else token
            if token is None:
                ids = _read_json(self.folder / "config.json").get("eos_token_id")
                return ids[0] if isinstance(ids, list) else ids
        if not token:
            return None
        found = self.fast.token_to_id(token)
        if found is None:
            raise InputError(f"the end-of-text token {token!r} is not in {self.path}; --eos names another, "
                             "--eos '' leaves it out")
        return found

    def encode(self, texts: list[str], special: bool = True) -> list[list[int]]:
        return [e.ids for e in self.fast.encode_batch(texts, add_special_tokens=special)]

    def end(self, ids: list[int]) -> list[int]:
        """The ids, ended by the end-of-text token, once."""
        return ids if self.eos is None or ids[-1:] == [self.eos] else [*ids, self.eos]

    def chat(self) -> object:
        if self._chat is None:
            if self.folder is None:
                raise InputError("messages need a model's folder with its chat template, not a tokenizer.json alone")
            try:
                from transformers import AutoTokenizer
            except ImportError:
                raise InputError("messages need transformers, for the chat template: pip install transformers") from None
            try:
                self._chat = AutoTokenizer.from_pretrained(self.folder)
            except Exception as error:
                raise InputError(f"--tokenizer {self.folder}: transformers cannot read it: {one_line(error)}") from None
            if not self._chat.chat_template:
                raise InputError(f"--tokenizer {self.folder}: it has no chat template, so messages cannot be written "
                                 "out; give prompt and completion instead")
        return self._chat

    def chat_ids(self, messages: list, where: str, ask: bool) -> list[int]:
        try:
            ids = self.chat().apply_chat_template(messages, tokenize=True, add_generation_prompt=ask,
                                                  return_dict=False)
        except InputError:
            raise
        except Exception as error:  # templates raise what they like
            raise InputError(f"{where}: the chat template refuses these messages: {one_line(error)}") from None
        return list(ids)


def _read_json(path: Path) -> dict:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}


def read_sources(paths: Iterable[str], by_line: bool) -> Iterator[Source]:
    for name in paths:
        path = Path(name)
        try:
            with path.open(encoding="utf-8") as file:
                if path.suffix in JSON_LINES:
                    yield from _json_lines(file, name)
                elif by_line:
                    for number, line in enumerate(file, 1):
                        if line.strip():
                            yield Source(f"{name}, line {number}", line.rstrip("\n"))
                else:
                    text = file.read()
                    if not text.strip():
                        raise InputError(f"{name}: there is no text in it")
                    yield Source(name, text)
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: it is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise InputError(f"{name}: cannot read it: {error.strerror}") from None


def _json_lines(file: Iterable[str], name: str) -> Iterator[Source]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            item = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: this is no JSON: {one_line(error)}") from None
        yield _source(item, where)


def _source(item: object, where: str) -> Source:
    def text(key: str) -> str:
        if not isinstance(item[key], str):
            raise InputError(f"{where}: {key!r} is no text")
        return item[key]

    if isinstance(item, dict) and "messages" in item:
        messages = item["messages"]
        if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
            raise InputError(f"{where}: 'messages' is no list of {{\"role\", \"content\"}}")
        if not any(m["role"] == "assistant" for m in messages):
            raise InputError(f"{where}: none of the messages is the assistant's, so there is nothing to train on")
        return Source(where, messages=messages)
    if isinstance(item, dict) and "prompt" in item and "completion" in item:
        return Source(where, text("prompt"), text("completion"))
    if isinstance(item, dict) and "text" in item:
        return Source(where, text("text"))
    keys = f"it has {', '.join(map(repr, item))}" if isinstance(item, dict) and item else "it is none of them"
    raise InputError(f"{where}: a line is an object with 'text', with 'prompt' and 'completion', or with 'messages'; "
                     + one_line(keys))


def chat_document(tokenizer: ModelTokenizer, source: Source) -> Document:
    """The whole chat; the assistant's turns are trained on."""
    messages = source.messages
    ids = tokenizer.chat_ids(messages, source.where, ask=False)
    mask = [0] * len(ids)
    turns = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    for turn in turns:
        before = tokenizer.chat_ids(messages[:turn], source.where, ask=True)
        upto = tokenizer.chat_ids(messages[: turn + 1], source.where, ask=False)
        # A template may write earlier turns otherwise than it wrote them as the last one
        # (Qwen3 leaves out their thoughts): such a turn is not trained on.
        if upto[: len(before)] == before and ids[: len(upto)] == upto:
            mask[len(before) : len(upto)] = [1] * (len(upto) - len(before))
    if 1 not in mask[1:]:
        raise InputError(f"{source.where}: the chat template writes the assistant's turns otherwise once they are "
                         "answered, so they cannot be found again; give prompt and completion instead")
    return Document(ids, mask=mask)


def make_documents(tokenizer: ModelTokenizer, sources: Iterable[Source]) -> Iterator[tuple[Source, Document]]:
    sources = iter(sources)
    while batch := list(itertools.islice(sources, DOCUMENTS_AT_ONCE)):
        plain = [s for s in batch if s.messages is None]
        paired = [s for s in plain if s.completion is not None]
        ids = dict(zip(map(id, plain), tokenizer.encode([s.text for s in plain]), strict=True))
        rest = dict(zip(map(id, paired), tokenizer.encode([s.completion for s in paired], special=False), strict=True))
        for source in batch:
            if source.messages is not None:
                yield source, chat_document(tokenizer, source)
            elif source.completion is not None:
                prompt = ids[id(source)]
                if prompt[-1:] == [tokenizer.eos]:
                    prompt = prompt[:-1]  # the tokenizer ends a text by itself; the prompt goes on
                yield source, Document(tokenizer.end(prompt + rest[id(source)]), prompt=len(prompt))
            else:
                yield source, Document(tokenizer.end(ids[id(source)]))


class Output:
    """OUT and its OUT.json: written beside their places, then put there."""

    def __init__(self, out: Path, vocabulary: int):
        self.out = out
        self.kind = out.suffix
        self.type = "uint16" if vocabulary <= 1 << 16 else "uint32"
        self.partial = out.with_name(f".{out.name}.partial")
        self.tokens = self.trained = self.documents = 0
        try:
            self.file = self.partial.open("wb")
        except OSError as error:
            raise InputError(f"-o {out}: cannot write it: {error.strerror}") from None
        if self.kind == ".npy":
            self.file.write(b"\0" * NPY_HEADER)

    def add(self, document: Document, where: str) -> None:
        if self.kind == ".jsonl":
            if len(document.tokens) < 2 or document.trained() < 1:
                raise InputError(f"{where}: it comes to {len(document.tokens)} tokens, {document.trained()} of them "
                                 "to train on; a line takes two tokens and one of them trained on at least")
            line: dict = {"tokens": document.tokens}
            if document.mask is not None:
                line["mask"] = document.mask
            elif document.prompt:
                line["prompt"] = document.prompt
            self.file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            self.trained += document.trained()
        else:
            if document.mask is not None or document.prompt:
                raise InputError(f"{where}: a prompt that is not trained on needs lines: give -o a .jsonl")
            ids = array("H" if self.type == "uint16" else "I", document.tokens)
            if sys.byteorder == "big":
                ids.byteswap()
            self.file.write(ids.tobytes())
            self.trained += len(document.tokens)
        self.tokens += len(document.tokens)
        self.documents += 1

    def commit(self, description: dict) -> dict:
        if self.documents == 0:
            raise InputError("the inputs hold no document")
        if self.kind == ".npy":
            self.file.seek(0)
            self.file.write(npy_header("<u2" if self.type == "uint16" else "<u4", self.tokens))
        self.file.close()
        facts = {"format": "lrmoe-tokens", "version": 1, **description}
        if self.kind != ".jsonl":
            facts["dtype"] = self.type
        facts |= {"documents": self.documents, "tokens": self.tokens, "trained_tokens": self.trained}
        beside = self.partial.with_suffix(".facts")
        beside.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        os.replace(self.partial, self.out)
        os.replace(beside, self.out.with_suffix(".json"))
        return facts

    def discard(self) -> None:
        self.file.close()
        self.partial.unlink(missing_ok=True)


def npy_header(dtype: str, count: int) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({count},), }}"
    start = b"\x93NUMPY\x01\x00" + (NPY_HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(NPY_HEADER - 11).encode() + b"\n"


def tokenize(tokenizer: ModelTokenizer, inputs: list[str], out: Path, by_line: bool = False) -> dict:
    """Writes OUT and OUT.json; what the latter says."""
    if out.suffix not in (".npy", ".bin", ".jsonl"):
        raise InputError(f"-o {out}: its ending says what is written: .npy, .bin or .jsonl")
    for name in inputs:
        if Path(name).resolve() in (out.resolve(), out.with_suffix(".json").resolve()):
            raise InputError(f"-o {out}: {name} is an input, which it would replace")
    output = Output(out, tokenizer.vocabulary)
    try:
        for source, document in make_documents(tokenizer, read_sources(inputs, by_line)):
            output.add(document, source.where)
        return output.commit({"tokenizer": tokenizer.name, "vocabulary": tokenizer.vocabulary,
                              "end_of_text": tokenizer.eos, "inputs": [Path(name).name for name in inputs]})
    except BaseException:
        output.discard()
        raise


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lrmoe.tokenize", description="Makes token ids for lrmoe train with a model's own tokenizer.")
    parser.add_argument("inputs", nargs="+", metavar="IN", help="text, or JSON lines (.jsonl) with text, with prompt "
                        "and completion, or with messages")
    parser.add_argument("--tokenizer", required=True, metavar="MODEL_DIR", help="a Hugging Face folder, or a tokenizer.json")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="OUT.npy, OUT.bin or OUT.jsonl")
    parser.add_argument("--lines", action="store_true", help="every line of a text file is a document")
    parser.add_argument("--eos", metavar="TOKEN", help="the token that ends a document (default: the model's; '': none)")
    options = parser.parse_args(arguments)
    try:
        tokenizer = ModelTokenizer.load(options.tokenizer, options.eos)
        facts = tokenize(tokenizer, options.inputs, Path(options.output), options.lines)
    except InputError as error:
        print(f"lrmoe.tokenize: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {facts['tokens']} tokens of {facts['documents']} documents, "
          f"{facts['trained_tokens']} trained on, vocabulary {facts['vocabulary']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
