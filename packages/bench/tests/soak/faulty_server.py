"""An HTTP server on a real socket that answers completions and chats rightly, or with one fault of a list.

A program too.
"""

import json
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

ERROR = {"error": {"message": "no", "type": "t", "param": None, "code": None}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        fault = self.server.fault
        if self.path == "/health":
            self._answer(503 if fault == "unhealthy" else 200, {"status": "ok"})
        elif self.path == "/v1/models":
            self._answer(200, {"data": [{"id": "faulty"}]})
        elif self.path == "/metrics" and fault != "no metrics":
            self._answer_metrics(fault)
        else:
            self._answer(405 if self.path == "/v1/completions" else 404, ERROR)

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.bodies.append(data)
            self.number = len(self.server.bodies)
        if self.server.sign is not None:
            self.server.sign.touch()
        fault = self.server.fault
        status = self._status_of(data)
        if fault == "bad bodies welcome" or status == 200:
            body = json.loads(data) if status == 200 else {"prompt": [], "max_tokens": 0}
            body["prompt"] = self._prompt_of(body)
            self._complete(body, fault)
        elif fault == "no envelope":
            self._answer(status, {"detail": "no"})
        elif fault == "no message":
            self._answer(status, {"error": {"message": ""}})
        else:
            self._answer(status, ERROR)

    def _status_of(self, data):
        """A check that knows nothing but the list of bad requests."""
        try:
            body = json.loads(data, parse_constant=lambda _name: 1 / 0)
            body["prompt"] = [int(i) for i in self._prompt_of(body)]
            if body.get("model") == "no-such-model":
                return 404
            known = 0 <= min(body["prompt"]) <= max(body["prompt"]) < 2**32 and 0 < body["max_tokens"] < 2**32
            sane = body.get("temperature", 0) <= 2 and (body.get("n") or 1) <= 128
            return 200 if known and sane and (body.get("stream") or not body.get("stream_options")) else 400
        except (ValueError, TypeError, KeyError, ZeroDivisionError, UnicodeDecodeError):
            return 400

    def _prompt_of(self, body):
        return (
            [int(word) for word in body["messages"][0]["content"].split()]
            if self._is_chat
            else body["prompt"]
        )

    @property
    def _is_chat(self):
        return self.path == "/v1/chat/completions"

    def _choice(self, index, text, reason, *, kind, logprobs):
        choice = {"index": index, "finish_reason": reason}
        if self._is_chat:
            return choice | {kind: {"content": text}}
        return choice | {"text": text, "logprobs": {"token_logprobs": logprobs} if logprobs else None}

    def _complete(self, body, fault):
        n = body.get("n") or 1
        if fault in {"busy", "busy for ever"}:
            self._answer(503, ERROR, {} if fault == "busy for ever" else {"Retry-After": "1"})
            return
        if fault == "broken":
            self._answer(500, ERROR)
            return
        if fault == "silent":
            self.rfile.read(1)  # until the client hangs up
            return
        if fault == "hangs up":
            return
        text = f"<{sum(body['prompt'])}:{body['max_tokens']}>"
        if fault == "changed":
            text += str(self.number)
        texts = [text] * n
        if fault == "crossed choices":
            texts[-1] += "?"
        tokens = body["max_tokens"] * n + (fault == "miscounted")
        usage = {
            "prompt_tokens": len(body["prompt"]) + (fault == "prompt miscounted"),
            "completion_tokens": tokens,
        }
        if body.get("stream"):
            self._stream(texts, usage, fault, logprobs=bool(body.get("logprobs")))
        else:
            reason = "abort" if fault == "odd reason" else "length"
            logprobs = [-1.0] * body["max_tokens"] if body.get("logprobs") else None
            choices = [
                self._choice(i, each, reason, kind="message", logprobs=logprobs)
                for i, each in enumerate(texts)
            ]
            self._answer(200, {"choices": choices[(fault == "lost choice") :], "usage": usage})

    def _stream(self, texts, usage, fault, *, logprobs):
        chunks = []
        num_tokens = usage["completion_tokens"] // len(texts)
        for index, text in enumerate(texts):
            for part, reason, num in ((text[:2], None, 1), (text[2:], "length", num_tokens - 1)):
                values = [-1.0] * (num - (fault == "lost logprob")) if logprobs else None
                choice = self._choice(index, part, reason, kind="delta", logprobs=values)
                chunks.append({"choices": [choice], "usage": None})
        if fault == "goes on":
            chunks.append(chunks[-1])
        if fault == "lost choice":
            del chunks[:2]
        if fault == "odd reason":
            chunks[-1]["choices"][0]["finish_reason"] = None
        if fault != "no usage":
            chunks.append({"choices": [], "usage": usage})
        for number, chunk in enumerate(chunks):
            chunk["id"] = f"cmpl-{number if fault == 'crossed chunks' else 0}"
        events = [json.dumps(chunk) for chunk in chunks]
        if fault == "cut":
            events.append(json.dumps(ERROR))
        elif fault != "no done":
            events.append("[DONE]")
        body = "".join(f"data: {event}\n\n" for event in events).encode()
        self._answer(200, body, {"Content-Type": "text/event-stream"})

    def _answer_metrics(self, fault):
        running = 1 if fault == "restless" else 0
        self.server.num_looks += 1
        steps = -self.server.num_looks if fault == "falling" else self.server.num_looks
        page = (
            "# HELP minivllm:num_requests_running Requests.\n"
            f'minivllm:num_requests_running{{model_name="m"}} {running}.0\n'
            'minivllm:num_requests_waiting{model_name="m"} 0.0\n'
            'minivllm:kv_cache_usage_perc{model_name="m"} 0.0\n'
            f"minivllm:engine_steps_total {steps}.0\n"
        )
        self._answer(200, page.encode())

    def _answer(self, status, content, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        request_id = self.headers["x-request-id"]
        if request_id is not None:
            self.send_header(
                "x-request-id", "soak-of-another" if self.server.fault == "crossed ids" else request_id
            )
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(data), 64):
            self.wfile.write(data[start : start + 64])
            self.wfile.flush()


class FaultyServer(socketserver.ThreadingTCPServer):
    """Answers in threads until it is closed.

    Attributes:
        fault: What it does wrong; None: nothing.
        bodies: Of the POST requests.
        sign: A file that is made at the first POST request.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.fault = None
        self.bodies = []
        self.sign = None
        self.num_looks = 0
        self.lock = threading.Lock()

    def handle_error(self, _request, _client_address):
        """Clients that hang up are what this is for."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


if __name__ == "__main__":
    server = FaultyServer(int(sys.argv[1]))
    server.fault = sys.argv[2] if len(sys.argv) > 2 else None
    server.sign = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    print(server.fault or "all is well", flush=True)
    server.serve_forever()
