// Lines of JSON over the daemon's two sockets: one connection, and no word of sessions.

import fs from "node:fs";
import net from "node:net";
import path from "node:path";

const MAX_COMMAND = 16 << 20; // bytes of a line to the daemon (its --max-line)
const MAX_REPLY = 128 << 20; // and from it: of a conversation it sends 64 MiB at once
const MAX_PATH = 107; // bytes of a socket's path
export const HELLO = 5000; // milliseconds for a daemon's first sign of life

export class NousedError extends Error {
  constructor(code, message, cause = "") {
    super(message, cause ? { cause } : undefined);
    this.name = "NousedError";
    this.code = code;
  }

  // Whether the message begins with one of the protocol's words, such as no_active_run.
  says(...reasons) {
    return reasons.includes(this.message.split(":")[0]);
  }
}

export const closed = () => new NousedError("closed", "the client is closed");
const lost = (why) => new NousedError("connection_lost", "connection to the daemon lost" + (why ? ` (${why})` : ""));

export function defaultSocket() {
  const { NOUSED_SOCKET, XDG_RUNTIME_DIR } = process.env;
  if (NOUSED_SOCKET) return NOUSED_SOCKET;
  const folder = XDG_RUNTIME_DIR ? path.join(XDG_RUNTIME_DIR, "noused") : `/tmp/noused-${process.getuid()}`;
  return path.join(folder, "noused.sock");
}

// connect connects to a socket where nobody but this user and root can be listening, as far
// as files tell: Node cannot ask the kernel who listens.
export async function connect(socket) {
  if (Buffer.byteLength(socket) > MAX_PATH) {
    throw new NousedError("no_daemon", `${socket} is longer than the ${MAX_PATH} bytes of a socket's path`);
  }
  const conn = await new Promise((resolve, reject) => {
    try {
      checkOwner(socket);
      const conn = net.connect({ path: socket }, () => resolve(conn.off("error", reject)));
      conn.on("error", reject);
    } catch (e) {
      reject(e);
    }
  }).catch((e) => {
    if (e instanceof NousedError) throw e;
    throw new NousedError("no_daemon", `no daemon at ${socket} (${e.code}): any nous command starts one`);
  });
  return conn.on("error", () => {}); // who reads is told
}

function checkOwner(socket) {
  const folder = path.dirname(path.resolve(socket));
  for (const place of [folder, socket]) {
    const owner = fs.statSync(place).uid;
    if (owner !== process.geteuid() && owner !== 0) {
      throw new NousedError("untrusted", `${place} belongs to user ${owner}, neither to you nor to root`);
    }
  }
  const { mode } = fs.statSync(folder);
  if (mode & 0o022 && !(mode & 0o1000)) {
    throw new NousedError("untrusted", `others may write to ${folder} (mode ${(mode & 0o7777).toString(8)})`);
  }
}

export function encode(id, type, payload) {
  const line = JSON.stringify({ v: "1", id, type, payload }) + "\n";
  const bytes = Buffer.byteLength(line);
  if (bytes > MAX_COMMAND) {
    const message = `line_too_long: ${type} has ${bytes} bytes, a line at most ${MAX_COMMAND}`;
    throw new NousedError("invalid_command", message);
  }
  return line;
}

// resultOf is a reply's payload. An error reply is thrown.
export function resultOf({ ok, payload, error }) {
  if (ok && isObject(payload)) return payload;
  throw errorOf(error);
}

function errorOf(error) {
  if (typeof error?.code === "string" && typeof error.message === "string") {
    return new NousedError(error.code, error.message, error.cause);
  }
  return new NousedError("invalid_reply", "the reply is neither ok nor an error");
}

export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// lines reads a connection when it is asked to: what nobody asks for stays with the daemon.
export async function* lines(conn) {
  let parts = [];
  let size = 0;
  try {
    for await (const chunk of conn) {
      let from = 0;
      for (let end; (end = chunk.indexOf(10, from)) >= 0; from = end + 1) {
        parts.push(chunk.subarray(from, end));
        yield decode(Buffer.concat(parts));
        parts = [];
        size = 0;
      }
      parts.push(chunk.subarray(from));
      size += chunk.length - from;
      if (size > MAX_REPLY) {
        throw new NousedError("invalid_reply", `a line of the daemon's is longer than ${MAX_REPLY} bytes`);
      }
    }
  } catch (e) {
    throw e instanceof NousedError ? e : lost(e.code);
  }
  throw lost();
}

function decode(line) {
  let value;
  try {
    value = JSON.parse(line.toString());
  } catch {
    // said below
  }
  if (!isObject(value)) {
    throw new NousedError("invalid_reply", "what listens there does not speak the protocol of noused");
  }
  return value;
}

// within is what a promise comes to, within a time in milliseconds; without one, whenever.
export async function within(limit, what, promise) {
  if (limit === undefined) return promise;
  let timer;
  const late = new Promise((_, reject) => {
    const error = new NousedError("timeout", `the daemon has not answered ${what} for ${limit / 1000} s`);
    timer = setTimeout(reject, limit, error);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// Connection is one to the command socket. Any number of requests may wait on it.
export class Connection {
  lost = null;
  #conn;
  #last = 0;
  #pending = new Map(); // by id: the request's length, and how to settle it
  #stray; // what the daemon said to no request
  #closing;
  #reading;

  constructor(conn) {
    this.#conn = conn;
    this.#reading = this.#read();
  }

  // open connects to a daemon that answers.
  static async open(socket) {
    const made = new Connection(await connect(socket));
    try {
      await made.request("ping", {}, HELLO);
    } catch (e) {
      await made.close();
      if (e.code !== "connection_lost") throw e;
      throw new NousedError(e.code, `the daemon at ${socket} hung up at once: its log says why`);
    }
    return made;
  }

  // request sends a command and returns its reply's payload.
  async request(type, payload, limit) {
    if (this.lost) throw this.lost;
    const id = `c${++this.#last}`;
    const line = encode(id, type, payload);
    const answer = new Promise((resolve, reject) => this.#pending.set(id, { size: line.length, resolve, reject }));
    this.#conn.write(line);
    try {
      return resultOf(await within(limit, type, answer));
    } finally {
      this.#pending.delete(id);
    }
  }

  async close() {
    this.#closing = closed();
    this.#conn.destroy();
    await this.#reading;
  }

  async #read() {
    try {
      for await (const reply of lines(this.#conn)) this.#deliver(reply);
    } catch (e) {
      this.lost = this.#closing ?? this.#stray ?? e;
    }
    this.#conn.destroy();
    for (const { reject } of this.#pending.values()) reject(this.lost);
  }

  #deliver(reply) {
    if (typeof reply.id !== "string") throw new NousedError("invalid_reply", "a reply has no id");
    let waits = this.#pending.get(reply.id);
    if (reply.id === "") { // an error about a line that could not be read: the longest
      waits = [...this.#pending.values()].sort((a, b) => b.size - a.size)[0];
    }
    if (waits) waits.resolve(reply);
    else if (reply.error) this.#stray = errorOf(reply.error);
  }
}
