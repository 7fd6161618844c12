"""Runs of a scheduler on record: written while they happen, read, replayed without a model, and compared."""

from minivllm_scheduler.recording.compare import Difference, first_difference
from minivllm_scheduler.recording.counts import RecordingCounts, count
from minivllm_scheduler.recording.events import (
    Aborted,
    Added,
    Event,
    Failed,
    PassBegan,
    Recording,
    Sampled,
    Scheduled,
    Setup,
)
from minivllm_scheduler.recording.json_lines import SCHEMA, line_writer, read_recording, write_recording
from minivllm_scheduler.recording.recorder import RecordingScheduler
from minivllm_scheduler.recording.replay import replay
from minivllm_scheduler.recording.trace import trace_of

__all__ = [
    "SCHEMA",
    "Aborted",
    "Added",
    "Difference",
    "Event",
    "Failed",
    "PassBegan",
    "Recording",
    "RecordingCounts",
    "RecordingScheduler",
    "Sampled",
    "Scheduled",
    "Setup",
    "count",
    "first_difference",
    "line_writer",
    "read_recording",
    "replay",
    "trace_of",
    "write_recording",
]
