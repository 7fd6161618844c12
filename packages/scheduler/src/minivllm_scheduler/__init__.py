"""Continuous-batching scheduler and step loop, standard library only."""

from minivllm_kvcache import KVCacheManager, PrefixKeys
from minivllm_scheduler.config import SchedulerConfig
from minivllm_scheduler.errors import (
    DuplicateRequest,
    InvalidConfig,
    InvalidRequest,
    QueueFull,
    RequestTooLarge,
    SchedulerError,
    UnexpectedResult,
)
from minivllm_scheduler.fair_share import FairShare
from minivllm_scheduler.output import Admitted, RequestUpdate, ScheduledRequest, SchedulerOutput, StepResult
from minivllm_scheduler.policy import (
    COST_AWARE,
    FCFS,
    LEAST_COMPUTED,
    LIFO,
    PRIORITY,
    RESERVE_ALL,
    AdmissionPolicy,
    Arrival,
    Pool,
    PriorityWithAgeing,
    VictimPolicy,
    WaitingOrder,
    Watermark,
)
from minivllm_scheduler.request import FinishReason, Request
from minivllm_scheduler.request_view import RequestView
from minivllm_scheduler.scheduler import Scheduler
from minivllm_scheduler.stats import SchedulerStats
from minivllm_scheduler.step_loop import Executor, StepLoop

__all__ = [
    "COST_AWARE",
    "FCFS",
    "LEAST_COMPUTED",
    "LIFO",
    "PRIORITY",
    "RESERVE_ALL",
    "AdmissionPolicy",
    "Admitted",
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
]
