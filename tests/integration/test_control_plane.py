"""The control plane with real processes and sockets: joining, strangers, failures, and the end of a job."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from itertools import permutations

import pytest
from control_job import LIMIT_S, Job, Process, Worker, running

from byteps.control.messages import Failed, Leave, Retire, TensorSpec, View, Waiting
from byteps.errors import (
    DeclarationError,
    HandshakeError,
    JoinError,
    JoinTimeoutError,
    NotInitializedError,
    OperationTimeoutError,
    PeerLostError,
)
from byteps.observe.limited import EACH
from byteps.tensor.runs import count, spread

TWO_JOBS = "two jobs use this port; set DMLC_PS_ROOT_PORT or BYTEPS_JOB_ID"
HASTY = {"PS_HEARTBEAT_INTERVAL": "0.1", "PS_HEARTBEAT_TIMEOUT": "1"}


def loss(worker: Worker) -> tuple[str, int, str, str]:
    return worker.losses.get(timeout=LIMIT_S)


# Joining


@pytest.mark.parametrize("order", list(permutations(["scheduler", "server", "worker"])))
def test_any_start_order_and_a_clean_end(order: tuple[str, ...]) -> None:
    with Job(2, 1) as job:
        processes, joins = {}, []
        for role in order:
            if role == "worker":
                joins = [job.joining(1), job.joining(0)]
            else:
                processes[role] = job.scheduler() if role == "scheduler" else job.server()
        workers = [join.result(LIMIT_S) for join in joins]
        assert [worker.view.rank for worker in workers if worker.view] == [1, 0]
        for worker in workers:
            worker.client.leave()
        assert processes["server"].wait() == 0, processes["server"].output
        assert processes["scheduler"].wait() == 0, processes["scheduler"].output


def test_view_names_everybody() -> None:
    with running(2, 1) as (_, _, _, workers):
        view = workers[1].view
        assert view is not None and (view.epoch, view.rank, view.size) == (1, 1, 2)
        assert [(m.role, m.rank, m.host) for m in view.members] == [
            ("worker", 0, socket.gethostname()),
            ("worker", 1, socket.gethostname()),
            ("server", 0, socket.gethostname()),
        ]
        assert view.members[0].pid == os.getpid()


def test_scheduler_says_who_is_missing_and_gives_up() -> None:
    with Job(2, 1) as job:
        scheduler = job.scheduler(BYTEPS_CONNECT_TIMEOUT_S="6")
        member = job.raw_when_up(0)
        missing = "1 of 2 workers, 0 of 1 servers; missing worker 1; server 0"
        scheduler.expect(f"waiting for {missing}")
        assert scheduler.wait() == 1
        assert "byteps scheduler: JoinTimeoutError" in scheduler.lines[-1] and missing in scheduler.lines[-1]
        told = [member.receive()]
        while isinstance(told[-1], Waiting):
            told.append(member.receive())
        assert told[0] == Waiting(missing)
        assert (
            isinstance(told[-1], Failed) and told[-1].error == "JoinTimeoutError" and missing in told[-1].text
        )


def test_worker_that_gives_up_says_who_is_missing() -> None:
    with Job(2, 1) as job:
        job.scheduler()
        job.raw_when_up(0).receive()
        with pytest.raises(JoinTimeoutError) as raised:
            job.worker(1, BYTEPS_CONNECT_TIMEOUT_S="1").join()
        assert "2 of 2 workers, 0 of 1 servers; missing server 0" in str(raised.value)
        assert "BYTEPS_CONNECT_TIMEOUT_S" in str(raised.value)


def test_without_a_scheduler_the_address_is_named() -> None:
    with Job(1, 1, BYTEPS_CONNECT_TIMEOUT_S="0.3") as job:
        with pytest.raises(JoinTimeoutError, match=f"127.0.0.1:{job.port} cannot be reached.*refused"):
            job.worker(0).join()
        server = job.server()
        assert server.wait() == 1
        assert "JoinTimeoutError: this server could not join the job within 0.3 s" in server.output


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            {"BYTEPS_PARTITION_BYTES": "1024"},
            ["BYTEPS_PARTITION_BYTES=1024", "BYTEPS_PARTITION_BYTES unset"],
        ),
        ({"BYTEPS_ENABLE_ASYNC": "1"}, ["BYTEPS_ENABLE_ASYNC=1", "BYTEPS_ENABLE_ASYNC=0"]),
        ({"DMLC_NUM_WORKER": "3"}, ["DMLC_NUM_WORKER=3", "the scheduler has 2", f"or {TWO_JOBS}"]),
        ({"BYTEPS_LAUNCH_ID": "7"}, [f"{TWO_JOBS}: worker 1 (host", "started by launch 7"]),
    ],
)
def test_registration_that_does_not_fit_is_refused_by_name(env: dict[str, str], words: list[str]) -> None:
    with Job(2, 1) as job:
        scheduler = job.scheduler()
        first = job.raw_when_up(0)
        assert first.receive() == Waiting("1 of 2 workers, 0 of 1 servers; missing worker 1; server 0")
        with pytest.raises(JoinError) as raised:
            job.worker(1, **env).join()
        for word in words:
            assert word in str(raised.value)
        server, second = job.server(), job.joining(1)  # the job goes on without the one refused
        while not isinstance(first.receive(), View):
            pass
        first.send(Leave())
        second.result(LIMIT_S).client.leave()
        assert (server.wait(), scheduler.wait()) == (0, 0)
        assert f"refused: {raised.value}" in scheduler.output


def test_server_too_many_and_worker_too_late() -> None:
    with running(1, 1) as (job, scheduler, _, workers):
        second = job.server()
        assert second.wait() == 1 and "JoinError" in second.output and "came too late" in second.output
        with pytest.raises(JoinError, match="came too late"):
            job.worker(0).join()
        workers[0].client.leave()
        assert scheduler.wait() == 0


# Two jobs at one address


def test_a_place_that_is_taken_refuses_everybody() -> None:
    with Job(2, 1) as job:
        scheduler, first = job.scheduler(), job.raw_when_up(0)
        assert isinstance(first.receive(), Waiting)
        second = job.worker_process(0)  # of this job by mistake, or of another one: nobody can tell
        assert second.wait() == 1 and f"JoinError: {TWO_JOBS}: worker 0 (host" in second.output
        told = first.receive()
        while isinstance(told, Waiting):
            told = first.receive()
        assert isinstance(told, Failed) and "came twice" in told.text and "DMLC_WORKER_ID" in told.text
        late = job.server()  # who comes a little later is told, too
        assert late.wait() == 1 and TWO_JOBS in late.output
        assert scheduler.wait() == 1 and f"byteps scheduler: JoinError: {TWO_JOBS}" in scheduler.lines[-1]


def test_a_second_scheduler_says_so_and_refuses_everybody() -> None:
    with Job(2, 1) as job:
        first, member = job.scheduler(), job.raw_when_up(0)
        member.receive()
        second = job.scheduler(BYTEPS_LISTEN_FD="")
        assert second.wait() == 1
        assert f"ConfigError: {TWO_JOBS}: cannot listen on 127.0.0.1:{job.port}" in second.output
        told = member.receive()
        while isinstance(told, Waiting):
            told = member.receive()
        assert isinstance(told, Failed) and "a second scheduler was started for this address" in told.text
        assert first.wait() == 1 and TWO_JOBS in first.lines[-1]


def test_a_job_that_runs_is_not_disturbed_by_a_later_one() -> None:
    with running(1, 1) as (job, scheduler, servers, workers):
        late = [job.scheduler(BYTEPS_LISTEN_FD=""), job.server(), job.worker_process(0)]
        for process in late:
            assert process.wait() == 1 and TWO_JOBS in process.output
        workers[0].client.place([TensorSpec("x", 0, 0, [4])])
        workers[0].client.leave()
        assert (servers[0].wait(), scheduler.wait()) == (0, 0)


# Strangers


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({"BYTEPS_JOB_SECRET": "x"}, {"BYTEPS_JOB_SECRET": "y"}, "secrets differ"),
        ({"BYTEPS_JOB_SECRET": "x"}, {"BYTEPS_JOB_SECRET": ""}, "the caller has none"),
        ({}, {"BYTEPS_JOB_SECRET": "y"}, "this job has none"),
        ({}, {"BYTEPS_JOB_ID": "another"}, "job id 'another' called, another job answers"),
    ],
)
def test_peer_of_another_job_is_refused_at_once(
    ours: dict[str, str], theirs: dict[str, str], words: str
) -> None:
    with Job(1, 1, **ours) as job:
        scheduler, server = job.scheduler(), job.server()
        with pytest.raises(HandshakeError, match=words):
            job.worker(0, **theirs).join()
        worker = job.joining(0).result(LIMIT_S)
        stranger = job.worker(0, **theirs)
        assert worker.view is not None
        with pytest.raises(HandshakeError, match=words):  # the data plane is behind the same door
            stranger.client.open_data_connections(worker.view)
        connections = worker.client.open_data_connections(worker.view)
        assert [(c.server, c.checksum) for c in connections] == [(0, False)] * len(connections)
        for connection in connections:
            os.close(connection.fd)
        worker.client.leave()
        assert (server.wait(), scheduler.wait()) == (0, 0), server.output


HTTP = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.0\r\nAccept: */*\r\n\r\n"


def test_strangers_cost_a_line_and_nothing_else(seed: int) -> None:
    noise = random.Random(seed).randbytes(4096)
    with running(1, 1) as (job, scheduler, servers, workers):
        view = workers[0].view
        assert view is not None
        silent = []
        for process, port in ((scheduler, job.port), (servers[0], view.servers()[0].port)):
            for words in (HTTP, noise, bytes(64), b"BPS2"):
                with socket.create_connection(("127.0.0.1", port), LIMIT_S) as stranger:
                    address = "{}:{}".format(*stranger.getsockname())
                    answer = b""
                    with contextlib.suppress(OSError):  # it may have hung up before it has read everything
                        stranger.sendall(words)
                        stranger.shutdown(socket.SHUT_WR)
                        answer = stranger.recv(65_536)
                    assert len(answer) < 1_000  # a REJECT at most
                assert address in process.expect("refused the connection from")
            silent.append(socket.create_connection(("127.0.0.1", port), LIMIT_S))
        for connection in workers[0].client.open_data_connections(view):  # with the silent ones still there
            os.close(connection.fd)
        assert workers[0].client.place([TensorSpec("x", 0, 0, [4])])[0].placement == [(1, [(0, 0)])]
        workers[0].client.leave()
        assert (servers[0].wait(), scheduler.wait()) == (0, 0)
        for stranger in silent:
            assert stranger.recv(1) == b""
            stranger.close()


def test_a_flood_of_strangers_is_a_few_lines_and_a_number() -> None:
    with running(1, 1) as (job, scheduler, servers, workers):
        view = workers[0].view
        assert view is not None
        ports = {scheduler: job.port, servers[0]: view.servers()[0].port}
        for port in ports.values():
            for _ in range(200):
                with socket.create_connection(("127.0.0.1", port), LIMIT_S) as stranger:
                    stranger.sendall(HTTP)
                    stranger.recv(65_536)
        workers[0].client.leave()
        for process in ports:
            assert process.wait() == 0
            refused = [line for line in process.lines if "refused the connection from 127.0.0.1" in line]
            assert len(refused) == EACH + 1, process.output  # the last one is quoted with the number
            assert f"left out {200 - EACH} more lines about 127.0.0.1" in refused[-1]


def test_only_the_log_says_which_job_answers() -> None:
    with Job(1, 1, BYTEPS_JOB_ID="hidden") as job:
        scheduler = job.scheduler()
        with pytest.raises(HandshakeError) as raised:
            job.worker(0, BYTEPS_JOB_ID="another").join()
        assert "hidden" not in str(raised.value)
        assert "job id 'another' called, job 'hidden' answers" in scheduler.expect("refused the connection")


def test_too_many_silent_connections_do_not_lock_members_out() -> None:
    with Job(1, 1) as job:
        scheduler = job.scheduler()
        job.raw_when_up(0).close()
        silent = [socket.create_connection(("127.0.0.1", job.port), LIMIT_S) for _ in range(300)]
        server, worker = job.server(), job.joining(0).result(LIMIT_S)
        worker.client.leave()
        assert (server.wait(), scheduler.wait()) == (0, 0)
        assert "256 others have come after it" in scheduler.output
        for stranger in silent:
            stranger.close()


def test_member_that_breaks_the_protocol_is_lost_by_name() -> None:
    with Job(2, 1) as job:
        scheduler, server, second = job.scheduler(), job.server(), job.joining(1)
        bad = job.raw_when_up(0)
        while not isinstance(bad.receive(), View):
            pass
        bad.send(Retire([1]))
        assert loss(second.result(LIMIT_S))[:2] == ("worker", 0)
        assert scheduler.wait() == 1 and "may not send Retire" in scheduler.output
        assert server.wait() == 1


# Declarations and barriers


def test_declarations_and_barriers() -> None:
    with running(2, 2, BYTEPS_PARTITION_BYTES="64") as (job, _, _, workers):
        specs = [TensorSpec(f"layer.{n}", 0, 0, [n, 8]) for n in range(40)]
        first = job.background(lambda: workers[0].client.place(specs))
        second = job.background(lambda: workers[1].client.place(specs[::-1]))
        placed = first.result(LIMIT_S)
        assert placed == second.result(LIMIT_S)[::-1]
        assert len({one.tensor_id for one in placed}) == 40
        assert [count(one.placement) for one in placed] == [-(-n * 32 // 64) for n in range(40)]
        assert {server for one in placed for server, _ in spread(one.placement)} == {0, 1}
        for _ in range(3):
            waits = [job.background(lambda w=w: w.client.barrier(LIMIT_S)) for w in workers]
            for wait in waits:
                wait.result(LIMIT_S)


def test_conflict_reaches_every_worker() -> None:
    with running(3, 1) as (_, _, _, workers):
        good, bad = TensorSpec("w", 0, 0, [4]), TensorSpec("w", 0, 1, [2, 2])
        placed = workers[0].client.place([good])
        with pytest.raises(
            DeclarationError, match=r"'w'.*worker 0 .*float32 \[4\].*worker 1 .*float64 \[2, 2\]"
        ):
            workers[1].client.place([bad])
        with pytest.raises(DeclarationError):
            workers[2].client.place([good])
        for worker in workers:
            told = worker.conflicts.get(timeout=LIMIT_S)
            assert (told.tensor_id, told.name) == (placed[0].tensor_id, "w") and "float64 [2, 2]" in told.text


def test_barrier_that_waits_too_long_names_who_is_missing() -> None:
    words = r"barrier.*waits for worker 1 \(host"
    with running(2, 1, BYTEPS_STALL_WARN_S="0.5") as job, pytest.raises(OperationTimeoutError, match=words):
        job[3][0].client.barrier(4.0)


def test_all_that_stay_hear_that_a_worker_has_left() -> None:
    with running(3, 1) as (_, _, _, workers):
        workers[1].client.leave()
        assert [workers[rank].departures.get(timeout=LIMIT_S) for rank in (0, 2)] == [1, 1]
        workers[0].client.leave()
        assert workers[2].departures.get(timeout=LIMIT_S) == 0
        assert workers[0].departures.empty()  # of its own it knows


def test_barrier_without_one_that_left() -> None:
    with running(2, 1) as (job, _, _, workers):
        wait = job.background(lambda: workers[0].client.barrier(LIMIT_S))
        workers[1].client.leave()
        with pytest.raises(PeerLostError, match=r"worker 1 .*has left") as raised:
            wait.result(LIMIT_S)
        assert (raised.value.role, raised.value.rank) == ("worker", 1)
        assert workers[0].losses.empty()  # a goodbye is no loss


# Failures


@pytest.mark.parametrize("victim", ["worker", "server", "scheduler"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_death_or_hang_of_anybody_is_told_to_all(victim: str, how: signal.Signals) -> None:
    env = HASTY if how == signal.SIGSTOP else {}
    with Job(2, 1, **env) as job:
        processes = {
            "scheduler": job.scheduler(),
            "server": job.server(BYTEPS_LOG_LEVEL="INFO"),
            "worker": job.worker_process(1),
        }
        worker = job.joining(0).result(LIMIT_S)
        processes["worker"].expect("joined 1")
        processes["server"].expect("epoch 1 runs")
        wait = job.background(lambda: worker.client.barrier(LIMIT_S))
        processes[victim].popen.send_signal(how)
        role, rank, host, reason = loss(worker)
        expected = {"worker": ("worker", 1), "server": ("server", 0), "scheduler": ("scheduler", 0)}[victim]
        assert (role, rank) == expected and host
        assert ("no heartbeat" if how == signal.SIGSTOP else "connection closed") in reason
        with pytest.raises(PeerLostError) as raised:
            wait.result(LIMIT_S)
        assert (raised.value.role, raised.value.rank) == expected
        with pytest.raises(PeerLostError):  # and so does everything later
            worker.client.place([TensorSpec("x", 0, 0, [1])])
        for name, process in processes.items():
            if name == victim:
                continue
            if name == "worker":
                process.expect(f"lost {victim}")
                continue
            assert process.wait() == 1
            assert "PeerLostError" in process.output and victim in process.lines[-1]
        assert worker.losses.empty()  # told once, with the first cause


def test_member_that_holds_its_gil_is_alive() -> None:
    with Job(2, 1, **HASTY) as job:
        scheduler, server = job.scheduler(), job.server()
        busy, worker = job.worker_process(1), job.joining(0).result(LIMIT_S)
        busy.expect("joined 1")
        busy.tell(
            "sys.setswitchinterval(100); t = time.monotonic() + 3; exec('while time.monotonic() < t: pass')"
        )
        busy.expect("done")
        assert worker.losses.empty()
        worker.client.leave()
        busy.popen.communicate(timeout=LIMIT_S)
        assert (busy.popen.returncode, server.wait(), scheduler.wait()) == (0, 0, 0)


def test_worker_that_fails_says_why() -> None:
    with running(2, 1) as (_, scheduler, servers, workers):
        workers[1].client.leave(failed=True, reason="ValueError: no such file")
        role, rank, _, reason = loss(workers[0])
        assert (role, rank, reason) == ("worker", 1, "ValueError: no such file")
        assert scheduler.wait() == servers[0].wait() == 1
        assert "PeerLostError: worker 1 (host" in scheduler.output and "no such file" in servers[0].output


def test_without_recovery_a_broken_data_connection_is_a_loss() -> None:
    """The worker lives, but its server cannot hear it: the job must not wait for ever."""
    with running(2, 1, BYTEPS_RECOVERY="0") as (_, scheduler, _, workers):
        assert workers[1].view is not None
        for connection in workers[1].client.open_data_connections(workers[1].view):
            os.close(connection.fd)
        assert loss(workers[0])[:2] == ("worker", 1)
        assert scheduler.wait() == 1 and "cannot reach it" in scheduler.output


@pytest.mark.parametrize("victim", ["server", "scheduler"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_process_and_the_job_learns_why(victim: str, number: signal.Signals) -> None:
    with running(1, 1) as (_, scheduler, servers, workers):
        stopped, other = (scheduler, servers[0]) if victim == "scheduler" else (servers[0], scheduler)
        stopped.popen.send_signal(number)
        role, rank, _, reason = loss(workers[0])
        assert (role, rank, reason) == (victim, 0, f"it got {number.name}")
        assert stopped.wait() == 128 + number and other.wait() == 1


def test_interrupted_start_up_ends_at_once() -> None:
    with Job(1, 1) as job:
        server = job.server(PS_VERBOSE="1")
        scheduler = job.scheduler()
        server.expect("connected to")  # and maybe registered, maybe not
        for process in (server, scheduler):
            process.popen.send_signal(signal.SIGTERM)
            assert process.wait() == 128 + signal.SIGTERM


# Suspension


def test_suspend_and_resume_is_a_new_epoch() -> None:
    with running(2, 1) as (job, scheduler, servers, workers):
        for worker in workers:
            worker.client.place([TensorSpec("x", 0, 0, [4])])
            worker.client.leave(suspend=True)
            with pytest.raises(NotInitializedError):
                worker.client.barrier(1.0)
        again = [job.joining(number) for number in range(2)]
        resumed = [join.result(LIMIT_S) for join in again]
        for worker in resumed:
            assert worker.view is not None and (worker.view.epoch, worker.view.size) == (2, 2)
            # The first epoch's declarations are forgotten: this would be a conflict.
            assert worker.client.place([TensorSpec("x", 0, 1, [5])])[0].tensor_id == 0
            for connection in worker.client.open_data_connections(worker.view):
                os.close(connection.fd)
            worker.client.leave()
        assert (servers[0].wait(), scheduler.wait()) == (0, 0)


def test_resume_with_one_worker_less() -> None:
    with running(2, 1) as (job, scheduler, servers, workers):
        workers[0].client.leave()
        workers[1].client.leave(suspend=True)
        env = {"DMLC_NUM_WORKER": "1", "BYTEPS_GLOBAL_RANK": "0", "DMLC_WORKER_ID": "0"}
        worker = job.worker(0, **env).join()
        assert worker.view is not None and (worker.view.epoch, worker.view.rank, worker.view.size) == (
            2,
            0,
            1,
        )
        worker.client.leave()
        assert (servers[0].wait(), scheduler.wait()) == (0, 0)


def test_suspended_process_that_exits_ends_the_job() -> None:
    with Job(1, 1) as job:
        scheduler, server, worker = job.scheduler(), job.server(), job.worker_process(0)
        worker.expect("joined 0")
        worker.tell("client.leave(suspend=True)")
        worker.expect("done")
        worker.popen.send_signal(signal.SIGKILL)
        assert (server.wait(), scheduler.wait()) == (0, 0)


# Addresses


@pytest.mark.parametrize("uri", ["::1", "[::1]"])
def test_a_job_at_an_ipv6_address(uri: str) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = str(probe.getsockname()[1])
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with Job(1, 1, DMLC_PS_ROOT_URI=uri, DMLC_PS_ROOT_PORT=port, DMLC_NODE_HOST="[::1]") as job:
        with pytest.raises(JoinTimeoutError, match=rf"the scheduler at \[::1\]:{port} cannot be reached"):
            job.worker(0, BYTEPS_CONNECT_TIMEOUT_S="0.3").join()
        scheduler = job._start(Process(["-m", "byteps.scheduler"], {**job.env, "DMLC_ROLE": "scheduler"}))
        server = job.server(PS_VERBOSE="1")
        assert server.expect("connected to").endswith(f"connected to [::1]:{port}, not encrypted")
        worker = job.joining(0).result(LIMIT_S)
        assert worker.view is not None and worker.view.servers()[0].address == "::1"
        connections = worker.client.open_data_connections(worker.view)
        assert connections and all(each.same_machine for each in connections)
        for connection in connections:
            os.close(connection.fd)
        worker.client.leave()
        assert (server.wait(), scheduler.wait()) == (0, 0), server.output


# The process itself


def test_port_in_use_is_said_with_a_remedy() -> None:
    with Job(1, 1) as job:
        job.listener.listen()
        env = {**job.env, "DMLC_ROLE": "scheduler"}
        process = Process(["-m", "byteps.scheduler"], env)
        assert process.wait() == 1
        process.end()
        expected = f"ConfigError: cannot listen on 127.0.0.1:{job.port}: Address already in use"
        assert expected in process.output and "DMLC_PS_ROOT_PORT" in process.output


def test_server_listens_in_the_range_it_was_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(1, 1, DMLC_PORT=f"{port}-{port + 20}") as (_, _, _, workers):
            assert workers[0].view is not None
            assert port < workers[0].view.servers()[0].port <= port + 20


def test_processes_start_without_numpy_or_a_framework() -> None:
    check = (
        "import sys, byteps.scheduler.__main__, byteps.server.__main__; "
        "print([name for name in ('numpy', 'torch', 'tensorflow') if name in sys.modules])"
    )
    process = Process(["-c", check], {})
    assert (process.wait(), process.output) == (0, "[]")
    process.end()
