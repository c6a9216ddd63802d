// A connection to the daemon that comes back by itself.

import { setTimeout as sleep } from "node:timers/promises";

import { closed, Connection, NousedError } from "./wire.js";

// What is not sent again when its answer is lost: it may have been done, and may do harm twice.
const ONCE = ["extension_command", "call_tool", "compact_session", "shutdown", "delete_session", "withdraw", "branch_session"];
// What takes as long as what it does.
const LATE = ["extension_command", "call_tool", "compact_session", "prune", "get_changes", "rewind", "undo_rewind"];
const ANSWER = 30_000; // milliseconds for the answer to everything else
const PAUSE = 20; // milliseconds between tries, at first and at most
const MAX_PAUSE = 500;
const MAX_SENDS = 100; // of one command

export class Link {
  streams = new Set(); // of events

  #reconnect;
  #connection;
  #connecting;
  #met = false; // a daemon has answered
  #stop = new AbortController();

  constructor(socket, reconnect) {
    this.socket = socket;
    this.#reconnect = reconnect;
  }

  async close() {
    this.#stop.abort();
    for (const events of this.streams) events.close();
    await this.#connecting?.catch(() => {});
    await this.#connection?.close();
  }

  // send sends a command, and again where the daemon went away without doing it, or it can be done twice.
  async send(type, payload) {
    const late = LATE.includes(type) || (type === "prompt" && payload.wait !== false);
    const once = ONCE.includes(type) || (type === "abort" && !payload.run_id) ||
      (["rewind", "undo_rewind"].includes(type) && !payload.dry_run);
    for (let sends = 1; ; sends++) {
      const connection = await this.#connect();
      try {
        return await connection.request(type, payload, late ? undefined : ANSWER);
      } catch (e) {
        if (sends >= MAX_SENDS || !(e instanceof NousedError)) throw e;
        if (e.says("shutting_down") && !(once && e.cause === "it had begun")) await this.#pause(MAX_PAUSE);
        else if (e.code !== "connection_lost" || once) throw e;
      }
    }
  }

  // patiently connects, and tries again while a daemon that was there is away.
  async patiently(attempt) {
    const until = Date.now() + (this.#met ? this.#reconnect : 0);
    for (let pause = PAUSE; ; pause = Math.min(2 * pause, MAX_PAUSE)) {
      if (this.#stop.signal.aborted) throw closed();
      try {
        const made = await attempt();
        this.#met = true;
        return made;
      } catch (e) {
        const away = ["no_daemon", "connection_lost", "timeout"].includes(e.code) || e.says?.("shutting_down");
        if (!away || Date.now() + pause > until) throw e;
      }
      await this.#pause(pause);
    }
  }

  async #connect() {
    if (this.#connection && !this.#connection.lost) return this.#connection;
    return (this.#connecting ??= this.#open());
  }

  async #open() {
    try {
      return (this.#connection = await this.patiently(() => Connection.open(this.socket)));
    } finally {
      this.#connecting = undefined;
    }
  }

  async #pause(time) {
    await sleep(time, undefined, { signal: this.#stop.signal }).catch(() => {
      throw closed();
    });
  }
}
