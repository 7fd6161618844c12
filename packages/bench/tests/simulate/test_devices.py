from minivllm_bench.simulate.devices import DEVICES


def test_devices_become_balanced_at_some_hundred_flops_per_byte():
    for sheet in DEVICES.values():
        assert 100 < sheet.flops_per_s / sheet.bytes_per_s < 500
