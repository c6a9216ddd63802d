// A real daemon for tests, the program that NOUSED names, with a state of its own; and a
// relay before it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";

// outside is a text that has the offline model run a command outside the sandbox, which asks.
export function outside(command) {
  return "!bash " + JSON.stringify({ command, outside_sandbox: true, reason: "the sandbox has refused it" });
}

export class Daemon {
  static async start(t) {
    const daemon = new Daemon();
    daemon.dir = fs.mkdtempSync(path.join(os.tmpdir(), "noused-client"));
    daemon.socket = path.join(daemon.dir, "s");
    fs.mkdirSync(path.join(daemon.dir, "work"));
    t.after(async () => {
      await daemon.kill();
      fs.rmSync(daemon.dir, { recursive: true, force: true });
    });
    await daemon.start();
    return daemon;
  }

  // start returns when it is ready.
  async start() {
    const folders = { "state-dir": "state", "tools-dir": "tools", workdir: "work", socket: "s" };
    const args = Object.entries(folders).flatMap(([name, folder]) => ["--" + name, path.join(this.dir, folder)]);
    const env = { ...process.env, NOUSED_MODEL: "offline", XDG_CONFIG_HOME: this.dir, XDG_RUNTIME_DIR: this.dir };
    this.process = spawn(process.env.NOUSED ?? "noused", args, { env, stdio: ["ignore", "ignore", "pipe"] });
    this.exited = once(this.process, "close");
    const log = [];
    for await (const line of createInterface({ input: this.process.stderr })) {
      log.push(line);
      if (line.includes('"msg":"ready"')) {
        this.process.stderr.resume();
        return;
      }
    }
    throw new Error("the daemon ended before it was ready:\n" + log.join("\n"));
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.exited;
  }

  async restart() {
    await this.kill();
    await this.start();
  }
}

// Relay stands between a client and the daemon, and can cut their connections.
export class Relay {
  deaf = false; // the daemon's answers are lost
  cuts = 0;
  #open = new Set();

  static async start(t, daemon) {
    const relay = new Relay();
    relay.socket = path.join(daemon.dir, "relay");
    for (const end of ["", ".events"]) {
      const server = net.createServer((down) => relay.#join(down, net.connect({ path: daemon.socket + end })));
      server.listen(relay.socket + end);
      await once(server, "listening");
      t.after(() => server.close());
    }
    t.after(() => relay.cut());
    return relay;
  }

  cut() {
    for (const socket of this.#open) socket.destroy();
    this.cuts += this.#open.size / 2;
    this.#open.clear();
  }

  #join(down, up) {
    for (const [from, to] of [[down, up], [up, down]]) {
      this.#open.add(from);
      from.on("error", () => {});
      from.on("data", (data) => (from === up && this.deaf) || to.write(data));
      from.on("close", () => {
        this.#open.delete(from);
        to.destroy();
      });
    }
  }
}
