"""A job on several hosts: the same supervisor, with agents (``agent``) that have the processes.

What happens is decided here, by the same rules as on one machine (``ending``). A host that cannot be reached,
or is lost, counts as the failure of all its processes; its code is that of ssh, usually 255.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from byteps.control.shortage import explained, is_shortage
from byteps.launcher import ending, frames, reap
from byteps.launcher.agent_connection import AgentConnection
from byteps.launcher.manner import Manner
from byteps.launcher.silence import PING_S, tolerated_s
from byteps.launcher.spec import ProcessSpec
from byteps.launcher.supervise import Supervisor, earliest
from byteps.version import __version__

__all__ = ["Fleet", "Opener"]

HELLO_S = 60.0
_FAREWELL_S = 3.5  # an agent ends what it has within 3 s
_CLIENTS_S = 1.0
_LOST = 255  # as ssh says it

Opener = Callable[[str, Sequence[int]], AgentConnection]  # from a host and the places of its processes
Completer = Callable[[Mapping[str, frames.Hello]], Sequence[ProcessSpec]]


class Fleet(Supervisor):
    """A job whose processes are elsewhere."""

    def __init__(
        self,
        outline: Sequence[ProcessSpec],
        environ: Mapping[str, str],
        front_gone: int,
        *,
        openings: Mapping[str, frames.Open],
        connect: Opener,
        complete: Completer,
        env: Mapping[str, str],
        manner: Manner,
    ) -> None:
        """``outline``: the plan without what only agents know; ``complete`` makes the final one of it.

        ``openings``: the first message to every host. ``env``: for all processes, besides their own.
        """
        super().__init__(outline, environ, False, front_gone, manner.times, manner.logs(outline))
        self._labelled = True
        self._openings = openings
        self._connect = connect
        self._complete = complete
        self._env = dict(env)
        self._agents: list[AgentConnection] = []
        self._pending: list[ending.Event] = []
        self._pinged = time.monotonic()
        self._connect_by: float | None = time.monotonic() + HELLO_S

    # ---- life

    def _start_all(self) -> None:
        self._state = ending.begin(self._names, self._workers, range(len(self._specs)))
        for host, opening in self._openings.items():
            places = [place for place, spec in enumerate(self._specs) if spec.host == host]
            try:
                agent = self._connect(host, places)
            except OSError as error:
                why = explained(error) if is_shortage(error) else f"{error.strerror}; is it installed?"
                self._display.note(f"cannot start ssh for {host}: {why}")
                connected = {place for agent in self._agents for place in agent.places}
                self._state = ending.begin(self._names, self._workers, connected)
                self._pending.append(ending.NotStarted(places[0], 127))
                return
            self._agents.append(agent)
            self._watch(agent)
            agent.send(opening, self._selector)

    def _watch(self, agent: AgentConnection) -> None:
        self._selector.register(agent.out, selectors.EVENT_READ, lambda: self._hear(agent))
        if agent.err not in self._selector.get_map():
            self._selector.register(agent.err, selectors.EVENT_READ, lambda: self._overhear(agent))

    def _deadline(self) -> float | None:
        if self._pending:
            return 0.0
        return earliest(super()._deadline(), self._connect_by, self._pinged + PING_S)

    def _tick(self) -> None:
        pending, self._pending = self._pending, []
        for event in pending:
            self._handle(event)
        now = time.monotonic()
        if now >= self._pinged + PING_S:
            self._pinged = now
            for agent in self._agents:
                agent.send(frames.Ping(), self._selector)
        if self._connect_by is not None and now >= self._connect_by:
            self._connect_by = None
            for agent in self._agents:
                if agent.hello is None:
                    self._lose(agent, f"no answer within {HELLO_S:g} s")
        for agent in self._agents:  # paused while the screen was full
            if not (agent.closed or self._display.full) and agent.out not in self._selector.get_map():
                self._watch(agent)
        super()._tick()

    def _sweep(self) -> list[int]:
        """Hear what agents still have to say, then end what is left here: only the clients of ssh."""
        for agent in self._agents:
            if not agent.started:
                agent.hang_up(self._selector)
        deadline = time.monotonic() + _FAREWELL_S
        while (
            not self._alone
            and time.monotonic() < deadline
            and not all(agent.closed for agent in self._agents)
        ):
            self._wait(deadline)
            for agent in self._agents:
                if not agent.closed and agent.out not in self._selector.get_map():
                    self._watch(agent)
        for agent in self._agents:
            agent.hang_up(self._selector)
        return reap.sweep(_CLIENTS_S)

    def _own(self) -> Collection[int]:
        return [agent.pid for agent in self._agents]

    # ---- events

    def _hear(self, agent: AgentConnection) -> None:
        if agent.closed:  # by another event of the same moment
            return
        try:
            messages = agent.receive()
        except frames.FrameError as error:
            self._lose(agent, str(error))
            return
        if messages is None:
            self._lose(agent, "")
            return
        for message in messages:
            if wrong := _wrong(agent, message):
                self._lose(agent, wrong)
                return
            if isinstance(message, frames.Output):
                self._display.feed(message.place, message.error, message.data)
            elif isinstance(message, frames.Ended):
                self._ended(agent, message.place, message.code)
            elif isinstance(message, frames.Told):
                self._handle(ending.Told(message.place, message.statement, message.own))
            elif isinstance(message, frames.Halted):
                self._handle(ending.Halted(message.place, message.pid))
            elif isinstance(message, frames.NotStarted):
                self._display.note(f"{agent.name}: {message.text}")
                self._cannot_start(agent, message.place, message.code)
            elif isinstance(message, frames.Refused):
                self._lose(agent, message.text)
                return
            else:
                self._greeted(agent, message)
        if self._display.full:
            for each in self._agents:
                if not each.closed and each.out in self._selector.get_map():
                    self._selector.unregister(each.out)

    def _overhear(self, agent: AgentConnection) -> None:
        if agent.closed:
            return
        lines = agent.overhear()
        if lines is None:
            self._selector.unregister(agent.err)
        for line in lines or ():
            if agent.hello is not None:  # before that they are the reason of a failure, and told with it
                self._display.note(f"{agent.name}: {line}")

    def _greeted(self, agent: AgentConnection, hello: frames.Hello) -> None:
        if hello.version != __version__:
            self._lose(
                agent,
                f"it has byteps {hello.version}, this machine has {__version__}; install the same on both",
            )
            return
        agent.hello = hello
        if any(each.hello is None for each in self._agents) or len(self._agents) < len(self._openings):
            return
        self._connect_by = None
        if self._state.phase is not ending.Phase.RUNNING:
            return
        hellos = {host: each.hello for host, each in zip(self._openings, self._agents, strict=True)}
        specs = self._complete({host: hello for host, hello in hellos.items() if hello is not None})
        for each in self._agents:
            each.started = True
            processes = {place: specs[place] for place in each.places}
            each.send(frames.Start(processes, self._env, tolerated_s(self._env)), self._selector)

    def _ended(self, agent: AgentConnection, place: int, code: int) -> None:
        if place not in agent.places:
            return
        agent.places.remove(place)
        self._display.close(place)
        if code and self._state.phase < ending.Phase.TERMINATING:  # later it is our doing
            self._failed[place] = code
        self._handle(ending.Ended(place, code))

    def _lose(self, agent: AgentConnection, reason: str) -> None:
        """A host is gone. Its end is no news when all of its processes have ended."""
        last = agent.hang_up(self._selector)
        if not agent.places or self._alone:
            return
        code = agent.code()
        for line in last if agent.hello is not None else ():
            self._display.note(f"{agent.name}: {line}")
        if self._state.phase < ending.Phase.TERMINATING:
            self._display.note(f"{agent.name}: {_why(agent, reason, code)}")
        if not agent.started:
            self._cannot_start(agent, agent.places[0], code or _LOST)
            return
        lost, agent.places = agent.places, []
        for place in lost:
            if self._state.phase < ending.Phase.LEAVING:
                self._failed[place] = code or _LOST
            self._handle(ending.Ended(place, code or _LOST))

    def _cannot_start(self, agent: AgentConnection, first: int, code: int) -> None:
        """A process of a host, and those after it, do not run: the job cannot begin. Two hosts may say so."""
        gone = [place for place in agent.places if place >= first]
        agent.places = [place for place in agent.places if place < first]
        if self._state.phase is ending.Phase.RUNNING:
            self._state = replace(self._state, running=self._state.running - set(gone))
            self._handle(ending.NotStarted(first, code))
        else:
            self._pending += [ending.Ended(place, code) for place in gone]

    def _signal(self, number: int, places: Iterable[int]) -> None:
        wanted = set(places)
        for agent in self._agents:
            targets = sorted(wanted & set(agent.places))
            if targets and agent.started:
                agent.send(frames.Signal(number, targets), self._selector)
            elif targets:  # nothing runs there yet
                agent.places = [place for place in agent.places if place not in wanted]
                self._pending += [ending.Ended(place, 128 + number) for place in targets]


def _wrong(agent: AgentConnection, message: frames.FromAgent) -> str:
    """Why an agent may not say this now; nothing if it may."""
    if isinstance(message, frames.Hello | frames.Refused):
        return "its agent greeted twice" if agent.hello is not None else ""
    return (
        ""
        if message.place in agent.own
        else f"its agent spoke of process {message.place}, not one of its own"
    )


def _why(agent: AgentConnection, reason: str, code: int | None) -> str:
    """Why a host was lost, in words, with what to do."""
    said = "; ".join(agent.said) or agent.chatter
    if agent.hello is not None:
        return "the connection was lost" + (f": {reason or said}" if reason or said else "")
    if reason:
        return reason
    if code == 127:
        return f"the interpreter was not found there ({said}); name it with --python PATH"
    if "No module named" in said:
        return f"{said}; install byteps there, or name its interpreter with --python PATH"
    end = "" if code is None else f" with code {code}"
    return (
        f"no agent could be started, ssh ended{end}: {said or 'it said nothing'}; try: ssh {agent.name} true"
    )
