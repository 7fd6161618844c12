"""An HTTP server on a real socket that streams completions by a script. Run as a program, it takes its port."""

import json
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler


class Script:
    """What the server does next; requests are kept, in the order in which they came.

    Attributes:
        piece_bytes: The stream is written in pieces of so many bytes; None: an event at a time.
        tokens: Tokens that usage claims; None: those asked for.
        cut_after: The connection is dropped after so many chunks; None: never.
        error_after: An error event takes the place of this chunk; None: never.
        refuse_every: Every so-manieth completion is answered with 503; 0: none.
        is_silent: No completion is answered at all.
        meeting: Completions are answered when so many are there as meet here; None: each for itself.
        most_waiting: Most completions that had to be answered at once.
    """

    def __init__(self):
        self.piece_bytes = None
        self.tokens = None
        self.cut_after = None
        self.error_after = None
        self.refuse_every = 0
        self.has_usage = True
        self.has_done = True
        self.is_silent = False
        self.meeting = None
        self.lock = threading.Lock()
        self.num_waiting = 0
        self.most_waiting = 0
        self.requests = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        if self.path == "/v1/models":
            self._answer(200, {"data": [{"id": "scripted"}]})
        else:
            self._answer(200 if self.path == "/health" else 404, {"status": "ok"})

    def do_POST(self):
        script = self.server.script
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with script.lock:
            script.requests.append((body, dict(self.headers)))
            number = len(script.requests)
            script.num_waiting += 1
            script.most_waiting = max(script.most_waiting, script.num_waiting)
        if script.meeting is not None:
            script.meeting.wait(30)
        with script.lock:  # before the client can send the next one
            script.num_waiting -= 1
        if script.is_silent:
            self.rfile.read(1)  # until the client hangs up
        elif script.refuse_every and number % script.refuse_every == 0:
            self._answer(503, {"error": {"message": "full"}})
        else:
            self._stream(script, body)

    def _answer(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, script, body):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index in range(body["max_tokens"]):
            if index == script.cut_after:
                self.close_connection = True
                return
            if index == script.error_after:
                self._write({"error": {"message": "broken"}})
                self._write_raw(b"0\r\n\r\n")
                return
            self._write({"choices": [{"index": 0, "text": "é\u2028x"}], "usage": None})
        if script.has_usage:
            tokens = body["max_tokens"] if script.tokens is None else script.tokens
            self._write({"choices": [], "usage": {"completion_tokens": tokens}})
        if script.has_done:
            self._write("[DONE]")
        self._write_raw(b"0\r\n\r\n")

    def _write(self, content):
        data = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        event = b"data: " + data.encode() + b"\n\n"
        size = self.server.script.piece_bytes or len(event)
        for start in range(0, len(event), size):
            piece = event[start : start + size]
            self._write_raw(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _write_raw(self, data):
        self.wfile.write(data)
        self.wfile.flush()


class ScriptedServer(socketserver.ThreadingTCPServer):
    """Answers in threads until it is closed."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.script = Script()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


if __name__ == "__main__":
    ScriptedServer(int(sys.argv[1])).serve_forever()
