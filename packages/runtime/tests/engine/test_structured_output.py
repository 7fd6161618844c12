"""Output that follows a JSON schema: always parses, fails alone, waits for nobody."""

import json
import threading
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_runtime import LLM, InvalidParameter, RequestFailed, SamplingParams
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine import grammar_compiler
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.messages import AbortRequest, Accepted, AddRequests, EngineRequest, Refused
from minivllm_runtime.sampling.grammar_masks import GrammarState
from minivllm_scheduler import FinishReason

from ..reference.tiny_transformers import engine_of, reference_model
from ..scripted.byte_level import IM_END, byte_level_tokenizer
from ..scripted.held_tokenizer import HeldTokenizer
from ..scripted.model import ScriptedModel, scripted_config

MODEL = reference_model("llama 4/2 heads")
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"enum": [1, "two", None]}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
PROMPT = (1, 2, 3)

both_modes = pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])


def request(name, schema=POINT, **changes):
    return EngineRequest(
        **{
            "request_id": name,
            "prompt_token_ids": PROMPT,
            "max_tokens": 40,
            "stop_token_ids": frozenset({IM_END}),
            "json_schema": None if schema is None else json.dumps(schema),
            **changes,
        }
    )


def drain(core):
    """Step until nothing is left: answers, ids and the end of each request."""
    answers, ids, ends = [], {}, {}
    while core.has_work:
        for output in core.step():
            ids[output.request_id] = ids.get(output.request_id, b"") + bytes(
                token_id for token_id in output.token_ids if token_id < IM_END
            )
            if output.finish_reason is not None:
                ends[output.request_id] = output.error or output.finish_reason
        answers += core.take_answers()
    return answers, ids, ends


def assert_at_rest(core):
    stats = core.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)


numbers = st.integers(-50, 50)
small_schemas = st.recursive(
    st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": "string", "maxLength": 3},
            {"type": "string", "maxLength": 3, "pattern": "^[^b]{0,3}$"},
        ]
    )
    | st.lists(st.none() | st.booleans() | numbers | st.text(max_size=2), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    )
    | st.tuples(numbers, numbers).map(
        lambda bounds: {"type": "integer", "minimum": min(bounds), "maximum": max(bounds)}
    ),
    lambda inner: (
        st.builds(
            lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 2)
        )
        | st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options})
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=2).map(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[:1],
                "additionalProperties": False,
            }
        )
    ),
    max_leaves=4,
)


