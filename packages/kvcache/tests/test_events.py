from minivllm_kvcache import BlockEvent, BlockEventKind


def test_an_event_can_be_written_as_plain_values():
    kind, key, block_id = BlockEvent(BlockEventKind.STORED, b"\x01" * 32, 4)
    assert (f"{kind}", key.hex(), block_id) == ("stored", "01" * 32, 4)
    assert f"{BlockEventKind.REMOVED}" == "removed"
