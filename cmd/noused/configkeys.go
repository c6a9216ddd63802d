package main

import (
	"slices"
	"strings"
)

// fileKey is a key that a file may have, and what noused.toml(5) says of it.
type fileKey struct {
	name  string // with its section before it
	value string // what it is set to, in a word or two
	text  string // what it does, and its default; "": what the flag of this name says
}

// fileKeys are what the configuration file may say. A key that does nothing is
// an error, not a surprise.
var fileKeys = []fileKey{
	{"socket", "path", ""},
	{"state_dir", "folder", ""},
	{"workdir", "folder", ""},
	{
		"tools_dir", "folder, or an array of them",
		"Folders of tool descriptors. Default: tools.d beside this file's usual place.",
	},
	{"max_line", "size", ""},
	{"event_buffer", "size", ""},
	{"drain_timeout", "time", ""},
	{"log_level", "level", ""},
	{"debug_socket", "path", ""},
	{
		"builtin_tools", "true or false",
		"Whether the built-in tools are offered: read, write, edit, bash and the others. Default: true.",
	},

	{"model", "provider/name", "The model, where there is no section [model]."},
	{"fallback", "array of models", "Models, as provider/name, that answer in this order while a session's model " +
		"cannot: no credit, no such model, or no answer for as long as is waited for one. At most 8. Default: none."},
	{"small_model", "provider/name", "The model of what needs no better one, such as the agent explore. Default: " +
		"the session's."},
	{"model.provider", "name", "Who has the model: openai, anthropic, module, offline, a name of the catalogue, or one " +
		"of a section [providers.NAME]. Default: offline."},
	{"model.name", "text", "The model's name at its provider."},
	{"model.base_url", "URL", "The provider's server; of openai up to and with its /v1. Default: the provider's own."},
	{
		"model.wire", "chat or responses",
		"How an openai server is asked. Default: responses for OpenAI's own server and Azure's, chat elsewhere.",
	},
	{"model.api_key_env", "name", "The name of the variable, or of the credential of systemd's, that has the key. The " +
		"key itself is never in this file."},
	{"model.system", "text", "Instructions for the model, after all others."},
	{
		"model.effort", "level",
		"How hard the model is to think: none, minimal, low, medium, high, xhigh or max. Default: as it does by itself.",
	},
	{"model.context_window", "number", "Tokens that the model can read. Set this to what a local server was started " +
		"with. Default: what models.toml, the catalogue or the server says."},
	{"model.max_output_tokens", "number", "The most tokens of one message."},
	{"model.max_steps", "number", "Calls of the model in one turn, after which the run ends. Default: 500."},
	{"model.timeout", "time", "The longest silence of an answer. Default: 5m."},
	{"model.extra", "table", "Put into every request, as in extra = { temperature = 0.2 }."},
	{"model.delay", "time", "Of the offline model: how long it waits between its words."},

	{
		"default_agent", "name",
		"The agent that makes the turns of sessions which name none. Default: noused, the daemon's own.",
	},

	{"children.depth", "number", "How many sessions may be above a child session; 0: there are no children (default 2)."},
	{"children.parallel", "number", "How many children of one run, theirs included, work at a time (default 8)."},
	{"children.total", "number", "How many children one run may have, theirs included (default 50)."},
	{"limits.run_tokens", "number", "A run that has read and said so many tokens asks before it goes on."},
	{"limits.run_cost", "US dollars", "A run that has cost so much asks before it goes on."},
	{
		"limits.day_cost", "US dollars",
		"Once all sessions together have cost so much since midnight, runs ask before they go on.",
	},

	{
		"policy.allow", "array of patterns",
		"The tools that may be called. Where there is one, what no rule names is denied.",
	},
	{"policy.ask", "array of patterns", "The tools whose calls ask first."},
	{"policy.deny", "array of patterns", "The tools that are never called. Deny counts before ask, and ask before allow."},
	{"policy.approval_timeout", "time", "A question that nobody has answered by then is denied. Default: never."},

	{"sandbox.hide", "array of paths", "What tools in the sandbox cannot read, as paths that begin with / or ~/, " +
		"beside what they cannot in any case: " +
		"what in the home folder begins with a dot, but for toolchains and settings, mail, and what is the daemon's own."},
	{
		"sandbox.read", "array of paths",
		"What tools in the sandbox can read although it is hidden, but for what hide has and what is the daemon's own.",
	},
	{
		"sandbox.network", "true or false",
		"Whether tools in the sandbox can use the network, that of this machine (localhost) included. Default: true.",
	},

	{"notify.command", "array", "The program, and its arguments, that is told when a run ends, fails or asks."},
	{"notify.on", "array", "Which of approval, run_end and run_error it reports. Default: all."},
	{"notify.after", "time", "Only longer runs are reported. Default: 10s."},

	{
		"retention.sessions_older", "age",
		"Sessions that were not used for so long, 90d or 12h, are removed. Default: none are.",
	},
	{"retention.sessions_larger", "size", "Sessions are removed while those that may be removed have more bytes " +
		"together, the one that was used longest ago first. Default: none are."},
	{"retention.tool_output_older", "age", "Files of tool-output that were not written for so long are removed. " +
		"Default: as many are kept as there is room for."},
	{"retention.tool_output_larger", "size", "Files of tool-output are removed while all have more bytes together, the " +
		"oldest first. Default: as many are kept as there is room for."},
	{"retention.audit_larger", "size", "What the files of the audit journal have together at most. Default: 80MiB."},

	{"changes.max", "size", "How much of the content of files is kept of a session, so that what its turns " +
		"have changed can be shown, and taken back. Default: 1GiB."},

	{
		"fleet.url", "URL, or an array of them",
		"The NATS servers of the fleet that the daemon is in: nats://, tls:// or wss://. Default: it is in none.",
	},
	{"fleet.creds", "file", "The file with the JWT and the key that the servers let the daemon in with, as nsc makes " +
		"it; only its owner may read it."},
	{"fleet.nkey", "file", "The file with the seed of an nkey, instead of creds; only its owner may read it."},
	{"fleet.ca", "file", "Certificates, in PEM, that servers are checked with instead of the system's."},
	{"fleet.name", "name", "The daemon's name in the fleet: letters, digits, - and _. No two daemons may have the same. " +
		"Default: the machine's, up to its first dot."},
	{"fleet.labels", "table", "What jobs can ask for, as in labels = { gpu = \"a100\" }."},
	{"fleet.subject", "name", "What every subject and stream of the fleet begins with. Default: noused."},
	{"fleet.approve", "true or false", "Whether the senders of commands through the fleet count as people, who may " +
		"answer questions, choose approval modes, bring MCP servers, prune and stop the daemon. Default: false."},
	{"fleet.slots", "number", "Jobs of the fleet that the daemon does at a time; 0 takes none. Default: 1."},
	{"fleet.job_timeout", "time", "A job whose daemon was not heard of for so long is given to another. Default: 10m."},
}

