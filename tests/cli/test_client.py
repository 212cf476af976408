import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from autoplan.cli.children import running_verb
from autoplan.cli.client import Client
from autoplan.errors import RunError

REQUEST = {"model": "gpt2", "cluster": "cpu:1x2", "workload": {"global_batch": 2, "seq_len": 64}}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    arguments = ["serve", "--port", "0", "--json", "--database", f"sqlite:///{folder}/plans.db"]
    with running_verb(arguments, log=folder / "log") as service:
        yield Client(json.loads(service.stdout.readline())["url"])


def test_a_plan_is_fetched(client):
    assert client.plan(REQUEST)["workload"]["global_batch"] == 2


def test_what_the_service_refuses_is_passed_on(client):
    with pytest.raises(RunError, match=r"POST /plan: 4\d\d .*no-such-model"):
        client.plan({**REQUEST, "model": "no-such-model"})


def test_a_service_that_is_not_there():
    with pytest.raises(RunError, match="the service does not answer"):
        Client("http://127.0.0.1:9").plan(REQUEST)


@pytest.mark.parametrize(("last", "outcome"), [("done", "plan"), ("failed", "error")])
def test_a_job_is_asked_until_it_ends(last, outcome):
    with _service_with_a_job(last) as url:
        if outcome == "plan":
            assert Client(url).plan(REQUEST) == {"schema": "autoplan.plan/1"}
        else:
            with pytest.raises(RunError, match="job 7 is failed"):
                Client(url).plan(REQUEST)


class _service_with_a_job:  # noqa: N801 -- reads as the context manager that it is
    """A service whose search takes two polls: what no real search can be made to do reliably."""

    def __init__(self, last: str) -> None:
        states = iter(["running", "running", last])

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(202, self._job())

            def do_GET(self):
                self._answer(200, {"schema": "autoplan.plan/1"} if self.path == "/plans/1" else self._job())

            def _job(self):
                return {"id": "7", "state": next(states), "links": {"self": "/jobs/7", "plan": "/plans/1"}}

            def _answer(self, status, answer):
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_exception):
        self._server.shutdown()
        self._server.server_close()
