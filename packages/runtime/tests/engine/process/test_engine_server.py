"""Several clients of one engine: each hears of its own requests, and none suffers from another's end."""

import threading
from contextlib import contextmanager

import pytest
import torch
import zmq

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.engine.messages import AbortRequest, Accepted, AddRequests, EngineRequest, Refused
from minivllm_runtime.engine.process.engine_server import EngineServer
from minivllm_runtime.engine.process.wire import FromEngine, ToEngine, decode_output, decode_reason, encode

from ...scripted.byte_level import byte_level_tokenizer
from ...scripted.model import ScriptedModel, scripted_config


class Gate(ScriptedModel):
    """Waits before every forward pass until it may go on; fails for ever on request."""

    def __init__(self):
        super().__init__(list(b"some text"), prompt_length=3)
        self.entered = threading.Event()
        self.open = threading.Event()
        self.broken = False

    def __call__(self, *step):
        self.entered.set()
        assert self.open.wait(10)
        if self.broken:
            raise RuntimeError("the device is gone")
        return super().__call__(*step)


class Client:
    """A DEALER with a patience of ten seconds."""

    def __init__(self, context, address, *, introduces_itself=True):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self.socket.connect(address)
        if introduces_itself:
            self.send(ToEngine.HELLO)
        self.send(ToEngine.DESCRIBE)  # the answer says that the engine knows us
        while self.socket.recv_multipart()[0] != FromEngine.DESCRIPTION:
            pass

    def send(self, kind, payload=b""):
        self.socket.send_multipart((kind.value, payload))

    def add(self, *request_ids, max_tokens=5):
        requests = tuple(
            EngineRequest(request_id=each, prompt_token_ids=(1, 2, 3), max_tokens=max_tokens, temperature=0.0)
            for each in request_ids
        )
        self.send(ToEngine.ADD, encode(AddRequests(request_ids[0], requests)))

    def receive(self):
        kind, payload = self.socket.recv_multipart()
        return decode_reason(payload) if kind == FromEngine.DEATH else decode_output(payload)

    def answer(self):
        """The next answer to an AddRequests, whatever else comes before it."""
        while True:
            output = self.receive()
            if output.answers:
                return output.answers[0]

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
def served(tmp_path, **settings):
    """A served scripted model: (model, core, a function that connects a client, the server's thread)."""
    model = Gate()
    config = EngineConfig(
        **{"num_blocks": 64, "block_size": 4, "max_num_seqs": 4, "run_ahead": False, **settings}
    )
    built = assemble_engine(
        config,
        model,
        byte_level_tokenizer(),
        scripted_config(),
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    address = f"ipc://{tmp_path}/engine"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(address)
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
                thread.join(10)
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
        other.add("a")
        model.open.set()
        assert isinstance(other.answer(), Refused)
        assert owner.token_ids("a") == {"a": list(b"some ")}


def test_an_abort_ends_a_request_and_everybody_hears_that_the_engine_rests(tmp_path):
    with served(tmp_path) as (model, _, connect, _):
        client, watcher = connect(), connect()
        client.add("a", max_tokens=60)
        assert client.answer() == Accepted("a")
        assert model.entered.wait(10)
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
        thread.join(10)
        assert not thread.is_alive()