// providerKeys are what a section [providers.NAME] may say.
var providerKeys = []fileKey{
	{"wire", "chat, responses or messages", "How the server is asked. Default: the catalogue's, else chat."},
	{"base_url", "URL", "The server. Required for a provider that the catalogue does not know."},
	{"api_key_env", "name", "The name of the variable, or of the credential of systemd's, that has the key. Default: " +
		"the catalogue's, else no key is sent."},
	{"headers", "table", "Headers that go along with every request, and are as secret as a key."},
	{"extra", "table", "Put into every request."},
	{"models", "array of names", "Models that are listed without asking the server."},
}

// factKeys are what a section of models.toml may say, priceKeys its price.
var (
	factKeys = []fileKey{
		{"context_window", "number", "Tokens that the model can read."},
		{"max_output_tokens", "number", "The most tokens of one message."},
		{"images", "true or false", "Whether it can see images. One that cannot gets them described in words."},
		{"efforts", "array of levels", "How hard it can be told to think."},
		{"price", "table", "What a million tokens cost in US dollars: input, output, cached and cache_write."},
	}
	priceKeys = []string{"input", "output", "cached", "cache_write"}
)

// hasKey reports whether one of the keys has this name.
func hasKey(keys []fileKey, name string) bool {
	return slices.ContainsFunc(keys, func(k fileKey) bool { return k.name == name })
}

// isFileKey reports whether the configuration file may have a key.
func isFileKey(key []string) bool {
	if len(key) > 2 && key[0] == "providers" {
		return hasKey(providerKeys, key[2])
	}
	if len(key) > 2 && key[0] == "agent" {
		return hasKey(agentKeys, key[2]) && (len(key) == 3 || key[2] == "env")
	}
	if len(key) > 1 && key[0] == "policy" && key[1] == "rule" {
		return true // package policy says which
	}
	if key[0] == "hook" {
		return true // package hook says which
	}
	return hasKey(fileKeys, strings.Join(key, ".")) || len(key) > 2 && key[0] == "model" && key[1] == "extra" ||
		len(key) == 3 && key[0] == "fleet" && key[1] == "labels"
}

// isFactKey reports whether models.toml may have a key.
func isFactKey(key []string) bool {
	switch len(key) {
	case 1:
		return false // a section of its own is none of these
	case 2:
		return hasKey(factKeys, key[1])
	}
	return false
}
