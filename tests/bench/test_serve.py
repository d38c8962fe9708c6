"""The benchmark of the service: its clients against a server of known behaviour, its tables, a run of it."""

import json
import socket
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

import serve
from serving.answers import Asked, Case, compare, is_equal
from serving.clients import Exchange, closed_loop, get, open_loop, poisson, post, quantile
from serving.figures import Figure, Section
from serving.models import MEAN_WORDS, random_texts
from serving.service import gauge

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "serving.md"


@contextmanager
def server(answer):
    """A server; ``answer(request, number)`` returns the parts of an answer, or None to cut the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    counted, stop, lock = Counter(), threading.Event(), threading.Lock()

    def talk(own):
        with own:
            received = b""
            own.settimeout(0.05)
            while not stop.is_set():
                try:
                    data = own.recv(65536)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not data:
                    return
                received += data
                head, found, body = received.partition(b"\r\n\r\n")
                length = int(head.rpartition(b"content-length: ")[2]) if b"content-length" in head else 0
                if not found or len(body) < length:
                    continue
                with lock:
                    number = counted["requests"]
                    counted["requests"] += 1
                parts = answer(body or head, number)
                if parts is None:
                    return
                for part in parts:
                    own.sendall(part)
                received = b""

    def accept():
        while not stop.is_set():
            try:
                own, _ = listener.accept()
            except TimeoutError:
                continue
            counted["connections"] += 1
            thread = threading.Thread(target=talk, args=(own,))
            threads.append(thread)
            thread.start()

    threads = []
    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1], counted
    finally:
        stop.set()
        accepting.join()
        for thread in threads:
            thread.join()
        listener.close()


def plain(body, status=200):
    return [f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body]


def echo(body, number):
    return plain(json.dumps({"predictions": json.loads(body)["inputs"]}).encode())


def test_every_client_gets_its_own_answer_by_connections_that_stay_open():
    requests = [post("a", "predict", {"inputs": [n, "ä" * n]}) for n in range(50)]
    with server(echo) as (port, counted):
        done = closed_loop(port, requests, 4)
    assert sorted(e.number for e in done) == [*range(50)]
    for exchange in done:
        assert exchange.status == 200
        assert exchange.predictions() == [exchange.number, "ä" * exchange.number]
        assert exchange.due <= exchange.sent <= exchange.first <= exchange.done
    assert counted == {"requests": 50, "connections": 4}


def test_a_stream_is_read_however_it_is_cut():
    texts = ["a", " b\r\n0\r\n\r\n"]
    events = [f"event: piece\ndata: {json.dumps({'text': text})}\n\n" for text in texts]
    events.append(f"event: end\ndata: {json.dumps({'output': ''.join(texts)})}\n\n")
    chunks = [f"{len(event.encode()):x}\r\n{event}\r\n".encode() for event in events]
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"

    def answer(body, number):
        step = number + 1
        return [whole[i : i + step] for i in range(0, len(whole), step)]

    with server(answer) as (port, _):
        done = closed_loop(port, [post("a", "stream", {})] * 40, 3)
    assert [e.status for e in done] == [200] * 40
    assert {e.pieces for e in done} == {2}
    assert {e.body for e in done} == {"".join(events).encode()}
    assert done[0].predictions() == [{"output": "a b\r\n0\r\n\r\n"}]


@pytest.mark.parametrize("event", ["error", "piece"])
def test_a_stream_that_does_not_end_well_is_no_answer(event):
    body = f'event: {event}\ndata: {{"text": "a", "output": "a"}}\n\n'.encode()
    with pytest.raises(ValueError, match="not a whole stream"):
        Exchange(0, 0.0, body=body).predictions()


def test_what_is_refused_is_sent_again():
    refuse = lambda body, number: plain(b"no", 429) if number % 3 == 0 else echo(body, number)  # noqa: E731
    requests = [post("a", "predict", {"inputs": [n]}) for n in range(20)]
    with server(refuse) as (port, counted):
        done = closed_loop(port, requests, 3)
    assert sorted(e.predictions()[0] for e in done) == [*range(20)]
    assert sum(e.refusals for e in done) == counted["requests"] - 20 > 0
    with server(refuse) as (port, _):
        statuses = Counter(e.status for e in closed_loop(port, requests, 3, tries_again=False))
    assert statuses == {200: 13, 429: 7}


def test_a_lost_connection_is_noted_and_replaced():
    cut = lambda body, number: None if number == 5 else echo(body, number)  # noqa: E731
    with server(cut) as (port, counted):
        done = closed_loop(port, [post("a", "predict", {"inputs": [n]}) for n in range(12)], 2)
    assert Counter(e.status for e in done) == {200: 11, 0: 1}
    assert counted["connections"] == 3


def test_an_open_loop_does_not_wait_for_answers():
    times = poisson(400, 0.25)
    pause = threading.Event()

    def slow(body, number):
        pause.wait(0.2)
        return echo(body, number)

    with server(slow) as (port, counted):
        requests = [post("a", "predict", {"inputs": [n]}) for n in range(len(times))]
        done = open_loop(port, requests, times, most=60)
    assert sorted(e.predictions()[0] for e in done) == [*range(len(times))]
    assert 10 < counted["connections"] <= 60
    assert all(e.sent >= e.due for e in done)


def test_arrivals_have_their_rate():
    times = poisson(100, 50)
    assert times == sorted(times)
    assert 4600 < len(times) < 5400
    assert times[-1] < 50


def test_quantiles():
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(100), 0.99) == 99
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([], 0.5) != quantile([], 0.5)


def test_texts_have_the_lengths_that_the_page_says():
    lengths = [len(text.split()) for text in random_texts(3000)]
    assert (min(lengths), max(lengths)) == (4, 32)
    assert abs(sum(lengths) / len(lengths) - MEAN_WORDS) < 0.5


def test_a_number_of_the_metrics():
    text = b'x{run="ab"} 1.0\nx{run="a"} 2.5\nmore_x{run="a"} 3.0\n'
    assert (gauge(text, "x", "a"), gauge(text, "x", "b")) == (2.5, 0.0)


def test_differences_are_seen():
    one = {"output": "a", "scores": [1.0, 2.0]}
    assert is_equal(one, dict(one), 0.0)
    assert not is_equal({"scores": [1.0, 2.0], "output": "a"}, one, 0.0)
    near = {"output": "a", "scores": [1.0, 2.0 + 1e-7]}
    assert not is_equal(near, one, 0.0)
    assert is_equal(near, one, 1e-5)
    assert not is_equal({**near, "output": "b"}, one, 1e-5)
    assert not is_equal({"output": "a"}, one, 1e-5)


def test_lost_doubled_and_exchanged_answers_are_counted():
    asked = [Asked(Case("tiny"), [{"source": "a", "id": n}], streamed=False) for n in range(4)]
    wanted = {n: {"input": {"source": "a", "id": n}, "output": "x"} for n in range(4)}

    def answered(number, *predictions, status=200):
        body = json.dumps({"predictions": predictions}).encode()
        return Exchange(number, 0.0, status=status, body=body)

    right = [answered(n, wanted[n]) for n in range(4)]
    assert not any(compare(asked, right, wanted).values())
    wrong = [
        answered(0, wanted[1]),
        answered(1, wanted[1]),
        answered(2, {**wanted[2], "output": "y"}),
        answered(3, status=500),
    ]
    found = compare(asked, wrong, wanted)
    assert found == {"failed": 1, "different": 1, "others": 1, "lost": 2, "doubled": 1, "streamed": 0}


def test_a_figure_has_its_median_range_and_aim():
    assert Figure("x", [3.0, 1.0, 2.0], "ms", at_most=2.5).cells() == ["x", "2 ms", "1–3", "≤ 2.5"]
    assert Figure("x", [0.5], at_least=0.85).cells() == ["x", "0.5", "", "≥ 0.85: **missed**"]
    assert Figure("x", [float("nan")], at_most=1.0).is_met is False
    section = Section("A", ["Note."])
    section.add("x", float("nan"), "s")
    assert json.loads(json.dumps(section.as_dict(), allow_nan=False))["figures"][0]["values"] == [None]
    assert section.markdown().startswith("Note.\n\n|")


def test_the_page_has_a_place_for_each_measurement():
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- measured: ") == page.count(serve.END) == len(serve.MEASUREMENTS)
    once = page
    for name in serve.MEASUREMENTS:
        once = serve.placed(once, name, f"table \\1 of {name}")
    for name in serve.MEASUREMENTS:
        assert f"{serve.begin(name)}\n\ntable \\1 of {name}\n\n{serve.END}" in once
    assert serve.placed(once, "cost", "other").count("table \\1 of") == len(serve.MEASUREMENTS) - 1
    with pytest.raises(ValueError, match="no line"):
        serve.placed("", "cost", "x")


def test_requests_are_as_http_wants_them():
    head, _, body = post("a", "predict", {"inputs": ["ä"]}).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/runs/a/predict HTTP/1.1\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert get("/metrics").endswith(b"\r\n\r\n")


def measured(tmp_path, capsys, *names):
    page, record = tmp_path / "page.md", tmp_path / "found.json"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert serve.main([*names, "--quick", "--write", str(page), "--json", str(record)]) == 0
    found = json.loads(record.read_text(encoding="utf-8"))
    assert str(tmp_path) not in page.read_text(encoding="utf-8") + record.read_text(encoding="utf-8")
    shown, titles = capsys.readouterr().out, [part["title"] for part in found["results"].values()]
    assert all(f"## {title}\n" in shown for title in titles)
    return found["results"], page.read_text(encoding="utf-8")


def values(section):
    return {figure["what"]: figure["values"] for figure in section["figures"]}


@pytest.mark.slow
def test_clients_that_leave_are_measured(tmp_path, capsys):
    results, page = measured(tmp_path, capsys, "leavers")
    assert [*results] == ["leavers"]
    assert values(results["leavers"])["neighbours whose answer changed"] == [0]
    assert page.count("Not measured yet.") == len(serve.MEASUREMENTS) - 1


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_everything_is_measured(tmp_path, capsys):
    results, page = measured(tmp_path, capsys, "all")
    assert [*results] == [*serve.MEASUREMENTS]
    assert "Not measured yet." not in page
    assert all(figure["is_met"] for figure in results["equal"]["figures"] if figure["at_most"] is not None)
