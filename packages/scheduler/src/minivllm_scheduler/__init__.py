"""Continuous-batching scheduler and step loop, standard library only."""

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
from minivllm_scheduler.output import Admitted, RequestUpdate, ScheduledRequest, SchedulerOutput, StepResult
from minivllm_scheduler.policy import (
    FCFS,
    LEAST_COMPUTED,
    LIFO,
    PRIORITY,
    RunningRequest,
    VictimPolicy,
    WaitingOrder,
)
from minivllm_scheduler.request import FinishReason, Request
from minivllm_scheduler.scheduler import Scheduler
from minivllm_scheduler.stats import SchedulerStats
from minivllm_scheduler.step_loop import Executor, StepLoop

__all__ = [
    "FCFS",
    "LEAST_COMPUTED",
    "LIFO",
    "PRIORITY",
    "Admitted",
    "DuplicateRequest",
    "Executor",
    "FinishReason",
    "InvalidConfig",
    "InvalidRequest",
    "QueueFull",
    "Request",
    "RequestTooLarge",
    "RequestUpdate",
    "RunningRequest",
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
]
