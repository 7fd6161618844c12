import pytest


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    """A folder with a random two-layer Llama of 128 ids, every one of which is an end-of-sequence id."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=list(range(128)),
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = tokenizers.models.WordLevel({f"w{token_id}": token_id for token_id in range(128)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.decoder = tokenizers.decoders.Fuse()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder
