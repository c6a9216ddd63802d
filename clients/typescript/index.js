// A client for noused, a daemon that runs AI agents. index.d.ts says what each part promises.

import { randomUUID } from "node:crypto";

import { Approvals } from "./approvals.js";
import { Events } from "./events.js";
import { Link } from "./link.js";
import { defaultSocket, NousedError } from "./wire.js";

export { defaultSocket, NousedError };

const TEXTS = ["prompt", "steer", "follow_up"]; // what an idempotency key has done once

export class Client {
  #link;
  #approvals;

  constructor({ socket, onApproval, reconnectMs = 30_000 } = {}) {
    this.#link = new Link(socket ?? defaultSocket(), reconnectMs);
    if (onApproval) this.#approvals = new Approvals(this.#link, onApproval);
  }

  async prompt(text, more = {}) {
    const unasked = this.#approvals ? {} : { approvals: "deny" };
    const reply = await this.call("prompt", { ...unasked, ...named(more), text, wait: true });
    if (await this.#wasAborted(reply)) throw new NousedError("aborted", `run ${reply.run_id} was aborted`);
    return reply.output;
  }

  async call(type, payload = {}) {
    await Promise.allSettled([...this.#link.streams].map((events) => events.subscribing));
    if (!TEXTS.includes(type)) return this.#link.send(type, payload);
    // Another session may be the active one when the text is sent again.
    const session_id = payload.session_id ?? (await this.#link.send("get_state", {})).session_id;
    const text = { ...payload, session_id, idempotency_key: payload.idempotency_key ?? randomUUID() };
    if (!this.#approvals) return this.#link.send(type, text);
    await this.#approvals.watch(session_id);
    return this.#approvals.guard(session_id, this.#link.send(type, text));
  }

  events(where = {}) {
    return new Events(this.#link, named(where));
  }

  async close() {
    const asked = this.#approvals?.close();
    await this.#link.close();
    await asked;
  }

  async #wasAborted({ session_id, run_id, events }) {
    const last = events.at(-1);
    if (last?.type === "agent_end") return last.payload.stop_reason === "aborted";
    const { runs } = await this.#link.send("get_messages", { session_id, limit: 1 });
    return runs?.find((run) => run.run_id === run_id)?.stop_reason === "aborted";
  }
}

// named has sessionId under the protocol's name.
function named({ sessionId, ...fields }) {
  return sessionId === undefined ? fields : { session_id: sessionId, ...fields };
}
