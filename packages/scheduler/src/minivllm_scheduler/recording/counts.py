"""What a recorded run went through."""

from dataclasses import dataclass

from minivllm_scheduler.output import SchedulerOutput
from minivllm_scheduler.recording.events import Aborted, Added, Recording, Sampled, Scheduled


@dataclass(slots=True)
class RecordingCounts:
    """How often things happened in a recording with outputs.

    Attributes:
        requests: Requests accepted.
        aborts: Requests aborted.
        steps: Steps scheduled.
        tokens: Tokens computed, in all rows.
        sampled_tokens: Ids that came back.
        chunks: Rows that left their request behind: parts of a prompt, or of what a preemption took.
        prefix_hits: Admissions that found tokens in the prefix cache.
        resumptions: Admissions of requests that had been preempted.
    """

    requests: int = 0
    aborts: int = 0
    steps: int = 0
    tokens: int = 0
    sampled_tokens: int = 0
    chunks: int = 0
    prefix_hits: int = 0
    resumptions: int = 0


def count(recording: Recording) -> RecordingCounts:
    """Counts what happened in a recording; without its outputs, steps and what depends on them are 0."""
    counts = RecordingCounts()
    never_admitted: set[str] = set()
    for event in recording.events:
        match event:
            case Added(_, requests):
                counts.requests += len(requests)
                never_admitted.update(request.request_id for request in requests)
            case Aborted():
                counts.aborts += 1
            case Sampled(result):
                counts.sampled_tokens += len(result.token_ids)
            case Scheduled(output):
                _count_step(counts, output, never_admitted)
    return counts


def _count_step(counts: RecordingCounts, output: SchedulerOutput, never_admitted: set[str]) -> None:
    counts.steps += 1
    counts.tokens += sum(row.num_tokens for row in output.rows)
    counts.chunks += sum(not row.samples for row in output.rows)
    for admitted in output.admitted:
        counts.prefix_hits += admitted.num_cached_tokens > 0
        counts.resumptions += admitted.request_id not in never_admitted
        never_admitted.discard(admitted.request_id)
