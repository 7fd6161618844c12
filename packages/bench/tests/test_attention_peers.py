"""PyTorch's kernel is real; packages that need a GPU are stand-ins that hold arguments to the documented layout."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from minivllm_bench.attention_peers import AttentionShape, attention_peers  # noqa: E402

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16


def shape(num_requests, query_len, context_len):
    return AttentionShape(
        num_requests=num_requests,
        query_len=query_len,
        context_len=context_len,
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        dtype=torch.float32,
        device="cpu",
    )


def install(monkeypatch, name, **members):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for member, value in members.items():
        setattr(module, member, value)
    monkeypatch.setitem(sys.modules, name, module)


def is_permutation(table):
    return sorted(table.flatten().tolist()) == list(range(table.numel()))


def run_peer(name, of):
    (make,) = [make for peer, make in attention_peers(of) if peer == name]
    return make()()


def test_pytorch_attends_to_whole_prompts_only():
    assert run_peer("torch flash", shape(3, 40, 40)).shape == (3, HEADS, 40, HEAD_DIM)
    assert "torch flash" not in dict(attention_peers(shape(3, 1, 40)))


def test_what_is_not_installed_takes_no_part(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert [name for name, _ in attention_peers(shape(1, 8, 8))] == ["torch flash"]


def flash_attn_func(query, key, value, *, causal):
    assert causal
    assert key.shape == value.shape == (3, 40, KV_HEADS, HEAD_DIM)
    return query


def flash_attn_with_kvcache(query, keys, values, *, cache_seqlens, block_table, causal):
    assert causal
    assert cache_seqlens.tolist() == [300] * 3
    assert cache_seqlens.dtype == block_table.dtype == torch.int32
    assert block_table.shape == (3, 2)
    assert is_permutation(block_table)
    assert keys.shape == values.shape == (6, 256, KV_HEADS, HEAD_DIM)
    return query


def test_flash_attention_gets_pages_of_256_tokens(monkeypatch):
    install(
        monkeypatch,
        "flash_attn",
        flash_attn_func=flash_attn_func,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
    )
    assert run_peer("flash-attn", shape(3, 40, 40)).shape == (3, 40, HEADS, HEAD_DIM)
    assert run_peer("flash-attn", shape(3, 1, 300)).shape == (3, 1, HEADS, HEAD_DIM)


class Wrapper:
    """What both of FlashInfer's wrappers have in common."""

    def __init__(self, workspace, kv_layout, **options):
        assert workspace.dtype == torch.uint8
        assert kv_layout == "HND"

    def plan_pages(self, indptr, indices, last_page_len, heads, kv_heads, head_dim, page_size, q_data_type):
        assert (heads, kv_heads, head_dim, page_size) == (HEADS, KV_HEADS, HEAD_DIM, 16)
        assert q_data_type == torch.float32
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        assert indptr.tolist() == [0, 3, 6, 9]
        assert is_permutation(indices)
        assert last_page_len.tolist() == [8] * 3

    def run(self, query, pages):
        assert pages.shape == (9, 2, KV_HEADS, 16, HEAD_DIM)
        return query


class Decode(Wrapper):
    def plan(self, *pages, q_data_type):
        self.plan_pages(*pages, q_data_type)


class Prefill(Wrapper):
    def plan(self, qo_indptr, *pages, causal, q_data_type):
        assert causal
        assert qo_indptr.tolist() == [0, 40, 80, 120]
        self.plan_pages(*pages, q_data_type)


def test_flashinfer_plans_once_and_runs_on_pages_of_16_tokens(monkeypatch):
    install(
        monkeypatch,
        "flashinfer",
        BatchDecodeWithPagedKVCacheWrapper=Decode,
        BatchPrefillWithPagedKVCacheWrapper=Prefill,
    )
    assert run_peer("flashinfer", shape(3, 40, 40)).shape == (120, HEADS, HEAD_DIM)
    assert run_peer("flashinfer", shape(3, 1, 40)).shape == (3, HEADS, HEAD_DIM)
