import subprocess
import sys

import minivllm_scheduler

PUBLIC = {
    "COST_AWARE",
    "FCFS",
    "LEAST_COMPUTED",
    "LIFO",
    "PRIORITY",
    "RESERVE_ALL",
    "Admitted",
    "AdmissionPolicy",
    "Arrival",
    "DuplicateRequest",
    "Executor",
    "FairShare",
    "FinishReason",
    "InvalidConfig",
    "InvalidRequest",
    "KVCacheManager",
    "Pool",
    "PrefixKeys",
    "PriorityWithAgeing",
    "QueueFull",
    "Request",
    "RequestTooLarge",
    "RequestUpdate",
    "RequestView",
    "ScheduledRequest",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerError",
    "SchedulerOutput",
    "SchedulerStats",
    "StepLoop",
    "StepResult",
    "UnexpectedResult",
    "VictimPolicy",
    "WaitingOrder",
    "Watermark",
}


def test_all_is_exactly_what_is_promised():
    assert set(minivllm_scheduler.__all__) == PUBLIC
    assert len(minivllm_scheduler.__all__) == len(PUBLIC)


def test_every_promised_class_is_documented():
    promised = [getattr(minivllm_scheduler, name) for name in minivllm_scheduler.__all__]
    assert all(thing.__doc__ for thing in promised if isinstance(thing, type))


def test_importing_loads_the_standard_library_and_kvcache_only():
    show = (
        "import sys; before = set(sys.modules); import minivllm_scheduler; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout
    ours = {name for name in loaded.split() if name not in sys.stdlib_module_names}
    assert ours == {"minivllm_kvcache", "minivllm_scheduler"}
