"""`python tiny_model.py DIR`: a Llama of four small layers without weights, and one token for each byte of text.

For vLLM with `--load-format dummy`: what it says is noise, how it is scheduled is real.
"""

import json
import sys
from pathlib import Path

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
}
SPECIAL = ["<unk>", "<s>", "</s>"]
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
}


def byte_symbols() -> list[str]:
    """The characters by which a byte-level BPE writes the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {byte: chr(byte) for byte in printable}
    for i, byte in enumerate(byte for byte in range(256) if byte not in symbols):
        symbols[byte] = chr(256 + i)
    return [symbols[byte] for byte in range(256)]


def make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    words = SPECIAL + byte_symbols()
    words += [f"<pad{i}>" for i in range(CONFIG["vocab_size"] - len(words))]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": i,
                "content": word,
                "special": True,
                **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            }
            for i, word in enumerate(SPECIAL)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "merges": []},
    }
    for name, content in ("config", CONFIG), ("tokenizer", tokenizer), ("tokenizer_config", TOKENIZER):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False))
    return folder


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
