#!/usr/bin/env node
// File names from titles: a gevals extension (protocol 0.0.1) in Node, without
// packages. JSON-RPC 2.0, one object per line, until shutdown or the end of stdin.
"use strict";
const lines = require("node:readline").createInterface({ input: process.stdin });

const manifest = {
  name: "slug", version: "1.0.0", protocolVersion: "0.0.1",
  operations: {
    make: {
      description: "Turn a title into a file name",
      params: {
        type: "object",
        properties: { title: { type: "string", minLength: 1 }, ext: { type: "string", default: "" } },
        required: ["title"],
      },
    },
  },
};
let separator = "-"; // from the descriptor's config, handed to initialize

const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const log = (message) => send({ method: "log", params: { level: "info", message } });
const fault = (code, message) => ({ error: { code, message } });

function make({ title, ext = "" }) {
  if (typeof title !== "string") return fault(-32602, "title: want a string");
  log(`reading ${title.length} characters`);
  const words = title.normalize("NFKD").toLowerCase().match(/[a-z0-9]+/g);
  // A failure of the operation is a result; an error is for requests that make no sense.
  if (!words) return { result: { success: false, error: "the title has no letters to use" } };
  const name = words.join(separator) + ext;
  return { result: { success: true, message: name, outputs: { name, words: String(words.length) } } };
}

function answer(method, params = {}) {
  switch (method) {
    case "initialize":
      separator = params.config?.separator ?? separator;
      return { result: manifest };
    case "shutdown":
      lines.close(); // nothing is left to wait for: the process ends
      process.stdin.destroy();
      return { result: {} };
    case "execute":
      return params.operation === "make" ? make(params.args ?? {}) : fault(-32601, `Unknown operation: ${params.operation}`);
  }
  return fault(-32601, `Unknown method: ${method}`);
}

lines.on("line", (line) => {
  if (!line.trim()) return;
  let request;
  try { request = JSON.parse(line); } catch (e) { return send({ id: null, ...fault(-32700, e.message) }); }
  if (request.id !== undefined) send({ id: request.id, ...answer(request.method, request.params) });
});
