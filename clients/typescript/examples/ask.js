#!/usr/bin/env node
// Asks the daemon something, as nous prompt does: node ask.js TEXT
//
// Tool calls are shown on standard error as they are made. What needs an approval is asked
// there, too. The answer goes to standard output.

import { createInterface } from "node:readline/promises";

import { Client, NousedError } from "../index.js"; // outside of this tree: from "noused"

async function onApproval(approval, { signal }) {
  console.error(`${approval.tool_name ?? approval.kind} asks (${approval.rule}):`);
  console.error(JSON.stringify(approval.arguments, null, 2));
  for (const option of approval.options) {
    console.error(`  ${option.id}: ${option.decision} ${option.pattern ?? ""}`);
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  return (await terminal.question("? ", { signal }).finally(() => terminal.close())).trim();
}

async function show(events) {
  for await (const event of events) {
    if (event.type === "tool_execution_start") console.error(`[${event.payload.tool_name}]`);
  }
}

const client = new Client({ onApproval });
try {
  const shown = show(client.events({ types: ["tool_execution_start"] }));
  console.log(await client.prompt(process.argv.slice(2).join(" ")));
  await client.close();
  await shown;
} catch (e) {
  console.error(e instanceof NousedError ? `ask.js: ${e.code}: ${e.message}` : e);
  process.exitCode = 1;
} finally {
  await client.close();
}
