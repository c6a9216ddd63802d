package agent

// Known are agents that speak the protocol and need no section of the configuration, as
// their makers say how they are started, installed and signed in.
var Known = []Spec{
	{
		Name: "claude", Command: []string{"claude-agent-acp"},
		Install: "npm install -g @agentclientprotocol/claude-agent-acp", SignIn: "claude /login",
		Credentials: []Credential{{"CLAUDE_CONFIG_DIR", ".claude", ".credentials.json"}}, OnlyThere: true,
	},
	{
		Name: "codex", Command: []string{"codex-acp"},
		Install: "npm install -g @agentclientprotocol/codex-acp", SignIn: "codex login",
		Credentials: []Credential{{"CODEX_HOME", ".codex", "auth.json"}}, OnlyThere: true,
	},
	{
		Name: "gemini", Command: []string{"gemini", "--acp"},
		Install: "npm install -g @google/gemini-cli", SignIn: "gemini",
		Credentials: []Credential{{"", ".gemini", "oauth_creds.json"}, {"", ".gemini", ".env"}}, OnlyThere: true,
	},
	{
		Name: "opencode", Command: []string{"opencode", "acp"},
		Install: "npm install -g opencode-ai", SignIn: "opencode auth login",
		Credentials: []Credential{{"XDG_DATA_HOME", ".local/share", "opencode/auth.json"}},
	},
	{
		Name: "goose", Command: []string{"goose", "acp"},
		Install: "https://block.github.io/goose/docs/getting-started/installation", SignIn: "goose configure",
	},
	{
		Name: "qwen", Command: []string{"qwen", "--acp"},
		Install: "npm install -g @qwen-code/qwen-code", SignIn: "qwen",
		Credentials: []Credential{{"", ".qwen", "oauth_creds.json"}, {"", ".qwen", ".env"}}, OnlyThere: true,
	},
	{
		Name: "copilot", Command: []string{"copilot", "--acp"},
		Install: "npm install -g @github/copilot", SignIn: "copilot login",
	},
	{
		Name: "kimi", Command: []string{"kimi", "acp"}, Install: "uv tool install kimi-cli", SignIn: "kimi login",
		Credentials: []Credential{{"", ".kimi", "credentials/kimi-code.json"}},
	},
	{
		Name: "cursor", Command: []string{"cursor-agent", "acp"},
		Install: "curl https://cursor.com/install -fsS | bash", SignIn: "cursor-agent login",
		Credentials: []Credential{{"XDG_CONFIG_HOME", ".config", "cursor/auth.json"}},
	},
}
