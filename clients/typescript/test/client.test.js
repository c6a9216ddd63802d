// Client with a real daemon, which is killed under it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { test } from "node:test";

import { Client, defaultSocket, NousedError } from "../index.js";
import { Daemon, outside, Relay } from "./daemon.js";

const SLEEPS = '!bash {"command":"sleep 600"}';
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);

// opened is a client of a daemon, closed with the test.
function opened(t, daemon, more = {}) {
  const client = new Client({ socket: daemon.socket, ...more });
  t.after(() => client.close());
  return client;
}

async function texts(client, role) {
  const { messages } = await client.call("get_messages");
  return messages.filter((m) => m.role === role).map((m) => m.text);
}

const code = (wanted) => (e) => e instanceof NousedError && (assert.equal(e.code, wanted), true);

test("a prompt returns the answer", async (t) => {
  const client = opened(t, await Daemon.start(t));
  const { session_id } = await client.call("new_session", { title: "the second", activate: false });
  assert.equal(await client.prompt("good morning"), "good morning");
  assert.equal(await client.prompt("good evening", { session_id }), "good evening");
  assert.equal(await client.prompt("good night", { sessionId: session_id }), "good night");
  assert.deepEqual(await texts(client, "user"), ["good morning"]);
});

test("a prompt over kill -9 returns its answer once", async (t) => {
  const daemon = await Daemon.start(t);
  const client = opened(t, daemon);
  const { session_id } = await client.call("get_state");
  const events = client.events({ types: ["tool_execution_start"] });
  const answer = client.prompt(SLEEPS);
  await events.next();
  await client.call("new_session"); // another one is active when the text is sent again
  await daemon.restart();
  assert.match(await answer, /interrupted/);
  await client.call("switch_session", { session_id });
  assert.deepEqual(await texts(client, "user"), [SLEEPS]);
  assert.equal((await texts(client, "tool")).length, 1);
});

test("a prompt whose daemon was away for a while", async (t) => {
  const daemon = await Daemon.start(t);
  const client = opened(t, daemon);
  await client.call("ping");
  await daemon.kill();
  const answer = client.prompt("are you there?");
  await daemon.start();
  assert.equal(await answer, "are you there?");
});

test("errors have codes", async (t) => {
  const daemon = await Daemon.start(t);
  const client = opened(t, daemon, { reconnectMs: 100 });
  for (const [wanted, command, payload] of [
    ["session_not_found", "prompt", { text: "x", session_id: "ses-none" }],
    ["invalid_payload", "prompt", { text: "" }],
    ["command_rejected", "abort", {}],
    ["invalid_command", "no_such_command", {}],
    ["invalid_command", "prompt", { text: "x".repeat(16 << 20) }],
  ]) {
    await assert.rejects(client.call(command, payload), code(wanted));
  }
  assert.equal(await client.prompt("it goes on"), "it goes on");
  await daemon.kill();
  await assert.rejects(client.call("ping"), /no daemon at .*: any nous command starts one/);
  await assert.rejects(opened(t, daemon).call("ping"), code("no_daemon"));
});

test("what may do harm twice is not sent again", async (t) => {
  const daemon = await Daemon.start(t);
  const client = opened(t, daemon);
  const call = client.call("extension_command", { name: "bash", payload: { command: "sleep 600" } });
  const lost = assert.rejects(call, code("connection_lost"));
  await client.call("ping"); // answered after that was read
  await daemon.restart();
  await lost;
});

test("an answer that was lost is asked for again", async (t) => {
  const daemon = await Daemon.start(t);
  const relay = await Relay.start(t, daemon);
  const client = opened(t, relay);
  const other = opened(t, daemon);
  const { session_id } = await client.call("get_state");
  const ends = await other.events({ types: ["agent_end"] }).ready();
  relay.deaf = true;
  const answer = client.prompt("once", { session_id });
  await ends.next();
  relay.deaf = false;
  relay.cut();
  assert.equal(await answer, "once");
  assert.deepEqual(await texts(other, "user"), ["once"]);
});

test("each event comes once over lost connections", async (t) => {
  const relay = await Relay.start(t, await Daemon.start(t));
  const client = opened(t, relay);
  const events = client.events();
  await client.prompt("zero");
  const seen = [(await events.next()).value];
  for (const text of ["one", "two", "three"]) {
    relay.cut();
    assert.equal(await client.prompt(text), text);
    while (seen.at(-1).payload.text !== text) seen.push((await events.next()).value); // that of its first message
  }
  assert.deepEqual(seen.map((e) => e.seq), seen.map((_, i) => seen[0].seq + i));
  assert.equal(relay.cuts, 6);
});

