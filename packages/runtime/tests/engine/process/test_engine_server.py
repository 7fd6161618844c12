"""Several clients of one engine: each hears of its own requests, and none suffers from another's end."""

import itertools
import threading
from contextlib import contextmanager

import pytest
import torch
import zmq

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.engine.process.engine_server import EngineServer
from minivllm_runtime.engine.process.wire import FromEngine, ToEngine, decode_output, decode_reason, encode
from minivllm_runtime.messages import (
    AbortRequest,
    Accepted,
    AddRequests,
    AskStats,
    EngineRequest,
    Refused,
)

from ...scripted.byte_level import byte_level_tokenizer
from ...scripted.held_tokenizer import HeldTokenizer
from ...scripted.model import ScriptedModel, scripted_config

PATIENCE_S = 30
"""More than anything takes that a test waits for."""


class Gate(ScriptedModel):
    """Waits before every forward pass until it may go on, or once for a message; fails for ever on request."""

    def __init__(self):
        super().__init__(list(b"some text"), prompt_length=3)
        self.entered = threading.Event()
        self.open = threading.Event()
        self.router = None
        self.waits_for_message = False
        self.broken = False

    def __call__(self, *step):
        self.entered.set()
        assert self.open.wait(PATIENCE_S)
        if self.waits_for_message:
            self.waits_for_message = False
            assert self.router.poll(PATIENCE_S * 1000)
        if self.broken:
            raise RuntimeError("the device is gone")
        return super().__call__(*step)


class Client:
    """A DEALER with some patience."""

    def __init__(self, context, address, *, introduces_itself=True):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, PATIENCE_S * 1000)
        self.socket.connect(address)
        if introduces_itself:
            self.send(ToEngine.HELLO)
        self.outputs_until_described()  # the answer says that the engine knows us

    def send(self, kind, payload=b""):
        self.socket.send_multipart((kind.value, payload))

    def add(self, *request_ids, **changes):
        settings = {"prompt_token_ids": (1, 2, 3), "max_tokens": 5, "temperature": 0.0, **changes}
        requests = tuple(EngineRequest(request_id=each, **settings) for each in request_ids)
        self.send(ToEngine.ADD, encode(AddRequests(request_ids[0], requests)))

    def receive(self):
        kind, payload = self.socket.recv_multipart()
        return decode_reason(payload) if kind == FromEngine.DEATH else decode_output(payload)

    def outputs_until_described(self):
        """What the engine told us before it answers a question of now."""
        self.send(ToEngine.DESCRIBE)
        outputs = []
        while (message := self.socket.recv_multipart())[0] != FromEngine.DESCRIPTION:
            outputs.append(decode_output(message[1]))
        return outputs

    def answer(self):
        """The next answer to an AddRequests, whatever else comes before it."""
        while True:
            output = self.receive()
            if output.answers:
                return output.answers[0]

    def ask_stats(self, name):
        """The numbers of the moment; `name` is of this question alone."""
        self.send(ToEngine.ASK, encode(AskStats(name)))
        while Accepted(name) not in (output := self.receive()).answers:
            pass
        return output.stats

    def token_ids(self, *request_ids):
        """Everything that is generated for these requests, until each has ended."""
        ids, open_requests = {each: [] for each in request_ids}, set(request_ids)
        while open_requests:
            for token in self.receive().tokens:
                ids[token.request_id] += token.token_ids
                if token.finish_reason is not None:
                    open_requests.remove(token.request_id)
        return ids


