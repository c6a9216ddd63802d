// The daemon's events, over any number of connections.

import { closed, connect, encode, HELLO, isObject, lines, NousedError, resultOf, within } from "./wire.js";

const MISSED = "events are missing: the daemon was restarted, or no longer has them; see get_state and get_messages";

export class Events {
  #link;
  #where;
  #conn;
  #lines;
  #gap = false;
  #closed = false;

  constructor(link, where) {
    this.epoch = where.epoch ?? "";
    this.last = where.after ?? 0;
    this.#link = link;
    this.#where = where;
    link.streams.add(this);
    this.subscribing = link.patiently(() => this.#subscribe());
    this.subscribing.catch(() => {}); // next says it
  }

  async ready() {
    await this.subscribing;
    return this;
  }

  async next() {
    try {
      await this.subscribing;
      return { done: false, value: await this.#next() };
    } catch (e) {
      if (this.#closed) return { done: true, value: undefined };
      throw e;
    }
  }

  async return() {
    this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  close() {
    this.#closed = true;
    this.#link.streams.delete(this);
    this.#conn?.destroy();
  }

  async #next() {
    for (;;) {
      if (!this.#lines) await this.#link.patiently(() => this.#subscribe());
      if (this.#gap) {
        this.#gap = false;
        const payload = { code: "events_dropped", message: MISSED };
        return { v: "1", id: "", type: "warning", ts: new Date().toISOString(), payload };
      }
      try {
        const { value } = await this.#lines.next();
        if (!Number.isInteger(value.seq) || !isObject(value.payload)) {
          throw new NousedError("invalid_reply", "an event has no seq or no payload");
        }
        this.last = value.seq;
        return value;
      } catch (e) {
        this.#conn.destroy();
        this.#lines = undefined;
        if (e.code !== "connection_lost" || this.#closed) throw e;
      }
    }
  }

  // #subscribe subscribes where the last connection ended.
  async #subscribe() {
    if (this.#closed) throw closed();
    const where = this.epoch ? { ...this.#where, epoch: this.epoch, after: this.last } : this.#where;
    const conn = await connect(this.#link.socket + ".events");
    try {
      const read = lines(conn);
      conn.write(encode("s1", "subscribe", where));
      const said = await within(HELLO, "subscribe", confirmation(read));
      if (typeof said.gap !== "boolean" || typeof said.epoch !== "string" || !Number.isInteger(said.next_seq)) {
        throw new NousedError("invalid_reply", "the answer to subscribe has no gap, epoch or next_seq");
      }
      if (this.#closed) throw closed();
      Object.assign(this, { epoch: said.epoch, last: said.next_seq - 1 });
      [this.#conn, this.#lines, this.#gap] = [conn, read, said.gap];
    } catch (e) {
      conn.destroy();
      throw e;
    }
  }
}

// confirmation is the daemon's answer. What came before it is in what was asked for.
async function confirmation(read) {
  for (;;) {
    const { value } = await read.next();
    if (value.id === "s1" || value.id === "") return resultOf(value);
  }
}