def follows(value, schema):
    """Whether a value is what one of `small_schemas` allows."""
    if "enum" in schema:
        return any(value == allowed and type(value) is type(allowed) for allowed in schema["enum"])
    if "anyOf" in schema:
        return any(follows(value, option) for option in schema["anyOf"])
    match schema["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "string":
            return isinstance(value, str) and len(value) <= schema["maxLength"]
        case "integer":
            return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
        case "array":
            return (
                isinstance(value, list)
                and len(value) <= schema["maxItems"]
                and all(follows(item, schema["items"]) for item in value)
            )
    properties = schema["properties"]
    return (
        isinstance(value, dict)
        and set(schema["required"]) <= value.keys() <= properties.keys()
        and all(follows(each, properties[name]) for name, each in value.items())
    )


@cache
def large_engine(run_ahead):
    return engine_of(MODEL, run_ahead=run_ahead, num_blocks=400).core


@settings(max_examples=40)
@given(st.lists(small_schemas, min_size=1, max_size=3), st.integers(0, 2**64 - 1), st.booleans())
def test_a_random_model_writes_what_the_schema_allows(schemas, seed, run_ahead):
    core = large_engine(run_ahead)
    # White space is free, and a random model loves it: less of it comes sooner to an end.
    less_space = tuple((ord(char), -6.0) for char in " \n\r\t")
    requests = [
        request(f"r{index}", schema, max_tokens=120, seed=seed, logit_bias=less_space)
        for index, schema in enumerate(schemas)
    ]
    free = request("free", None, max_tokens=5, seed=seed)
    core.execute([AddRequests(each.request_id, (each,)) for each in (*requests, free)])
    _, texts, ends = drain(core)
    for each, schema in zip(requests, schemas, strict=True):
        if ends[each.request_id] is FinishReason.STOP:
            assert follows(json.loads(texts[each.request_id]), schema), texts
        else:
            assert ends[each.request_id] is FinishReason.LENGTH
    assert ends["free"] in {FinishReason.LENGTH, FinishReason.STOP}
    assert_at_rest(core)


@both_modes
@pytest.mark.parametrize(
    "settings",
    [{}, {"num_blocks": 24}, {"max_num_batched_tokens": 4, "max_num_seqs": 4}],
    ids=["together", "preempted", "chunked"],
)
def test_a_grammar_goes_on_where_it_was_however_a_request_is_scheduled(run_ahead, settings):
    requests = [request(f"r{i}", seed=i, prompt_token_ids=PROMPT * 3) for i in range(3)]
    requests.append(request("free", None, prompt_token_ids=PROMPT * 3, temperature=0.0))
    alone = {}
    for each in requests:
        core = engine_of(MODEL).core
        core.execute([AddRequests("one", (each,))])
        alone |= drain(core)[1]
    core = engine_of(MODEL, run_ahead=run_ahead, **settings).core
    core.execute([AddRequests("all", tuple(requests))])
    answers, texts, ends = drain(core)
    assert answers == [Accepted("all")]
    assert texts == alone
    assert (core.stats().num_preemptions > 0) == ("num_blocks" in settings)
    assert all(ends[name] in {FinishReason.STOP, FinishReason.LENGTH} for name in ends)


def test_a_wrong_schema_is_refused_and_loses_nothing():
    core = engine_of(MODEL).core
    good, bad = request("good"), request("bad", {"type": "nope"})
    at_once = core.execute([AddRequests("bad", (good, bad)), AddRequests("good", (request("good"),))])
    later, texts, _ = drain(core)
    refused, accepted = sorted((*at_once, *later), key=lambda answer: answer.batch_id)
    assert accepted == Accepted("good")
    assert (refused.batch_id, refused.param, refused.queue_full) == ("bad", "json_schema", False)
    assert "nope" in refused.message
    assert set(texts) == {"good"}
    assert_at_rest(core)


def test_the_engine_goes_on_while_a_grammar_is_compiled():
    tokenizer = HeldTokenizer()
    core = scripted_engine("[]", tokenizer=tokenizer).core
    slow, other = request("slow"), request("other", None)
    assert core.execute([AddRequests("slow", (slow,)), AddRequests("other", (other,))]) == (
        Accepted("other"),
    )
    ended = set()
    while "other" not in ended:
        ended |= {output.request_id for output in core.step() if output.finish_reason}
    assert core.has_work
    assert core.take_answers() == ()
    tokenizer.may_compile.set()
    answers, texts, _ = drain(core)
    assert answers == [Accepted("slow")]
    assert set(texts) == {"slow"}
    # Known by now: it is queued at once.
    assert core.execute([AddRequests("again", (request("again"),))]) == (Accepted("again"),)


def test_a_request_can_be_aborted_while_its_grammar_is_compiled():
    tokenizer = HeldTokenizer()
    core = scripted_engine("[]", tokenizer=tokenizer).core
    core.execute([AddRequests("batch", (request("a"), request("b")))])
    (answer,) = core.execute([AbortRequest("b"), AbortRequest("a")])
    assert isinstance(answer, Refused)
    assert answer.batch_id == "batch"
    assert not core.has_work
    tokenizer.may_compile.set()
    core.execute([AddRequests("batch", (request("a"),))])
    assert drain(core)[0] == [Accepted("batch")]
    assert_at_rest(core)


def test_who_waits_for_a_grammar_waits_in_the_queue():
    tokenizer = HeldTokenizer()
    core = scripted_engine("[]", tokenizer=tokenizer, max_num_seqs=3, max_num_waiting=2).core
    commands = [AddRequests(f"r{index}", (request(f"r{index}"),)) for index in range(50)]
    at_once = core.execute(commands)
    assert [(type(answer), answer.queue_full) for answer in at_once] == [(Refused, True)] * 45
    assert (core.queue_room, core.stats().num_waiting) == (0, 5)
    (refused,) = core.execute([AddRequests("free", (request("free", None),))])
    assert refused.queue_full
    core.execute([AbortRequest("r0")])
    assert core.execute([AddRequests("free", (request("free", None),))]) == (Accepted("free"),)
    tokenizer.may_compile.set()
    answers, texts, _ = drain(core)
    assert {*answers} == {Accepted(f"r{index}") for index in range(1, 5)}, "nobody is refused later"
    assert set(texts) == {"free", "r1", "r2", "r3", "r4"}
    assert_at_rest(core)


@pytest.fixture
def compiling_threads(monkeypatch):
    """The threads that compiled a grammar; the compiler forgets all but the last one."""
    monkeypatch.setattr(grammar_compiler, "_CACHE_BYTES", 0)
    threads = []
    compile_schema = GrammarCompiler.compile

    def compile_here(self, json_schema):
        if self.get(json_schema) is None:
            threads.append(threading.current_thread())
        return compile_schema(self, json_schema)

    monkeypatch.setattr(GrammarCompiler, "compile", compile_here)
    return threads


def test_no_step_compiles_a_grammar_that_was_forgotten_meanwhile(compiling_threads):
    core = scripted_engine("[]").core
    schemas = [{"type": "array", "maxItems": most} for most in range(3)]
    requests = tuple(request(f"r{index}", schema) for index, schema in enumerate(schemas))
    core.execute([AddRequests("all", requests)])
    answers, texts, _ = drain(core)
    assert answers == [Accepted("all")]
    assert set(texts.values()) == {b"[]"}
    assert len(compiling_threads) == len(schemas)
    assert threading.current_thread() not in compiling_threads


@pytest.mark.parametrize("error", [MemoryError("no luck"), ValueError("bad token")], ids=["memory", "value"])
def test_whatever_keeps_a_grammar_from_being_compiled_refuses_its_batch_alone(error):
    tokenizer = HeldTokenizer()
    core = scripted_engine("[]", tokenizer=tokenizer).core
    tokenizer.error = error
    tokenizer.may_compile.set()
    core.execute([AddRequests("bad", (request("bad"),)), AddRequests("other", (request("other", None),))])
    (refused,), texts, ends = drain(core)
    assert (refused.batch_id, refused.param, refused.queue_full) == ("bad", "json_schema", False)
    assert refused.message == f"json_schema cannot be followed: {type(error).__name__}: {error}"
    assert (texts, ends) == ({"other": b"[]"}, {"other": FinishReason.STOP})
    tokenizer.error = None
    core.execute([AddRequests("again", (request("again", {"type": "array"}),))])
    assert drain(core)[0] == [Accepted("again")]
    assert_at_rest(core)


def test_a_grammar_that_cannot_be_started_refuses_its_batch_alone(monkeypatch):
    def fail(self, grammar):
        raise MemoryError("no luck")

    built = scripted_engine("[]")
    built.grammars.compile(json.dumps(POINT))
    monkeypatch.setattr(GrammarState, "__init__", fail)
    at_once = built.core.execute([AddRequests("known", (request("known"),))])
    built.core.execute([AddRequests("new", (request("new", {"type": "array"}),))])
    for answer in (*at_once, *drain(built.core)[0]):
        assert answer.message == "json_schema cannot be followed: MemoryError: no luck"
    assert_at_rest(built.core)


def scripted_engine(script, run_ahead=False, tokenizer=None, **settings):
    """An engine whose model wants to say `script`."""
    return assemble_engine(
        EngineConfig(
            **{"num_blocks": 50, "block_size": 4, "max_num_seqs": 8, "run_ahead": run_ahead, **settings}
        ),
        ScriptedModel([*script.encode(), IM_END], prompt_length=len(PROMPT)),
        tokenizer or byte_level_tokenizer(),
        scripted_config(),
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


@both_modes
def test_what_the_model_wants_to_say_is_kept_where_it_is_allowed(run_ahead):
    llm = LLM.from_engine(scripted_engine('{"x": 17, "y": "two"}', run_ahead))
    params = SamplingParams(temperature=0, max_tokens=40, json_schema=POINT, n=2)
    for choice in llm.generate([PROMPT], params, use_tqdm=False)[0].outputs:
        assert (choice.text, choice.finish_reason) == ('{"x": 17, "y": "two"}', "stop")


@both_modes
@pytest.mark.parametrize("fault", ["fill_next_token_bitmask", "accept_token"])
def test_a_grammar_that_fails_ends_its_own_request(run_ahead, fault):
    built = scripted_engine('{"x": 17, "y": "two"}', run_ahead)
    core = built.core
    built.grammars.compile(json.dumps(POINT))
    core.execute([AddRequests("bad", (request("bad"),)), AddRequests("good", (request("good"),))])
    first = {output.request_id: bytes(output.token_ids) for output in core.step()}

    class Broken:
        def __getattr__(self, name):
            if name == fault:
                raise MemoryError("no luck")
            return lambda *args: True

    core._runner._sampler._grammars["bad"]._matcher = Broken()
    _, texts, ends = drain(core)
    assert ends["bad"] == "the grammar of the output failed: MemoryError: no luck"
    assert ends["good"] is FinishReason.STOP
    assert json.loads(first.get("good", b"") + texts["good"]) == {"x": 17, "y": "two"}
    assert_at_rest(core)


NOTHING = {"anyOf": [{"$ref": "#/$defs/nothing"}]}
UNSAYABLE = {"type": "string", "pattern": "^[\\b]$"}  # no token may have this character
DEAD_ENDS = {
    "in a property": ('{"a":', {"properties": {"a": NOTHING}, "required": ["a"]}),
    "in a property that could be left out": ('{"a":', {"properties": {"a": NOTHING}}),
    "in an item": ('{"a":[', {"properties": {"a": {"type": "array", "items": NOTHING, "minItems": 1}}}),
    "in a string": ('{"a":"', {"properties": {"a": UNSAYABLE}}),
}


def dead_end(name):
    """What leads there, and the schema."""
    script, schema = DEAD_ENDS[name]
    return script, {"type": "object", **schema, "$defs": {"nothing": NOTHING}}


@both_modes
@pytest.mark.parametrize(
    ("name", "max_tokens"), [*((name, 40) for name in DEAD_ENDS), ("in a string", len('{"a":"') + 1)]
)
def test_an_output_that_comes_to_where_nothing_satisfies_its_schema_ends_there_and_blames_it(
    run_ahead, name, max_tokens, caplog
):
    script, schema = dead_end(name)
    core = scripted_engine(script, run_ahead).core
    dead = request("dead", schema, max_tokens=max_tokens, temperature=0.0, logprobs=0)
    core.execute([AddRequests("dead", (dead,)), AddRequests("free", (request("free", None),))])
    outputs = []
    while core.has_work:
        outputs += core.step()
    *begin, end = [output for output in outputs if output.request_id == "dead"]
    assert (end.finish_reason, end.error_param, end.token_ids) == (FinishReason.ERROR, "json_schema", ())
    assert "nothing satisfies it" in end.error
    # White space is free, but not without end.
    assert bytes(token_id for output in begin for token_id in output.token_ids).decode().rstrip() == script
    assert all(len(output.logprobs) == len(output.token_ids) for output in begin)
    assert outputs[-1].finish_reason is not None
    assert not caplog.records
    assert core._runner.grammar_errors() == {}
    assert_at_rest(core)
    core.execute([AddRequests("free", (request("free", None, temperature=0.0),))])
    _, texts, ends = drain(core)
    assert (texts["free"], ends["free"]) == (script.encode(), FinishReason.STOP)


def test_llm_blames_the_schema_that_nothing_satisfies_where_the_output_has_come_to():
    script, schema = dead_end("in a property")
    llm = LLM.from_engine(scripted_engine(script))
    params = SamplingParams(temperature=0, max_tokens=40, n=3, json_schema=schema, strict_schema=False)
    with pytest.raises(InvalidParameter, match="nothing satisfies it") as refusal:
        llm.generate([PROMPT], params, use_tqdm=False)
    assert refusal.value.param == "json_schema"
    stats = llm.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)


def test_not_a_number_fails_the_request_that_has_a_grammar():
    built = scripted_engine("{", run_ahead=False)
    built.core._runner._model.compute_logits = lambda hidden: torch.full((len(hidden), 258), torch.nan)
    with pytest.raises(RequestFailed, match="does not follow it"):
        LLM.from_engine(built).generate([PROMPT], SamplingParams(json_object=True), use_tqdm=False)


def test_llm_refuses_a_wrong_schema_before_anything_runs():
    llm = LLM.from_engine(scripted_engine("{}", run_ahead=False))
    params = [SamplingParams(), SamplingParams(json_schema='{"type": "nope"}')]
    with pytest.raises(InvalidParameter, match="nope"):
        llm.generate([PROMPT, PROMPT], params, use_tqdm=False)
    assert llm.stats().num_steps == 0


@pytest.mark.parametrize("fails", [False, True])
def test_llm_hears_of_a_batch_that_waited_for_a_grammar_forgotten_since_it_was_checked(
    fails, compiling_threads, monkeypatch
):
    llm = LLM.from_engine(scripted_engine("[]"))
    params = [
        SamplingParams(temperature=0, json_schema={"type": "array", "maxItems": most}) for most in range(3)
    ]
    compile_schema = GrammarCompiler.compile

    def compile_here(self, json_schema):
        if fails and threading.current_thread() is not threading.main_thread():
            raise MemoryError("no luck")
        return compile_schema(self, json_schema)

    monkeypatch.setattr(GrammarCompiler, "compile", compile_here)
    if fails:
        with pytest.raises(RequestFailed, match="json_schema cannot be followed: MemoryError: no luck"):
            llm.generate([PROMPT] * 3, params, use_tqdm=False)
    else:
        outputs = llm.generate([PROMPT] * 3, params, use_tqdm=False)
        assert [output.outputs[0].text for output in outputs] == ["[]"] * 3
        assert len(compiling_threads) > 3
    stats = llm.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)


def test_a_prompt_can_be_scored_and_logprobs_given_beside_a_grammar():
    llm = LLM.from_engine(scripted_engine("{}", run_ahead=False))
    params = SamplingParams(temperature=0, json_object=True, logprobs=1, prompt_logprobs=0)
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    assert [logprob.text for logprob in output.outputs[0].logprobs] == ["{", "}", "<|im_end|>"]
    assert len(output.prompt_logprobs) == len(PROMPT)


@pytest.mark.slow
def test_a_real_model_writes_json():
    llm = LLM("smollm2", dtype="float32", max_model_len=512, num_blocks=200)
    params = [
        SamplingParams(temperature=0, max_tokens=80, json_schema=POINT),
        SamplingParams(temperature=1.0, seed=3, max_tokens=200, json_schema=POINT, n=4),
        SamplingParams(temperature=0, max_tokens=8),
    ]
    prompt = 'Answer with a point as JSON, like {"x": 5, "y": 1}:\n'
    outputs = llm.generate([prompt] * 3, params, use_tqdm=False)
    for output in outputs[:2]:
        for choice in output.outputs:
            assert choice.finish_reason == "stop"
            point = json.loads(choice.text)
            assert type(point["x"]) is int
            assert point["y"] in [1, "two", None]