test("a restart is told as a gap", async (t) => {
  const daemon = await Daemon.start(t);
  const client = opened(t, daemon);
  const events = client.events();
  await client.prompt("before");
  await daemon.restart();
  let gaps = 0;
  for await (const event of events) {
    if (event.payload.code === "events_dropped" && ++gaps === 1) assert.equal(await client.prompt("after"), "after");
    if (event.type === "agent_end" && gaps > 0) break;
  }
  assert.equal(gaps, 1);
  assert.deepEqual(await events.next(), { done: true, value: undefined });
});

test("an aborted run has no answer", async (t) => {
  const client = opened(t, await Daemon.start(t));
  const events = client.events({ types: ["tool_execution_start"] });
  const end = assert.rejects(client.prompt(SLEEPS), code("aborted"));
  await events.next();
  await client.call("abort");
  await end;
});

test("the callback answers", async (t) => {
  const asked = [];
  const answers = ["once", { option: "deny", reason: "use a branch" }];
  const onApproval = (approval) => answers[asked.push(approval) - 1];
  const client = opened(t, await Daemon.start(t), { onApproval });
  assert.match(await client.prompt(outside("echo seen")), /seen/);
  assert.match(await client.prompt(outside("echo unseen")), /use a branch/);
  assert.deepEqual(asked.map((a) => a.arguments.command), ["echo seen", "echo unseen"]);
});

test("the callback is asked by sessions side by side", async (t) => {
  const daemon = await Daemon.start(t);
  const other = opened(t, daemon);
  const asked = [];
  const onApproval = () => new Promise((answer) => asked.push(answer) === 2 && asked.forEach((answer) => answer("once")));
  const client = opened(t, daemon, { onApproval });
  const made = [await other.call("new_session"), await other.call("new_session")];
  const runs = made.map(({ session_id }) => client.prompt(outside("echo seen"), { session_id }));
  for (const answer of await Promise.all(runs)) assert.match(answer, /seen/);
});

test("without a callback nothing is waited for", async (t) => {
  const client = opened(t, await Daemon.start(t));
  assert.match(await client.prompt(outside("echo unseen")), /denied/);
});

test("a callback waits over kill -9 and is asked once", async (t) => {
  const daemon = await Daemon.start(t);
  const asked = [];
  let answer, called;
  const calling = new Promise((resolve) => (called = resolve));
  const onApproval = (approval) => {
    called(asked.push(approval));
    return new Promise((resolve) => (answer = resolve));
  };
  const client = opened(t, daemon, { onApproval });
  const events = client.events({ types: ["status"] });
  const requested = async () => {
    for (;;) if ((await events.next()).value.payload.code === "approval_requested") return;
  };
  const said = client.prompt(outside("echo seen"));
  await calling;
  await requested();
  await daemon.restart();
  await requested();
  answer("once");
  assert.match(await said, /seen/);
  assert.equal(asked.length, 1);
});

test("somebody else's answer ends the asking", async (t) => {
  const daemon = await Daemon.start(t);
  const other = opened(t, daemon);
  const client = opened(t, daemon, {
    onApproval: async ({ approval_id }, { signal }) => {
      const ended = once(signal, "abort");
      await other.call("approve", { approval_id, option: "once" });
      await ended;
      return "deny";
    },
  });
  assert.match(await client.prompt(outside("echo seen")), /seen/);
});

test("a callback that fails ends the prompt", async (t) => {
  const daemon = await Daemon.start(t);
  const broken = opened(t, daemon, { onApproval: () => { throw new TypeError("oops"); } });
  await assert.rejects(broken.prompt(outside("echo unseen")), new TypeError("oops"));
  assert.equal((await broken.call("get_state")).pending_approvals.length, 1);
  const { session_id } = await broken.call("new_session");
  const unsure = opened(t, daemon, { onApproval: () => "perhaps" });
  await assert.rejects(unsure.prompt(outside("echo unseen"), { session_id }), code("invalid_payload"));
});

test("close ends everything", async (t) => {
  const daemon = await Daemon.start(t);
  const files = fs.readdirSync("/proc/self/fd").length;
  const client = new Client({ socket: daemon.socket, onApproval: () => "once" });
  const events = client.events();
  const answer = assert.rejects(client.prompt(SLEEPS), code("closed"));
  for await (const { type } of client.events()) if (type === "tool_execution_start") break;
  const rest = (async () => { for await (const _ of events); })();
  await client.close();
  await answer;
  await rest;
  await assert.rejects(client.call("ping"), code("closed"));
  await client.close();
  assert.equal(fs.readdirSync("/proc/self/fd").length, files);
});

