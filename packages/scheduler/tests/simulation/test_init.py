import subprocess
import sys

from minivllm_scheduler import SchedulerError, simulation


def test_every_promised_name_is_there_and_documented():
    names = simulation.__all__
    assert len(names) == len(set(names))
    assert all(getattr(simulation, name).__doc__ for name in names)


def test_every_error_is_one_of_the_scheduler():
    errors = [simulation.InvalidCost, simulation.InvalidTrace, simulation.InvalidWorkload]
    assert all(issubclass(error, simulation.SimulationError) for error in errors)
    assert issubclass(simulation.SimulationError, SchedulerError)


def test_importing_loads_the_standard_library_and_kvcache_only():
    show = (
        "import sys; before = set(sys.modules); import minivllm_scheduler.simulation; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout
    ours = {name for name in loaded.split() if name not in sys.stdlib_module_names}
    assert ours == {"minivllm_kvcache", "minivllm_scheduler"}
