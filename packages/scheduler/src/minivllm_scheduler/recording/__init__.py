"""Runs of a scheduler on record: written while they happen, read, and compared; the simulator replays them."""

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
    "write_recording",
]
