// drive.mjs NOUS SOCKET FOLDER: the official client drives each row of the contract
// against a daemon that asks before edits, has an agent scripted, and a tool slow that
// waits for a line in the fifo go.
import { spawn } from "node:child_process";
import { writeFile, readFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import assert from "node:assert/strict";
import * as acp from "@agentclientprotocol/sdk";

const [nous, socket, folder] = process.argv.slice(2);
const bridge = spawn(nous, ["--no-start", "--socket", socket, "acp"], { stdio: ["pipe", "pipe", "inherit"] });
const updates = [], asked = [];
let answer = () => ({ outcome: { outcome: "selected", optionId: "once" } });
let wake = () => {};
const until = async (fits) => { while (!fits()) await new Promise((next) => (wake = next)); };
const text = (text) => [{ type: "text", text }];
const kinds = () => updates.map((u) => u.update.sessionUpdate);
const said = () => updates.filter((u) => u.update.sessionUpdate === "agent_message_chunk").map((u) => u.update.content.text).join("");

await acp.client({ name: "driver" })
  .onNotification(acp.CLIENT_METHODS.session_update, ({ params }) => { updates.push(params); wake(); })
  .onRequest(acp.CLIENT_METHODS.session_request_permission, async ({ params, signal }) => { asked.push(params); wake(); return answer(params, signal); })
  .connectWith(acp.ndJsonStream(Writable.toWeb(bridge.stdin), Readable.toWeb(bridge.stdout)), async (ctx) => {
    const M = acp.AGENT_METHODS, call = (method, params) => ctx.request(method, params);
    const init = await call(M.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
    assert.equal(init.protocolVersion, 1);
    assert.ok(init.agentCapabilities.loadSession && init.agentCapabilities.promptCapabilities.image && init.agentCapabilities.mcpCapabilities.http);
    assert.deepEqual(Object.keys(init.agentCapabilities.sessionCapabilities).sort(), ["delete", "list", "resume"]);

    const made = await call(M.session_new, { cwd: folder, mcpServers: [] });
    const sessionId = made.sessionId;
    assert.equal(made.modes.currentModeId, "ask");
    assert.deepEqual(made.configOptions.map((o) => o.id), ["agent", "model", "effort", "approvals", "steering"]);

    assert.equal((await call(M.session_prompt, { sessionId, prompt: text("?hm\nhello") })).stopReason, "end_turn");
    assert.ok(said().endsWith("hello") && kinds().includes("agent_thought_chunk"));

    await writeFile(folder + "/a.txt", "one\n"); // a question, and the diff
    const edit = '!edit {"path":"a.txt","old_text":"one","new_text":"two"}';
    await call(M.session_prompt, { sessionId, prompt: text(edit) });
    assert.deepEqual(asked[0].options.map((o) => o.kind).filter((k) => k !== "allow_always"), ["allow_once", "reject_once"]);
    assert.equal(await readFile(folder + "/a.txt", "utf8"), "two\n");
    assert.ok(updates.some((u) => u.update.status === "completed" && u.update.content?.[0]?.type === "diff"));

    const running = call(M.session_prompt, { sessionId, prompt: text("!slow.run") }); // cancel, with one that waits
    await until(() => updates.some((u) => u.update.status === "in_progress" && u.update.toolCallId !== asked[0].toolCall.toolCallId));
    const waiting = call(M.session_prompt, { sessionId, prompt: text("later") });
    await call("_noused/steer", { sessionId, prompt: text("now") });
    await ctx.notify(M.session_cancel, { sessionId });
    assert.equal((await running).stopReason, "cancelled");
    assert.equal((await waiting).stopReason, "cancelled");
    assert.ok(said().includes("Not delivered") && said().includes("later"));

    await call(M.session_set_mode, { sessionId, modeId: "auto" });
    const { configOptions } = await call(M.session_set_config_option, { sessionId, configId: "steering", value: "all" });
    assert.equal(configOptions.find((o) => o.id === "approvals").currentValue, "auto");
    assert.equal(configOptions.find((o) => o.id === "steering").currentValue, "all");
    assert.ok(kinds().includes("available_commands_update") && kinds().includes("current_mode_update"));

    const { sessions } = await call(M.session_list, { cwd: folder });
    assert.deepEqual(sessions.map((s) => s.sessionId), [sessionId]);
    updates.length = 0;
    await call(M.session_load, { sessionId, cwd: folder, mcpServers: [] });
    assert.ok(kinds().filter((k) => k === "user_message_chunk").length >= 3 && said().includes("hello"));
    updates.length = 0;
    await call(M.session_resume, { sessionId, cwd: folder, mcpServers: [] });
    assert.ok(!kinds().includes("user_message_chunk"));

    await assert.rejects(call(M.session_prompt, { sessionId: "ses-none", prompt: text("x") }), (e) => e.code === -32002);
    await assert.rejects(call(M.session_new, { cwd: "src", mcpServers: [] }), (e) => e.code === -32602);
    await assert.rejects(call("session/fork", {}), (e) => e.code === -32601);

    const three = await Promise.all([1, 2, 3].map(() => call(M.session_new, { cwd: folder, mcpServers: [] })));
    updates.length = 0;
    await Promise.all(three.map(({ sessionId }, i) => call(M.session_prompt, { sessionId, prompt: text("words of " + i) })));
    three.forEach(({ sessionId }, i) => assert.equal(
      updates.filter((u) => u.sessionId === sessionId && u.update.sessionUpdate === "agent_message_chunk").map((u) => u.update.content.text).join(""), "words of " + i));
    await call(M.session_delete, { sessionId: three[0].sessionId });

    const theirs = (await call(M.session_new, { cwd: folder, mcpServers: [] })).sessionId; // another agent's turns
    const choose = (value) => call(M.session_set_config_option, { sessionId: theirs, configId: "agent", value });
    assert.equal((await choose("scripted")).configOptions.find((o) => o.id === "agent").currentValue, "scripted");
    updates.length = 0;
    await call(M.session_prompt, { sessionId: theirs, prompt: text("!say it is me") });
    assert.ok(said().includes("it is me"));
    await assert.rejects(choose("noused"), (e) => e.code === -32602);
  });
bridge.stdin.end();
const status = await new Promise((done) => (bridge.exitCode === null ? bridge.on("exit", done) : done(bridge.exitCode)));
assert.equal(status, 0);
console.log("driven");
