import subprocess
import sys

import minivllm_kvcache

PUBLIC = {
    "Allocation",
    "BlockEvent",
    "BlockEventKind",
    "BlockNotInUse",
    "BlockTable",
    "DuplicateRequest",
    "InvalidArgument",
    "KVCacheError",
    "KVCacheManager",
    "KVCacheStats",
    "PrefixKeys",
    "UnknownRequest",
}


def test_all_is_exactly_what_is_promised():
    assert set(minivllm_kvcache.__all__) == PUBLIC
    assert len(minivllm_kvcache.__all__) == len(PUBLIC)


def test_everything_promised_can_be_imported_and_is_documented():
    for name in minivllm_kvcache.__all__:
        assert getattr(minivllm_kvcache, name).__doc__, name


def test_importing_loads_the_standard_library_only():
    show = (
        "import sys; before = set(sys.modules); import minivllm_kvcache; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout
    assert {name for name in loaded.split() if name not in sys.stdlib_module_names} == {"minivllm_kvcache"}
