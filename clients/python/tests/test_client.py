"""noused.Client and AsyncClient with a real daemon, which is killed under them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
import unittest
import unittest.mock
from pathlib import Path

import noused
from daemon import Daemon, outside

HERE = Path(__file__).parent
SLEEPS = '!bash {"command":"sleep 600"}'


class Sync(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def client(self, on_approval=None, **more):
        client = noused.Client(self.daemon.socket, on_approval, **more)
        self.addCleanup(client.close)
        return client

    def in_thread(self, work):
        """Does something meanwhile; what is returned waits for its result."""
        said = []

        def run():
            try:
                said.append(work())
            except BaseException as e:
                said.append(e)

        thread = threading.Thread(target=run)
        thread.start()

        def result():
            thread.join()
            return said[0]

        return result

    def messages(self, client, role):
        return [m["text"] for m in client.call("get_messages")["messages"] if m.get("role") == role]

    def test_a_prompt_returns_the_answer(self):
        client = self.client()
        session = client.call("new_session", title="the second", activate=False)["session_id"]
        self.assertEqual(client.prompt("good morning"), "good morning")
        self.assertEqual(client.prompt("good evening", session_id=session), "good evening")
        self.assertEqual(self.messages(client, "user"), ["good morning"])

    def test_a_prompt_over_kill_9_returns_its_answer_once(self):
        client = self.client()
        session = client.call("get_state")["session_id"]
        with client.events(types=["tool_execution_start"]) as events:
            answer = self.in_thread(lambda: client.prompt(SLEEPS))
            next(events)
        client.call("new_session")  # another one is active when the text is sent again
        self.daemon.restart()
        self.assertIn("interrupted", answer())
        client.call("switch_session", session_id=session)
        self.assertEqual(self.messages(client, "user"), [SLEEPS])
        self.assertEqual(len(self.messages(client, "tool")), 1)

    def test_a_prompt_over_a_clean_stop_returns_its_answer_once(self):
        client = self.client(lambda approval: "once" if restarted.wait() else "")
        restarted = threading.Event()
        with client.events(types=["status"]) as events:
            answer = self.in_thread(lambda: client.prompt(outside("echo seen")))
            next(events)
        self.daemon.restart(signal.SIGTERM)
        restarted.set()
        self.assertIn("seen", answer())
        self.assertEqual(len(self.messages(client, "user")), 1)

    def test_a_prompt_whose_daemon_was_away_for_a_while(self):
        client = self.client()
        client.call("ping")
        self.daemon.kill()
        answer = self.in_thread(lambda: client.prompt("are you there?"))
        self.daemon.start()
        self.assertEqual(answer(), "are you there?")

    def test_errors_have_codes(self):
        client = self.client(reconnect=0.1)
        for code, command, payload in (
            ("session_not_found", "prompt", {"text": "x", "session_id": "ses-none"}),
            ("invalid_payload", "prompt", {"text": ""}),
            ("command_rejected", "abort", {}),
            ("invalid_command", "no_such_command", {}),
            ("invalid_command", "prompt", {"text": "x" * (16 << 20)}),
        ):
            with self.subTest(code), self.assertRaises(noused.Error) as failed:
                client.call(command, **payload)
            self.assertEqual(failed.exception.code, code)
        self.assertEqual(client.prompt("it goes on"), "it goes on")
        self.daemon.kill()
        with self.assertRaisesRegex(noused.Error, "no_daemon: no daemon at .*: any nous command starts one"):
            client.call("ping")
        with self.assertRaises(noused.Error) as failed:
            self.client().call("ping")
        self.assertEqual(failed.exception.code, "no_daemon")
        told = traceback.format_exception(failed.exception)
        self.assertLess(len(told), 8, "".join(told))  # few lines of the library's own
        self.assertRegex(told[-1], r"^noused\.Error: no_daemon: ")

    def test_an_aborted_run_has_no_answer(self):
        client = self.client()
        with client.events(types=["tool_execution_start"]) as events:
            answer = self.in_thread(lambda: client.prompt(SLEEPS))
            next(events)
        client.call("abort")
        self.assertEqual(answer().code, "aborted")

    def test_the_callback_answers(self):
        asked, answers = [], iter(["once", {"option": "deny", "reason": "use a branch"}])

        def on_approval(approval):
            asked.append(approval)
            return next(answers)

        client = self.client(on_approval)
        self.assertIn("seen", client.prompt(outside("echo seen")))
        self.assertIn("use a branch", client.prompt(outside("echo unseen")))
        self.assertEqual([a["arguments"]["command"] for a in asked], ["echo seen", "echo unseen"])
        self.assertEqual({a["session_id"] for a in asked}, {client.call("get_state")["session_id"]})

    def test_without_a_callback_nothing_is_waited_for(self):
        client = self.client()
        self.assertIn("denied", client.prompt(outside("echo unseen")))

    def test_other_sessions_approvals_are_not_answered(self):
        client, other = self.client(lambda approval: "once"), self.client()
        session = other.call("new_session", activate=False)["session_id"]
        with other.events(session_id=session, types=["status"]) as events:
            self.assertIn("seen", client.prompt(outside("echo seen")))
            other.call("prompt", text=outside("echo unseen"), session_id=session, wait=False)
            self.assertEqual(next(events)["payload"]["code"], "approval_requested")
        self.assertIn("seen", client.prompt(outside("echo seen")))
        self.assertEqual(len(client.call("get_state", session_id=session)["pending_approvals"]), 1)

    def test_a_callback_waits_over_kill_9_and_is_asked_once(self):
        asked, ready, answer = [], threading.Event(), threading.Event()

        def on_approval(approval):
            asked.append(approval["approval_id"])
            ready.set()
            answer.wait()
            return "once"

        client = self.client(on_approval)
        with client.events(types=["status"]) as events:
            said = self.in_thread(lambda: client.prompt(outside("echo seen")))
            ready.wait()
            self.assertEqual(next(events)["payload"]["code"], "approval_requested")
            self.daemon.restart()
            while next(events)["payload"]["code"] != "approval_requested":
                pass
        answer.set()
        self.assertIn("seen", said())
        self.assertEqual(len(asked), 1)

    def test_a_callback_that_fails_ends_the_prompt(self):
        client = self.client(lambda approval: {}["oops"])
        with self.assertRaises(KeyError):
            client.prompt(outside("echo unseen"))
        self.assertEqual(len(client.call("get_state")["pending_approvals"]), 1)

    def test_an_answer_that_is_no_option_ends_the_prompt(self):
        with self.assertRaises(noused.Error) as failed:
            self.client(lambda approval: "perhaps").prompt(outside("echo unseen"))
        self.assertEqual(failed.exception.code, "invalid_payload")

    def test_close_ends_everything(self):
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        with noused.Client(self.daemon.socket, lambda approval: "once") as client:
            events, started = client.events(), client.events(types=["tool_execution_start"])
            answer = self.in_thread(lambda: client.prompt(SLEEPS))
            next(started)
            rest = self.in_thread(lambda: [event["type"] for event in started])
        self.assertEqual(answer().code, "closed")
        self.assertEqual(rest(), [])
        self.assertEqual(list(events), [])
        with self.assertRaisesRegex(noused.Error, "closed"):
            client.call("ping")
        client.close()
        self.assertEqual((threading.active_count(), len(os.listdir("/proc/self/fd"))), (threads, files))

    def test_the_default_socket(self):
        env = {k: v for k, v in os.environ.items() if k not in ("NOUSED_SOCKET", "XDG_RUNTIME_DIR")}
        for more, want in (
            ({}, f"/tmp/noused-{os.getuid()}/noused.sock"),
            ({"XDG_RUNTIME_DIR": "/run/me"}, "/run/me/noused/noused.sock"),
            ({"XDG_RUNTIME_DIR": "/run/me", "NOUSED_SOCKET": "/x"}, "/x"),
        ):
            with unittest.mock.patch.dict(os.environ, env | more, clear=True):
                self.assertEqual(noused.default_socket(), want)

    def test_the_page(self):
        page = (HERE.parents[2] / "docs" / "clients.md").read_text()
        program = page.split("```python\n")[1].split("```")[0]
        env = os.environ | {"NOUSED_SOCKET": self.daemon.socket}
        run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
        self.assertTrue(run.stdout.startswith("what does this folder hold?\n{'provider': 'offline'"), run)

    def test_the_example(self):
        example = HERE.parent / "examples" / "ask.py"
        env = os.environ | {"NOUSED_SOCKET": self.daemon.socket}
        command = [sys.executable, example, outside("echo seen")]
        run = subprocess.run(command, env=env, input="once\n", capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("seen", run.stdout)
        self.assertIn("echo seen", run.stderr)
        self.assertLessEqual(len(example.read_text().splitlines()), 40)


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    async def relay(self):
        relay = await Relay.open(self.daemon)
        self.addAsyncCleanup(relay.close)
        return relay

    async def test_each_event_comes_once_over_lost_connections(self):
        relay = await self.relay()
        async with noused.AsyncClient(relay.socket) as client, client.events() as events:
            seen = [await anext(events)] if await client.prompt("zero") else []
            for text in ("one", "two", "three"):
                relay.cut()
                self.assertEqual(await client.prompt(text), text)
                while seen[-1]["payload"].get("text") != text:  # that of its first message
                    seen.append(await anext(events))
        self.assertEqual([e["seq"] for e in seen], list(range(seen[0]["seq"], seen[0]["seq"] + len(seen))))
        self.assertEqual(relay.cuts, 6)

    async def test_an_answer_that_was_lost_is_asked_for_again(self):
        relay = await self.relay()
        async with noused.AsyncClient(self.daemon.socket) as other, other.events(types=["agent_end"]) as ends:
            async with noused.AsyncClient(relay.socket) as client:
                session = (await client.call("get_state"))["session_id"]
                relay.deaf = True
                answer = asyncio.create_task(client.prompt("once", session_id=session))
                await anext(ends)
                relay.deaf = False
                relay.cut()
                self.assertEqual(await answer, "once")
            messages = (await other.call("get_messages"))["messages"]
        self.assertEqual([m["text"] for m in messages if m["role"] == "user"], ["once"])

    async def test_a_restart_is_told_as_a_gap(self):
        async with noused.AsyncClient(self.daemon.socket) as client, client.events() as events:
            await client.prompt("before")
            self.daemon.restart()
            codes = []
            while "events_dropped" not in codes:
                codes.append((await anext(events))["payload"].get("code"))
            await client.prompt("after")
            async for event in events:
                if event["type"] == "agent_end":
                    break

    async def test_events_go_on_where_another_stream_ended(self):
        async with noused.AsyncClient(self.daemon.socket) as client:
            async with client.events(types=["agent_end"]) as events:
                await client.prompt("one")
                await anext(events)
            await client.prompt("two")
            later = client.events(types=["agent_end"], epoch=events.epoch, after=events.last)
            first = await anext(later)
            self.assertGreater(first["seq"], events.last)

    async def test_what_may_do_harm_twice_is_not_sent_again(self):
        async with noused.AsyncClient(self.daemon.socket) as client:
            call = client.call("extension_command", name="bash", payload={"command": "sleep 600"})
            called, read = asyncio.create_task(call), asyncio.create_task(client.call("ping"))
            await read  # answered after the call was read
            self.daemon.restart()
            with self.assertRaises(noused.Error) as failed:
                await called
        self.assertEqual(failed.exception.code, "connection_lost")

    async def test_the_callback_is_asked_by_sessions_side_by_side(self):
        both = asyncio.Barrier(2)

        async def on_approval(approval):
            await both.wait()
            return "once"

        async with noused.AsyncClient(self.daemon.socket, on_approval) as client:
            async with noused.AsyncClient(self.daemon.socket) as other:
                made = [await other.call("new_session", activate=False) for _ in range(2)]
            runs = (client.prompt(outside("echo seen"), session_id=s["session_id"]) for s in made)
            for answer in await asyncio.gather(*runs):
                self.assertIn("seen", answer)

    async def test_somebody_elses_answer_cancels_the_callback(self):
        asked, cancelled = asyncio.Queue(), asyncio.Event()

        async def on_approval(approval):
            asked.put_nowait(approval["approval_id"])
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with noused.AsyncClient(self.daemon.socket, on_approval) as client:
            answer = asyncio.create_task(client.prompt(outside("echo seen")))
            async with noused.AsyncClient(self.daemon.socket) as other:
                await other.call("approve", approval_id=await asked.get(), option="once")
            self.assertIn("seen", await answer)
            await cancelled.wait()

    async def test_a_cancelled_prompt_leaves_nothing(self):
        tasks, files = asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))
        async with noused.AsyncClient(self.daemon.socket, lambda approval: "once") as client:
            async with client.events(types=["tool_execution_start"]) as events:
                prompt = asyncio.create_task(client.prompt(SLEEPS))
                await anext(events)
            prompt.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await prompt
            self.assertEqual((await client.call("get_state"))["run_state"], "running")
        self.assertEqual(asyncio.all_tasks(), tasks)
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)

    async def test_what_is_no_daemon_is_said_so(self):
        for said, code in (
            (b"HTTP/1.1 400 Bad Request\r\n", "invalid_reply"),
            (b"[]\n", "invalid_reply"),
            (b'{"id":"c1","ok":false,"error":"x"}\n', "invalid_reply"),
            (b'{"id":"c1","ok":false,"error":{"code":[1],"message":{}}}\n', "invalid_reply"),
            (b'{"id":[1],"ok":true,"payload":{}}\n', "invalid_reply"),
            (b'{"id":"c7","error":5}\n', "invalid_reply"),
            (b"", "connection_lost"),
            (b'{"id":"","ok":false,"error":{"code":"internal_error","message":"full"}}\n', "internal_error"),
        ):
            async def answer(reader, writer):
                await reader.readline()
                writer.write(said)
                writer.close()

            path = os.path.join(self.daemon.dir, "other")
            async with await asyncio.start_unix_server(answer, path):
                async with noused.AsyncClient(path) as client:
                    with self.subTest(said), self.assertRaises(noused.Error) as failed:
                        await client.call("ping")
            self.assertEqual(failed.exception.code, code)

    async def test_events_that_are_none_are_said_so(self):
        subscribed = b'{"id":"s1","ok":true,"payload":{"gap":false,"epoch":"e","next_seq":5}}\n'
        for said in (
            b'{"id":"s1","ok":true,"payload":{}}\n',
            subscribed.replace(b"5", b'"5"'),
            subscribed + b'{"seq":"5","payload":{}}\n',
            subscribed + b'{"seq":5}\n',
        ):
            async def answer(reader, writer):
                await reader.readline()
                writer.write(said)
                writer.close()

            path = os.path.join(self.daemon.dir, "other")
            async with await asyncio.start_unix_server(answer, path + ".events"):
                async with noused.AsyncClient(path) as client:
                    with self.subTest(said), self.assertRaises(noused.Error) as failed:
                        async with client.events() as events:
                            await anext(events)
            self.assertEqual(failed.exception.code, "invalid_reply")

    async def test_a_socket_that_others_could_replace_is_not_trusted(self):
        folder = os.path.join(self.daemon.dir, "open")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        async with await asyncio.start_unix_server(lambda reader, writer: None, folder + "/s"):
            async with noused.AsyncClient(folder + "/s") as client:
                with self.assertRaisesRegex(noused.Error, "untrusted: others may write to .*mode 0777"):
                    await client.call("ping")


class Relay:
    """Stands between a client and the daemon, and can cut their connections."""

    @classmethod
    async def open(cls, daemon):
        self = cls()
        self.socket, self.cuts, self.deaf = os.path.join(daemon.dir, "relay"), 0, False
        self._open, self._serving, self._servers = set(), set(), []
        for end in ("", ".events"):
            async def serve(reader, writer, end=end):
                up = await asyncio.open_unix_connection(daemon.socket + end)
                pair = (writer, up[1])
                self._open.add(pair)
                self._serving.add(asyncio.current_task())
                await asyncio.gather(self._copy(reader, up[1], False), self._copy(up[0], writer, True))
                self._open.discard(pair)

            self._servers.append(await asyncio.start_unix_server(serve, self.socket + end))
        return self

    async def _copy(self, reader, writer, answers):
        try:
            while data := await reader.read(1 << 16):
                if not (answers and self.deaf):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        writer.close()

    def cut(self):
        for pair in self._open:
            self.cuts += 1
            for writer in pair:
                writer.transport.abort()
        self._open.clear()

    async def close(self):
        for server in self._servers:
            server.close()
        self.cut()
        await asyncio.gather(*self._serving)


if __name__ == "__main__":
    unittest.main()
