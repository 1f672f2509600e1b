"""A prediction service under load, beside fits in another thread of its process.

    pip install waitress onnx onnxruntime
    python tools/load_test.py [--seconds 600] [--rate 300]

starts the WSGI application of docs/guide/deploying.md twice, with the model itself and with its ONNX form, and sends
requests of one to ten rows at a fixed rate over 32 connections. It prints a table: percentiles of the latency, counted
from the time at which a request was due; wrong answers; and the server's memory after a tenth of the time and at the
end. It fails if an answer is wrong, if the 99th percentile is above 50 ms, or if the memory grows by a tenth.
"""

import argparse
import asyncio
import json
import logging
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "deploying.md"
CONNECTIONS, KINDS_OF_REQUESTS, LONGEST_REQUEST, N_FEATURES = 32, 200, 10, 12
MOST_MILLISECONDS, MOST_GROWTH = 50.0, 1.1
# A probability of the ONNX form may differ by so much.
ROUNDING = {"xgpc": 1e-12, "onnx": 1e-5}


def rows_and_labels(seed, n):
    return make_classification(n, N_FEATURES, n_informative=6, random_state=seed)


def service_of_page():
    """The function ``service`` of the guide's page."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (lines,) = (block for block in blocks if "def service(" in block)
    namespace = {}
    exec(compile(lines.partition("\napplication = ")[0], PAGE.name, "exec"), namespace)
    return namespace["service"]


def fit_again_and_again():
    from xgpc import GPClassifier

    X, y = rows_and_labels(1, 5000)
    while True:
        GPClassifier(random_state=0).fit(X, y)


def serve(kind, folder):
    """Serve the model of a folder; the first line of the output is the port."""
    from waitress import create_server

    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(folder / "model.onnx")
        predict_proba = lambda rows: session.run(["probabilities"], {"X": rows})[0]  # noqa: E731
    else:
        from xgpc import GPClassifier

        predict_proba = GPClassifier.load(folder / "model.npz").predict_proba
    # It warns of each request that waits.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server = create_server(service_of_page()(predict_proba, N_FEATURES), host="127.0.0.1", port=0, threads=2)
    threading.Thread(target=fit_again_and_again, daemon=True).start()
    print(server.effective_port, flush=True)
    server.run()


def megabytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1000


def requests(model):
    """Requests as bytes with the probabilities that they should get."""
    X, _ = rows_and_labels(2, KINDS_OF_REQUESTS * LONGEST_REQUEST)
    found = []
    for number, rows in enumerate(np.array_split(X, KINDS_OF_REQUESTS)):
        rows = rows[: 1 + number % LONGEST_REQUEST]
        body = json.dumps(rows.tolist()).encode()
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        found.append((head + body, model.predict_proba(rows)))
    return found


async def ask(connection, request):
    """The answer to a request, as an array."""
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head.lower())[1]))
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the service answered {head.splitlines()[0].decode()} {body[:200].decode()}")
    return np.array(json.loads(body))


async def load(process, port, asked, options, rounding):
    """Milliseconds (n,) of all requests, the number of wrong answers, and the memory (2,) in megabytes."""
    loop, free = asyncio.get_running_loop(), asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    taken, n_wrong, memory = [], 0, []

    async def one(number, due):
        nonlocal n_wrong
        connection, (request, expected) = await free.get(), asked[number % len(asked)]
        answer = await ask(connection, request)
        taken.append(1e3 * (loop.time() - due))
        n_wrong += answer.shape != expected.shape or not np.all(np.abs(answer - expected) <= rounding)
        free.put_nowait(connection)

    start, n_requests = loop.time() + 1.0, int(options.seconds * options.rate)
    async with asyncio.TaskGroup() as tasks:
        for number in range(n_requests):
            due = start + number / options.rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            tasks.create_task(one(number, due))
            if number == n_requests // 10:
                memory.append(megabytes(process))
    return np.array(taken), n_wrong, [*memory, megabytes(process)]


def measure(kind, folder, asked, options):
    """A row of the table, and whether the service holds."""
    process = subprocess.Popen([sys.executable, __file__, "--serve", kind, folder], stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        taken, n_wrong, memory = asyncio.run(load(process, port, asked, options, ROUNDING[kind]))
    finally:
        process.kill()
        process.wait()
    median, ninetieth, last = np.percentile(taken, (50.0, 90.0, 99.0))
    holds = not n_wrong and last <= MOST_MILLISECONDS and memory[1] <= MOST_GROWTH * memory[0]
    times = f"{median:.1f} | {ninetieth:.1f} | {last:.1f} | {np.max(taken):.0f}"
    return f"| {kind} | {len(taken)} | {times} | {n_wrong} | {memory[0]:.0f} | {memory[1]:.0f} |", holds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve[0], Path(options.serve[1]))

    import onnx

    from xgpc import GPClassifier
    from xgpc.onnx import to_onnx

    model = GPClassifier(n_inducing=100, n_neighbors=0, random_state=0).fit(*rows_and_labels(0, 5000))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.npz")
        onnx.save(to_onnx(model), Path(folder) / "model.onnx")
        asked = requests(model)
        print("| model | requests | median ms | 90 % | 99 % | longest | wrong | MB after a tenth | MB at the end |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
        all_hold = True
        for kind in ROUNDING:
            row, holds = measure(kind, folder, asked, options)
            all_hold &= holds
            print(row, flush=True)
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
