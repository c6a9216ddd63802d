package modeltest

// Refusal is what a vendor says in place of an answer.
type Refusal struct {
	Status int
	Body   string
}

// TooLong is how each vendor says that a request is too long, by its name.
var TooLong = map[string]Refusal{
	"Ollama": {400, `{"error":"prompt too long; exceeded max context length by 12 tokens"}`},
	"vLLM":   {400, message("You passed 9000 input tokens and requested 100 output tokens")},
	"vLLM, older": {400, message(
		"The decoder prompt (length 9000) is longer than the maximum model length of 8192")},
	"Perplexity": {400, `{"error":{"type":"too_many_prompt_tokens","message":"too long"}}`},
	"Kimi":       {400, message("Invalid request: Your request exceeded model token limit: 262144")},
	"MiniMax":    {400, message("invalid params, context window exceeds limit (2013)")},
	"z.ai":       {400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`},
	"Qwen": {400, message(
		"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]")},
	"Copilot": {400, message("prompt token count of 170000 exceeds the limit of 128000")},
	"SGLang": {400, message(
		"The input (9000 tokens) is longer than the model's context length (8192 tokens).")},
	"Together": {422, message("Input validation error: must have less than 8192 tokens")},
	"TGI": {422, `{"error":"Input validation error: ` +
		"`inputs` tokens + `max_new_tokens` must be <= 4096" + `"}`},
	"LM Studio": {400, `{"error":"Trying to keep the first 9000 tokens when context the overflows."}`},
	"Cohere":    {400, `{"message":"too many tokens: size limit exceeded"}`},
	"OpenAI, one string": {
		400,
		`{"error":{"code":"string_above_max_length","message":"Invalid 'input[0].content': string too long."}}`,
	},
	"OpenAI, TPM": {429, message(
		"Request too large for gpt-5 in organization o on tokens per min (TPM): Limit 30000, Requested 45000.")},
	"Groq, TPM": {413, message(
		"Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 7000")},
	"OpenRouter": {
		400,
		`{"error":{"code":400,"message":"Provider returned error","metadata":{"provider_name":"Z.AI","raw":"{\"error\":{\"code\":\"1261\",\"message\":\"Prompt exceeds max length\"}}"}}}`,
	},
}

// message is an error in OpenAI's form.
func message(text string) string {
	return `{"error":{"message":` + `"` + text + `","type":"invalid_request_error"}}`
}
