"""Simulation of an engine: the real scheduler and step loop on a virtual clock, no device needed."""

from minivllm_scheduler.simulation.arrivals import ArrivalProcess, ClosedLoop, GammaArrivals, PoissonArrivals
from minivllm_scheduler.simulation.cost import ConstantCost, CostModel, StepLoad
from minivllm_scheduler.simulation.errors import InvalidCost, InvalidTrace, InvalidWorkload, SimulationError
from minivllm_scheduler.simulation.lengths import (
    MAX_LENGTH_TOKENS,
    FixedLength,
    LengthDistribution,
    LogNormalLength,
    UniformLength,
)
from minivllm_scheduler.simulation.linear_cost import (
    LinearCost,
    MeasuredStep,
    PredictionError,
    fit_linear_cost,
    prediction_error,
)
from minivllm_scheduler.simulation.percentile import percentile
from minivllm_scheduler.simulation.recorded_trace import trace_of
from minivllm_scheduler.simulation.replay import recorded_engine, replay
from minivllm_scheduler.simulation.report import ClassReport, Distribution, KVUse, SimulationReport
from minivllm_scheduler.simulation.roofline_cost import DeviceSheet, ModelShape, RooflineCost
from minivllm_scheduler.simulation.simulated_engine import SimulatedEngine
from minivllm_scheduler.simulation.simulator import Simulator, simulate
from minivllm_scheduler.simulation.synthetic import MultiTurn, RequestClass, SharedPrefixes, SyntheticWorkload
from minivllm_scheduler.simulation.token_curve import TokenCurve
from minivllm_scheduler.simulation.trace import Trace, TraceRow
from minivllm_scheduler.simulation.trace_file import read_trace, write_trace
from minivllm_scheduler.simulation.traffic import TimedRequest, Traffic, Workload
from minivllm_scheduler.simulation.upcoming import UpcomingRequests

__all__ = [
    "MAX_LENGTH_TOKENS",
    "ArrivalProcess",
    "ClassReport",
    "ClosedLoop",
    "ConstantCost",
    "CostModel",
    "DeviceSheet",
    "Distribution",
    "FixedLength",
    "GammaArrivals",
    "InvalidCost",
    "InvalidTrace",
    "InvalidWorkload",
    "KVUse",
    "LengthDistribution",
    "LinearCost",
    "LogNormalLength",
    "MeasuredStep",
    "ModelShape",
    "MultiTurn",
    "PoissonArrivals",
    "PredictionError",
    "RequestClass",
    "RooflineCost",
    "SharedPrefixes",
    "SimulatedEngine",
    "SimulationError",
    "SimulationReport",
    "Simulator",
    "StepLoad",
    "SyntheticWorkload",
    "TimedRequest",
    "TokenCurve",
    "Trace",
    "TraceRow",
    "Traffic",
    "UniformLength",
    "UpcomingRequests",
    "Workload",
    "fit_linear_cost",
    "percentile",
    "prediction_error",
    "read_trace",
    "recorded_engine",
    "replay",
    "simulate",
    "trace_of",
    "write_trace",
]
