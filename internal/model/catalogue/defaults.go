package catalogue

// defaults are the models that a person who has only a key is given: of each provider's
// newest generation the one for work with tools, not the dearest. A provider that is not
// here has none that could be guessed.
var defaults = map[string]string{
	"anthropic": "claude-opus-5-5", "cerebras": "qwen-3.8-27b", "deepseek": "deepseek-v4-pro", "gemini": "gemini-4-argon",
	"groq": "qwen/qwen3.8-27b", "mistral": "mistral-large-4", "moonshot": "kimi-k3.1-pro", "openai": "gpt-6.1-sol",
	"openrouter": "anthropic/claude-opus-5.5", "qwen": "qwen3.8-max", "xai": "grok-4.7", "zai": "glm-5.3",
}

// Default is the name of a provider's model for somebody who has chosen none, "" where
// there is none.
func Default(provider string) string { return defaults[provider] }
