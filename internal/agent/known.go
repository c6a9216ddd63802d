package agent

// Known are agents that speak the protocol and need no section of the configuration, as
// their makers say how they are started, installed and signed in.
var Known = []Spec{
	{
		Name: "claude", Command: []string{"claude-agent-acp"},
		Install: "npm install -g @agentclientprotocol/claude-agent-acp", SignIn: "claude /login",
	},
	{
		Name: "codex", Command: []string{"codex-acp"},
		Install: "npm install -g @agentclientprotocol/codex-acp", SignIn: "codex login",
	},
	{
		Name: "gemini", Command: []string{"gemini", "--acp"},
		Install: "npm install -g @google/gemini-cli", SignIn: "gemini",
	},
	{
		Name: "opencode", Command: []string{"opencode", "acp"},
		Install: "npm install -g opencode-ai", SignIn: "opencode auth login",
	},
	{
		Name: "goose", Command: []string{"goose", "acp"},
		Install: "https://block.github.io/goose/docs/getting-started/installation", SignIn: "goose configure",
	},
	{
		Name: "qwen", Command: []string{"qwen", "--acp"},
		Install: "npm install -g @qwen-code/qwen-code", SignIn: "qwen",
	},
	{
		Name: "copilot", Command: []string{"copilot", "--acp"},
		Install: "npm install -g @github/copilot", SignIn: "copilot login",
	},
	{Name: "kimi", Command: []string{"kimi", "acp"}, Install: "uv tool install kimi-cli", SignIn: "kimi login"},
	{
		Name: "cursor", Command: []string{"cursor-agent", "acp"},
		Install: "curl https://cursor.com/install -fsS | bash", SignIn: "cursor-agent login",
	},
}