test("what is no daemon is said so", async (t) => {
  const daemon = await Daemon.start(t);
  for (const [said, wanted] of [
    ["HTTP/1.1 400 Bad Request\r\n", "invalid_reply"],
    ["[]\n", "invalid_reply"],
    ['{"id":"c1","ok":false,"error":"x"}\n', "invalid_reply"],
    ['{"id":"c1","ok":false,"error":{"code":[1],"message":{}}}\n', "invalid_reply"],
    ['{"id":"c1","ok":true,"payload":[]}\n', "invalid_reply"],
    ['{"id":[1],"ok":true,"payload":{}}\n', "invalid_reply"],
    ['{"id":"c7","error":5}\n', "invalid_reply"],
    ["", "connection_lost"],
    ['{"id":"","ok":false,"error":{"code":"internal_error","message":"full"}}\n', "internal_error"],
  ]) {
    const server = net.createServer((conn) => conn.once("data", () => conn.end(said)));
    const socket = path.join(daemon.dir, "other");
    server.listen(socket);
    await once(server, "listening");
    await assert.rejects(opened(t, { socket }).call("ping"), code(wanted));
    server.close();
  }
  const open = path.join(daemon.dir, "open");
  fs.mkdirSync(open);
  fs.chmodSync(open, 0o777);
  const server = net.createServer().listen(path.join(open, "s"));
  await once(server, "listening");
  await assert.rejects(opened(t, { socket: path.join(open, "s") }).call("ping"), /others may write to .*mode 777/);
  server.close();
});

test("events that are none are said so", async (t) => {
  const daemon = await Daemon.start(t);
  const subscribed = '{"id":"s1","ok":true,"payload":{"gap":false,"epoch":"e","next_seq":5}}\n';
  for (const said of [
    '{"id":"s1","ok":true,"payload":{}}\n',
    subscribed.replace("5", '"5"'),
    subscribed + '{"seq":"5","payload":{}}\n',
    subscribed + '{"seq":5}\n',
  ]) {
    const server = net.createServer((conn) => conn.once("data", () => conn.end(said)));
    const socket = path.join(daemon.dir, "other");
    server.listen(socket + ".events");
    await once(server, "listening");
    await assert.rejects(opened(t, { socket }).events().next(), code("invalid_reply"));
    server.close();
  }
});

test("the default socket", () => {
  const { NOUSED_SOCKET, XDG_RUNTIME_DIR } = process.env;
  try {
    delete process.env.NOUSED_SOCKET;
    process.env.XDG_RUNTIME_DIR = "/run/me";
    assert.equal(defaultSocket(), "/run/me/noused/noused.sock");
    delete process.env.XDG_RUNTIME_DIR;
    assert.equal(defaultSocket(), `/tmp/noused-${process.getuid()}/noused.sock`);
    process.env.NOUSED_SOCKET = "/x";
    assert.equal(defaultSocket(), "/x");
  } finally {
    for (const [name, value] of Object.entries({ NOUSED_SOCKET, XDG_RUNTIME_DIR })) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
});

test("the page", async (t) => {
  const daemon = await Daemon.start(t);
  const page = fs.readFileSync(path.join(here, "..", "..", "..", "docs", "clients.md"), "utf8");
  const program = page.split("```js\n")[1].split("```")[0];
  const env = { ...process.env, NOUSED_SOCKET: daemon.socket };
  const out = await new Promise((resolve) => {
    // The package's own name leads to it where it is the working folder.
    const where = { env, cwd: path.join(here, "..") };
    execFile(process.execPath, ["--input-type=module", "-e", program], where, (_, ...end) => resolve(end));
  });
  assert.match(out[0], /^what does this folder hold\?\n{ provider: 'offline'/, out[1]);
});

test("the example", async (t) => {
  const daemon = await Daemon.start(t);
  const example = path.join(here, "..", "examples", "ask.js");
  const env = { ...process.env, NOUSED_SOCKET: daemon.socket };
  const [error, out, err] = await new Promise((resolve) => {
    const child = execFile(process.execPath, [example, outside("echo seen")], { env }, (...end) => resolve(end));
    child.stdin.end("once\n");
  });
  assert.equal(error, null);
  assert.match(out, /seen/);
  assert.match(err, /echo seen/);
  assert.ok(fs.readFileSync(example, "utf8").trimEnd().split("\n").length <= 40);
});
