// The approvals that the runs of one client wait for.

import { Events } from "./events.js";
import { NousedError } from "./wire.js";

// Approvals asks the callback about each approval of the sessions that the client has sent a text to.
export class Approvals {
  #link;
  #callback;
  #sessions = new Set();
  #asked = new Map(); // by approval, until it is known to be resolved: what ends the asking
  #waiting = new Set(); // those who wait for a run: its session, and how to fail them
  #events;
  #following;

  constructor(link, callback) {
    this.#link = link;
    this.#callback = callback;
  }

  // guard waits for the answer to a text. It fails, too, when the callback does: the approval stays open then.
  async guard(session, sent) {
    let waits;
    const failed = new Promise((_, fail) => this.#waiting.add((waits = { session, fail })));
    try {
      return await Promise.race([sent, failed]);
    } finally {
      this.#waiting.delete(waits);
      sent.catch(() => {}); // nobody waits for it any more
    }
  }

  // watch returns once no later approval of the session can be missed.
  async watch(session) {
    if (!this.#following) {
      this.#sessions.clear();
      this.#events = new Events(this.#link, { types: ["status", "warning"] });
      this.#following = this.#follow(this.#events);
    }
    await this.#events.ready();
    if (!this.#sessions.has(session)) {
      this.#sessions.add(session);
      await this.#look(session);
    }
  }

  async close() {
    for (const asked of this.#asked.values()) asked.abort();
    await this.#following;
  }

  async #follow(events) {
    try {
      for await (const { payload } of events) await this.#apply(payload);
    } catch {
      // The daemon stays away, as those who wait for a run learn, too.
    } finally {
      this.#following = undefined;
    }
  }

  async #apply(payload) {
    const { code, session_id, run_id, approval, approval_id } = payload;
    if (code === "approval_requested" && this.#sessions.has(session_id)) this.#ask({ session_id, run_id, ...approval });
    if (code === "approval_resolved") {
      this.#asked.get(approval_id)?.abort();
      this.#asked.delete(approval_id);
    }
    if (code === "events_dropped") for (const session of [...this.#sessions]) await this.#look(session);
  }

  // #look asks what the session waits for already.
  async #look(session) {
    try {
      const state = await this.#link.send("get_state", { session_id: session });
      for (const approval of state.pending_approvals ?? []) {
        if (approval.session_id === session) this.#ask(approval);
      }
    } catch (e) {
      this.#sessions.delete(session);
      if (e.code !== "session_not_found") throw e;
    }
  }

  #ask(approval) {
    if (this.#asked.has(approval.approval_id)) return; // a restarted daemon asks again
    const asked = new AbortController();
    this.#asked.set(approval.approval_id, asked);
    this.#answer(approval, asked.signal);
  }

  async #answer(approval, signal) {
    const { approval_id, session_id } = approval;
    try {
      const answer = await this.#callback(approval, { signal });
      const fields = typeof answer === "object" ? answer : { option: answer };
      if (!signal.aborted) await this.#link.send("approve", { session_id, approval_id, ...fields });
    } catch (e) {
      if (signal.aborted || (e instanceof NousedError && e.says("approval_resolved", "no_such_approval"))) return;
      const waiting = [...this.#waiting].filter((w) => w.session === session_id);
      for (const { fail } of waiting) fail(e);
      if (waiting.length === 0) queueMicrotask(() => { throw e; });
    }
  }
}
