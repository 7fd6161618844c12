"""`python -m minivllm_scheduler.simulation`: replay a recorded run, compare two, or make a trace of one."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from minivllm_scheduler.errors import InvalidRecording, ReplayDiverged
from minivllm_scheduler.recording.compare import first_difference
from minivllm_scheduler.recording.counts import count
from minivllm_scheduler.recording.events import Event, Recording
from minivllm_scheduler.recording.json_lines import read_recording, write_recording
from minivllm_scheduler.simulation.errors import InvalidTrace
from minivllm_scheduler.simulation.recorded_trace import trace_of
from minivllm_scheduler.simulation.replay import replay
from minivllm_scheduler.simulation.trace_file import write_trace


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns 0, 1 if decisions differ, 2 if a file cannot be used, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m minivllm_scheduler.simulation", description=__doc__)
    commands = parser.add_subparsers(required=True)
    replaying = commands.add_parser("replay", help="run the scheduler on the commands and ids of a recording")
    replaying.add_argument("recording", type=Path, help="its decisions, if it has any, are not looked at")
    replaying.add_argument("output", type=Path, help="where the new recording goes")
    replaying.set_defaults(run=lambda options: _replay(options.recording, options.output))
    comparing = commands.add_parser("compare", help="name the first step that was decided differently")
    comparing.add_argument("left", type=Path)
    comparing.add_argument("right", type=Path)
    comparing.set_defaults(run=lambda options: _compare(options.left, options.right))
    tracing = commands.add_parser("trace", help="write the workload of a recording as a trace")
    tracing.add_argument("recording", type=Path)
    tracing.add_argument("output", type=Path, help="a .csv or .jsonl file")
    tracing.set_defaults(run=lambda options: _trace(options.recording, options.output))
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except ReplayDiverged as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (InvalidRecording, InvalidTrace, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


def _replay(source: Path, target: Path) -> int:
    events: list[Event] = []
    try:
        replay(read_recording(source), events.append)
    finally:
        if events:  # what was decided until a divergence
            write_recording(Recording.of(events), target)
    sys.stdout.write(f"{count(Recording.of(events))}\n")
    return 0


def _compare(left: Path, right: Path) -> int:
    recordings = read_recording(left), read_recording(right)
    difference = first_difference(*recordings)
    sys.stdout.write(f"{difference or f'{len(recordings[0].outputs())} steps are equal'}\n")
    return 1 if difference else 0


def _trace(source: Path, target: Path) -> int:
    trace = trace_of(read_recording(source))
    write_trace(target, trace)
    sys.stdout.write(f"{trace.num_requests} requests\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