@contextmanager
def served(tmp_path, tokenizer=None, **settings):
    """A served scripted model: (model, core, a function that connects a client, the server's thread)."""
    model = Gate()
    config = EngineConfig(
        **{"num_blocks": 64, "block_size": 4, "max_num_seqs": 4, "run_ahead": False, **settings}
    )
    built = assemble_engine(
        config,
        model,
        tokenizer or byte_level_tokenizer(),
        scripted_config(),
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    address = f"ipc://{tmp_path}/engine"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(address)
        model.router = socket
        thread = threading.Thread(target=EngineServer(built.core, None, socket).serve)
        thread.start()
        clients = []

        def connect(**options):
            clients.append(Client(context, address, **options))
            return clients[-1]

        try:
            yield model, built.core, connect, thread
        finally:
            model.open.set()
            if thread.is_alive():
                model.broken = True
                connect().add("the last one")
                thread.join(PATIENCE_S)
            for client in clients:
                client.socket.close()


def test_each_client_hears_of_its_own_requests(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        first, second = connect(), connect()
        first.add("a", "b")
        second.add("c")
        model.open.set()
        assert first.answer() == Accepted("a")
        assert second.answer() == Accepted("c")
        text = list(b"some ")
        assert first.token_ids("a", "b") == {"a": text, "b": text}
        assert second.token_ids("c") == {"c": text}


def test_a_client_that_is_gone_loses_its_requests_and_no_other_does(tmp_path):
    with served(tmp_path, max_num_seqs=2) as (model, core, connect, _):
        leaving, staying = connect(), connect()
        leaving.add("running", "waiting 1", "waiting 2", max_tokens=60)
        assert leaving.answer() == Accepted("running")
        staying.add("mine")
        leaving.socket.close()
        model.open.set()
        assert staying.answer() == Accepted("mine")
        assert staying.token_ids("mine") == {"mine": list(b"some ")}
        while (stats := staying.receive().stats).num_running or stats.num_waiting:
            pass
        assert stats.num_blocks_in_use == 0
        assert not core.has_work


def test_a_client_that_was_given_up_hears_of_it_and_the_engine_goes_on(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        model.open.set()
        unknown, other = connect(introduces_itself=False), connect()
        unknown.add("a")
        assert unknown.receive() == "the engine gave this client up: it read nothing"
        other.add("a")
        assert other.token_ids("a") == {"a": list(b"some ")}


def test_a_refused_request_stays_its_owner_s(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        owner, other = connect(), connect()
        owner.add("a")
        assert owner.answer() == Accepted("a")
        assert model.entered.wait(PATIENCE_S)
        model.waits_for_message = True
        other.add("a")
        model.open.set()
        assert isinstance(other.answer(), Refused)
        assert owner.token_ids("a") == {"a": list(b"some ")}


def test_a_request_that_waits_for_its_grammar_is_nobody_s_until_it_is_accepted(tmp_path):
    tokenizer = HeldTokenizer()
    with served(tmp_path, tokenizer) as (model, _, connect, _):
        owner, other = connect(), connect()
        owner.add("a")
        assert owner.answer() == Accepted("a")
        other.add("a", json_schema='{"type": "boolean"}')
        model.open.set()
        assert owner.token_ids("a") == {"a": list(b"some ")}
        tokenizer.may_compile.set()
        assert other.answer() == Accepted("a")
        assert bytes(other.token_ids("a")["a"]) == b"false"


def test_nothing_is_left_of_a_request_that_was_refused_after_its_grammar_was_compiled(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        leaving, staying = connect(), connect()
        leaving.add("a", json_schema='{"type": "nope"}')
        assert isinstance(leaving.answer(), Refused)
        leaving.add("b", max_tokens=100)
        assert leaving.answer() == Accepted("b")
        staying.add("a", max_tokens=80)
        leaving.socket.close()
        model.open.set()
        assert staying.answer() == Accepted("a")
        assert len(staying.token_ids("a")["a"]) == 80


def test_a_client_that_is_gone_loses_what_waits_for_a_grammar(tmp_path):
    tokenizer = HeldTokenizer()
    with served(tmp_path, tokenizer) as (model, core, connect, _):
        leaving, staying = connect(), connect()
        leaving.add("a", "b", json_schema='{"type": "boolean"}')
        leaving.outputs_until_described()
        leaving.socket.close()
        model.open.set()
        # Steps are what a client that is gone is missed by, as soon as the socket knows that it is.
        for name in map(str, itertools.count()):
            staying.add(name, max_tokens=100)
            assert len(staying.token_ids(name)[name]) == 100
            if not staying.ask_stats(f"after {name}").num_waiting:
                break
        assert not core.has_work
        tokenizer.may_compile.set()


def test_who_has_no_news_hears_of_steps_and_not_of_the_passing_of_time(tmp_path):
    tokenizer = HeldTokenizer()
    with served(tmp_path, tokenizer, max_num_batched_tokens=4) as (model, _, connect, _):
        client, watcher = connect(), connect()
        client.add("held", json_schema='{"type": "boolean"}')
        client.outputs_until_described()
        watcher.outputs_until_described()
        for _ in range(5):  # each is answered between two passes of the loop
            client.outputs_until_described()
        assert watcher.outputs_until_described() == []
        model.open.set()
        client.add("a", max_tokens=100)
        client.token_ids("a")
        told = [output.stats.num_steps for output in watcher.outputs_until_described()]
        assert told == [64]
        tokenizer.may_compile.set()


@pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])
@pytest.mark.parametrize("max_tokens", [1, 5])
def test_how_long_a_request_waited_is_told_once_to_anybody(tmp_path, run_ahead, max_tokens):
    settings = {"run_ahead": run_ahead, "max_num_seqs": 2, "max_num_batched_tokens": 2}
    with served(tmp_path, **settings) as (model, _, connect, _):
        clients = [connect() for _ in range(2)]
        for number, client in enumerate(clients):
            client.add(f"{number} a", max_tokens=max_tokens)
            client.add(f"{number} b", max_tokens=max_tokens)
        model.open.set()
        queue_times_s = []
        for client in clients:
            ended = 0
            while ended < 2:
                output = client.receive()
                queue_times_s += output.queue_times_s
                ended += sum(token.finish_reason is not None for token in output.tokens)
        for client in clients:
            for output in client.outputs_until_described():
                queue_times_s += output.queue_times_s
        assert len(queue_times_s) == 4
        assert min(queue_times_s) >= 0


def test_how_long_a_request_waited_is_told_even_if_it_was_aborted_before_its_first_token(tmp_path):
    with served(tmp_path, max_num_batched_tokens=4, max_num_seqs=2) as (model, _, connect, _):
        client = connect()
        client.add("a", prompt_token_ids=(1,) * 100)
        assert client.answer() == Accepted("a")
        assert model.entered.wait(PATIENCE_S)
        client.send(ToEngine.ABORT, encode(AbortRequest("a")))
        model.open.set()
        queue_times_s = []
        while not queue_times_s:
            queue_times_s += client.receive().queue_times_s
        assert len(queue_times_s) == 1


def test_an_abort_ends_a_request_and_everybody_hears_that_the_engine_rests(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        client, watcher = connect(), connect()
        client.add("a", max_tokens=60)
        assert client.answer() == Accepted("a")
        assert model.entered.wait(PATIENCE_S)
        client.send(ToEngine.ABORT, encode(AbortRequest("a")))
        client.send(ToEngine.ABORT, encode(AbortRequest("never heard of")))
        model.open.set()
        for each in (client, watcher):
            while (stats := each.receive().stats).num_running or not stats.num_steps:
                pass
            assert stats.num_blocks_in_use == 0


def test_a_grammar_is_compiled_while_others_are_served(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        model.open.set()
        first, second = connect(), connect()
        for schema in ('{"type": "nope"}', '{"type": "boolean"}'):
            request = EngineRequest(
                request_id=schema,
                prompt_token_ids=(1, 2, 3),
                max_tokens=5,
                temperature=0.0,
                json_schema=schema,
            )
            first.send(ToEngine.ADD, encode(AddRequests(schema, (request,))))
        second.add("a")
        assert second.token_ids("a") == {"a": list(b"some ")}
        answers, text, is_finished = {}, b"", False
        while not (is_finished and len(answers) == 2):
            output = first.receive()
            answers |= {answer.batch_id: answer for answer in output.answers}
            for token in output.tokens:
                text += bytes(token.token_ids)
                is_finished = token.finish_reason is not None
        assert answers['{"type": "nope"}'].param == "json_schema"
        assert answers['{"type": "boolean"}'] == Accepted('{"type": "boolean"}')
        assert text == b"false"  # the lowest ids that are allowed


@pytest.mark.parametrize("max_tokens", [10**6])
def test_refusals_are_answered(tmp_path, max_tokens):
    with served(tmp_path) as (_, _, connect, _):
        client = connect()
        client.add("a", max_tokens=max_tokens)
        assert isinstance(client.answer(), Refused)
        client.add("b", "b")
        assert isinstance(client.answer(), Refused)


def test_everybody_hears_why_the_engine_died(tmp_path):
    with served(tmp_path) as (model, _, connect, thread):
        first, second = connect(), connect()
        first.add("a")
        assert first.answer() == Accepted("a")
        model.broken = True
        model.open.set()
        for client in (first, second):
            while not isinstance(message := client.receive(), str):
                pass
            assert message == "RuntimeError: the device is gone"
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_who_has_no_requests_is_told_the_numbers_of_the_moment_when_asking(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        model.open.set()
        worker, watcher = connect(), connect()
        worker.add("a", max_tokens=30)
        while not (output := worker.receive()).tokens:
            pass
        assert watcher.ask_stats("now").num_steps >= output.stats.num_steps > 0
        assert watcher.ask_stats("again").num_steps >= output.stats.num_steps
        worker.token_ids("a")
