import type { Commands, Event, PromptParams, StatusApproval, SubscribeParams } from "./types.js";

export type * from "./types.js";

/**
 * What the daemon refuses, or what is wrong on the way to it. `code` is the protocol's, see
 * Errors in docs/protocol.md; or no_daemon (nobody listens there), connection_lost, timeout
 * (the daemon does not answer), untrusted (another user could be listening), invalid_reply
 * (it is no noused), aborted (the run was), closed (this client is).
 */
export declare class NousedError extends Error {
  constructor(code: string, message: string, cause?: string);
  readonly code: string;
  /** Whether the message begins with one of the protocol's words, such as no_active_run. */
  says(...reasons: string[]): boolean;
}

/** NOUSED_SOCKET, else where a daemon listens that was told nothing else. */
export declare function defaultSocket(): string;

/** An option's id, or that and what else `approve` takes: `{option: "deny", reason: "use a branch"}`. */
export type Answer = string | { option: string; reason?: string; content?: Record<string, unknown> };

/** The signal says that somebody else has answered. */
export type OnApproval = (approval: StatusApproval, more: { signal: AbortSignal }) => Answer | Promise<Answer>;

export interface ClientOptions {
  /** The daemon's command socket; without it `defaultSocket()`. */
  socket?: string;
  /**
   * Is asked about what runs of the sessions wait for that this client has sent a text to, for
   * as long as it takes. Without it a prompt denies what its run would ask.
   */
  onApproval?: OnApproval;
  /** How many milliseconds a daemon that went away is waited for: 30000. */
  reconnectMs?: number;
}

/**
 * A connection to the daemon that comes back by itself. A daemon that is not there at first is
 * an error at once. `close` it: an open one keeps the process alive.
 */
export declare class Client {
  constructor(options?: ClientOptions);

  /**
   * Starts a run with a text and returns its answer, however often the daemon restarts
   * meanwhile. A run that somebody aborts is the error aborted, one that fails provider_error.
   */
  prompt(text: string, more?: Omit<PromptParams, "text" | "wait"> & { sessionId?: string }): Promise<string>;

  /** Sends a command and returns its reply's payload. */
  call<T extends keyof Commands>(type: T, payload?: Commands[T]["payload"]): Promise<Commands[T]["reply"]>;

  /**
   * The events from now on, of one session or of the types that are given, or all. What this
   * client sends after it waits until the daemon has confirmed.
   */
  events(where?: SubscribeParams & { sessionId?: string }): Events;

  /** Ends the connections, and what waits on them with the error closed. Runs go on. */
  close(): Promise<void>;
}

/**
 * Events, each once and in order, also over restarts of the daemon. Where some are missing
 * (the daemon was restarted, or they were read too slowly), a warning with the code
 * events_dropped stands in their place: get_state and get_messages have what they said.
 * Leaving a `for await` closes them.
 */
export declare class Events implements AsyncIterableIterator<Event> {
  private constructor();
  /** With `last`, how far has been read; given to a later `events` as epoch and after, it goes on there. */
  readonly epoch: string;
  readonly last: number;
  /** Waits until the daemon has confirmed: no later event is missed. */
  ready(): Promise<this>;
  next(): Promise<IteratorResult<Event, undefined>>;
  return(): Promise<IteratorResult<Event, undefined>>;
  [Symbol.asyncIterator](): this;
  close(): void;
}
