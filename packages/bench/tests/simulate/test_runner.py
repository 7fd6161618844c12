from minivllm_bench.simulate.runner import PlannedRun, run_all
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import ConstantCost, SimulatedEngine, Trace, TraceRow, simulate


def test_each_engine_serves_the_whole_workload(capsys):
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, max_num_waiting=99)
    cost, trace = ConstantCost(1.0), Trace([TraceRow(0.0, 6, 5)] * 9)
    plan = [
        PlannedRun(
            swept={"num_blocks": num_blocks},
            engine=SimulatedEngine(config=config, num_blocks=num_blocks, block_size=4),
            cost=cost,
            workload=trace,
        )
        for num_blocks in (4, 8)
    ]
    runs = run_all(plan)
    assert [run.swept for run in runs] == [{"num_blocks": 4}, {"num_blocks": 8}]
    assert [run.report for run in runs] == [simulate(planned.engine, cost, trace) for planned in plan]
    assert all(run.wall_s > 0 and run.rows_per_s > 0 for run in runs)
    assert capsys.readouterr().out == ""
