package wire

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/format"
	"noused/internal/model"
)

const (
	maxRefusal = 64 << 10 // what is read of the body of an error
	maxMessage = 1000     // of its text that is passed on
)

// Error is what a provider said in place of an answer, or what went wrong on
// the way to it. It wraps those of model.ErrTruncated, model.ErrContextTooLong,
// model.ErrRejected, model.ErrKey, model.ErrGone and model.ErrPassing that it is.
type Error struct {
	Status  int    // of the response; 0 where there was none, and inside a stream
	Code    string // the provider's own word for it, "overloaded_error" for one
	Message string

	host     string
	attempts int           // how many were made, where that is more than one
	passing  bool          // the same request may go well later
	busy     bool          // it will, as soon as there is less to do
	gone     bool          // the model, or the account, is of no use until a person acts
	broke    bool          // nothing is left to pay with
	garbled  bool          // the model's own answer was refused: it may answer better
	after    time.Duration // when, where the provider says so
	is       error
}

// Unreachable reports that there was no answer at all, and that nobody ran out of
// patience with one.
func (e *Error) Unreachable() bool { return e.Status == 0 && e.passing && e.is == nil }

func (e *Error) Error() string {
	text := e.Message
	if e.Status != 0 {
		status := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
		text = strings.TrimSuffix(status+": "+text, ": ")
	}
	if e.host != "" {
		text = e.host + ": " + text
	}
	if e.attempts > 1 {
		text += fmt.Sprintf(" (tried %d times)", e.attempts)
	}
	return text
}

// Unwrap returns the conditions that the error is.
func (e *Error) Unwrap() (is []error) {
	if e.is != nil {
		is = append(is, e.is)
	}
	if e.passing || e.garbled {
		is = append(is, model.ErrPassing)
	}
	if e.gone {
		is = append(is, model.ErrGone)
	}
	return is
}

// RetryAfter is when the provider wants to be asked again, 0 where it does not say.
func (e *Error) RetryAfter() time.Duration { return e.after }

// NoCredit reports that the provider wants to be paid first.
func (e *Error) NoCredit() bool { return e.broke }

// Truncated is the error of an answer that ended without a reason to stop. why
// may be empty.
func Truncated(why string) *Error {
	e := &Error{Message: model.ErrTruncated.Error(), passing: true, is: model.ErrTruncated}
	if why != "" {
		e.Message += ": " + why
	}
	return e
}

// BeginsAgain is the error of an answer in whose middle another one begins: nobody
// knows which calls of the two are meant.
func BeginsAgain() *Error { return Truncated("it begins a second time") }

// Fail ends the deltas of an answer with err, and before that says what it has cost.
func Fail(used model.Usage, err error, yield func(model.Delta, error) bool) {
	if used == (model.Usage{}) || yield(model.Delta{Usage: used}, nil) {
		yield(model.Delta{}, err)
	}
}

// Refused is the error of an answer that the model, or a filter, ended since it does
// not want to give it. code is the provider's own word.
func Refused(code, message string) *Error {
	return &Error{Code: code, Message: message, is: model.ErrRefused}
}

// TooMuch is the error of an answer that holds more than it may.
func TooMuch() *Error {
	return &Error{Message: fmt.Sprintf("the message holds more than %d MiB, %d tool calls or %d blocks", MaxContent>>20,
		MaxCalls, MaxBlocks)}
}

// Failure is the error that a provider reported in the middle of an answer: an
// object with a message and perhaps a type and a code, or a text.
func Failure(v jsontext.Value) *Error {
	e := &Error{}
	if e.Code, e.Message = said(v); e.Code == "" && e.Message == "" {
		e.Message = format.Clip(string(v), maxRefusal)
	}
	e.classify()
	return e
}

// refusal is the error that a response is which is not an answer.
func refusal(resp *http.Response, in io.Reader, now time.Time) *Error {
	body, _ := io.ReadAll(io.LimitReader(in, maxRefusal)) // what came of it has to do
	e := &Error{Status: resp.StatusCode, after: retryAfter(resp.Header, body, now)}
	e.Code, e.Message = said(body)
	if e.Code == "" && e.Message == "" {
		e.Message = page(resp.Header.Get("Content-Type"), body)
	}
	switch {
	case e.Status >= 300 && e.Status < 400:
		e.Message = "redirects are not followed; base_url must be where the provider is"
		if to, err := resp.Location(); err == nil {
			e.Message += ": it points to " + to.Scheme + "://" + to.Host + to.Path
		}
	case e.Status < 300 && e.Message == "":
		e.Message = "an answer that is no event stream"
	case e.Status < 300:
		e.Message = "an answer that is no event stream: " + e.Message
	}
	e.classify()
	return e
}

// classify finds out what a caller may do about the error.
func (e *Error) classify() {
	status := e.Status
	number, _, _ := strings.Cut(e.Code, " ")
	if n, err := strconv.Atoi(number); err == nil && n >= 400 && n < 600 && status < 400 {
		status = n // some gateways report an HTTP status inside a stream
	}
	text := strings.ToLower(e.Code + " " + e.Message)
	if status == http.StatusUnauthorized || contains(text, wrongKey) {
		e.is, e.gone = model.ErrKey, true
		return
	}
	e.broke = status == http.StatusPaymentRequired || contains(text, spent) || contains(text, hopeless) && e.after == 0
	switch {
	case status != http.StatusTooManyRequests && tooLong(text), tooLarge(text):
		e.is = model.ErrContextTooLong
	case contains(text, spent), contains(text, gone), contains(text, hopeless) && e.after == 0:
		e.gone = true
	case status == http.StatusTooManyRequests, status == statusOverloaded, contains(strings.ToLower(e.Code), overloaded):
		e.passing, e.busy = true, true
	case status == http.StatusRequestTimeout, status >= 500:
		e.passing = true
	case strings.Contains(text, "tool_use_failed"):
		e.garbled = true
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		if e.is = model.ErrRejected; strings.Contains(text, "role") && contains(text, roleOrder) {
			e.is = model.ErrRoleOrder
		}
	case status >= 400: // Ollama calls a model that it does not have an "api_error"
		e.gone = slices.Contains(refusedForGood, status)
	default:
		e.passing = contains(e.Code, passing)
	}
}

// statusOverloaded is Anthropic's.
const statusOverloaded = 529

var (
	// overloaded are parts of the codes of servers that have too much to do.
	overloaded = []string{"overloaded", "rate_limit"}
	// passing are parts of the codes of other errors that pass.
	passing = []string{"server_error", "api_error", "timeout", "unavailable"}
	// hopeless are parts of errors that only a person can do something about. Gemini says
	// "billing" of a limit by the minute, too, and when to come again.
	hopeless = []string{"billing"}
	// spent are parts of errors about an account that has no credit.
	spent = []string{
		"insufficient_quota", "insufficient quota", "insufficient balance", "insufficient credit", "credit balance",
	}
	// gone are parts of errors about a model that the provider does not have (any more).
	gone = []string{"model_not_found", "model_decommissioned", "not a valid model id"}
	// refusedForGood are statuses of requests that nobody but a person can have answered.
	refusedForGood = []int{
		http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusGone,
	}
	// wrongKey are parts of errors about a key, whatever status they have.
	wrongKey = []string{"invalid_api_key", "api key not valid", "authentication_error"}
)

// roleOrder are the ways of saying that somebody else should speak.
var roleOrder = []string{
	"alternat", "after role", "unexpected role", "must be followed", "last role",
	"last message role", "order",
}

func contains(text string, any []string) bool {
	return slices.ContainsFunc(any, func(s string) bool { return strings.Contains(text, s) })
}

// longContext are the ways of saying that a request is too long for the model;
// of one with a "*" both parts are in the text.
var longContext = []string{
	"prompt is too long", "exceed context limit", "request_too_large", // Anthropic
	"input is too long for",                                                           // Bedrock
	"context_length_exceeded", "exceeds the context window", "maximum context length", // OpenAI, OpenRouter
	"string_above_max_length",                                   // OpenAI
	"exceeds the maximum number of tokens",                      // Gemini
	"maximum prompt length",                                     // xAI
	"reduce the length of the messages",                         // Groq
	"exceed_context_size", "exceeds the available context size", // llama.cpp
	"greater than the context length", "trying to keep the first", // LM Studio
	"prompt too long; exceeded max context length",                      // Ollama
	"you passed * input tokens", "longer than the maximum model length", // vLLM
	"longer than the model's context length", "must have less than * tokens", // SGLang, Together
	"inputs tokens + max_new_tokens must be",       // TGI
	"too_many_prompt_tokens",                       // Perplexity
	"exceeded model token limit",                   // Kimi
	"context window exceeds limit",                 // MiniMax
	"prompt exceeds max length",                    // z.ai, 1261
	"range of input length should be",              // Qwen
	"prompt token count of * exceeds the limit of", // Copilot
	"too many tokens",                              // Cohere
	"model_context_window_exceeded",
}

func tooLong(text string) bool {
	text = strings.ReplaceAll(text, "`", "")
	return slices.ContainsFunc(longContext, func(s string) bool {
		head, tail, _ := strings.Cut(s, "*")
		_, rest, found := strings.Cut(text, head)
		return found && strings.Contains(rest, tail)
	})
}

// tooLarge reports a request that is more than a minute's tokens: waiting does
// not help it (OpenAI, Groq).
func tooLarge(text string) bool {
	return strings.Contains(text, "request too large") &&
		(strings.Contains(text, "tpm") || strings.Contains(text, "tokens per min"))
}

// said finds the code and the message in what servers send as an error:
// {"error":{"message","type","code"}}, the same without the outer object or in
// an array, {"error":"…"}, {"message":"…"}, {"detail":…}. What a gateway hands on
// (metadata.raw) says more than its own words.
func said(body []byte) (code, message string) { return saidAt(body, 0) }

// maxGateways is how many servers' words are looked for inside of each other.
const maxGateways = 4

func saidAt(body []byte, depth int) (code, message string) {
	if depth > maxGateways {
		return "", ""
	}
	v := jsontext.Value(body)
	for range 3 {
		switch v.Kind() {
		case jsontext.KindBeginArray:
			var list []jsontext.Value
			if json.Unmarshal(v, &list, lenient) != nil || len(list) == 0 {
				return "", ""
			}
			v = list[0]
			continue
		case jsontext.KindString:
			_ = json.Unmarshal(v, &message, lenient)
			return "", message
		case jsontext.KindBeginObject:
		default:
			return "", ""
		}
		var o struct {
			Error   jsontext.Value `json:"error"`
			Message jsontext.Value `json:"message"`
			Detail  jsontext.Value `json:"detail"`
			Type    jsontext.Value `json:"type"`
			Code    jsontext.Value `json:"code"`
			Status  jsontext.Value `json:"status"`

			Metadata Maybe[struct {
				Raw      jsontext.Value `json:"raw"`
				Provider Str            `json:"provider_name"`
			}] `json:"metadata"`
		}
		if json.Unmarshal(v, &o, lenient) != nil {
			return "", ""
		}
		if kind := o.Error.Kind(); kind == jsontext.KindBeginObject || kind == jsontext.KindString {
			v = o.Error
			continue
		}
		// A number, a status mostly, comes first; the words beside it say more.
		codes := slices.DeleteFunc([]string{Text(o.Code), Text(o.Type), Text(o.Status)}, func(s string) bool {
			return s == ""
		})
		message = Text(o.Message)
		if message == "" {
			message = Text(o.Detail)
		}
		code = strings.Join(slices.Compact(codes), " ")
		if why, cause := saidAt([]byte(handedOn(o.Metadata.V.Raw)), depth+1); cause != "" || why != "" {
			message = strings.TrimPrefix(string(o.Metadata.V.Provider)+": ", ": ") + cmp.Or(cause, why)
			code = strings.TrimSpace(code + " " + why)
		}
		return code, message
	}
	return "", ""
}

// handedOn is what another server said: JSON, or its text as a JSON string.
func handedOn(raw jsontext.Value) string {
	text := Text(raw)
	if raw.Kind() == jsontext.KindString && !jsontext.Value(text).IsValid(lenient) {
		return string(raw)
	}
	return text
}

var (
	title  = pattern(`(?is)<title[^>]*>([^<]{0,300})`)
	tagged = pattern(`(?i)^\s*(<!--|<!doctype|<html|<head|<body)`)
)

// page is what a body says that is no JSON: the title of a web page, or a
// text's beginning.
func page(contentType string, body []byte) string {
	kind, _, _ := mime.ParseMediaType(contentType)
	if kind != "text/html" && !tagged().Match(body) {
		return string(body)
	}
	if m := title().FindSubmatch(body); m != nil && strings.TrimSpace(string(m[1])) != "" {
		return fmt.Sprintf("a web page, %q", strings.Join(strings.Fields(string(m[1])), " "))
	}
	return "a web page"
}

// retryAfter is how long a refusal wants us to wait, 0 if it does not say:
// Retry-After has seconds or a date, Retry-After-Ms milliseconds, and Gemini has
// its retryDelay in the body.
func retryAfter(header http.Header, body []byte, now time.Time) time.Duration {
	wait := time.Duration(0)
	after := header.Get("Retry-After")
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		wait = seconds(ms / 1000)
	} else if s, err := strconv.ParseFloat(after, 64); err == nil && s > 0 {
		wait = seconds(s)
	} else if at, err := http.ParseTime(after); err == nil {
		wait = at.Sub(now)
	} else if m := retryDelay().FindSubmatch(body); m != nil {
		s, _ := strconv.ParseFloat(string(m[1]), 64) // digits
		wait = seconds(s)
	}
	return max(0, wait)
}

var retryDelay = pattern(`"retryDelay"\s*:\s*"([0-9]+(?:\.[0-9]+)?)s"`)

func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e9) * float64(time.Second))
}

// unreachable is the error of a request that got no response.
func unreachable(err error) *Error {
	var outer *url.Error
	if errors.As(err, &outer) { // its text has the whole address
		err = outer.Err
	}
	var own *unreadable
	if errors.As(err, &own) {
		return &Error{Message: own.Error()}
	}
	return &Error{Message: "no answer: " + err.Error(), passing: true}
}

// redactor takes keys, and what is secret in the address, out of texts, also
// as they stand in an address or in JSON.
func redactor(secrets []string, u *url.URL) *strings.Replacer {
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for name, values := range u.Query() {
		if strings.Contains(strings.ToLower(name), "key") || strings.Contains(strings.ToLower(name), "token") {
			secrets = append(secrets, values...)
		}
	}
	var pairs []string
	for _, s := range secrets {
		if len(s) < 4 { // a stand-in such as "x", which would tear up every text
			continue
		}
		pairs = append(pairs, s, "[redacted]")
		for _, escaped := range []string{url.QueryEscape(s), strings.ReplaceAll(s, "/", `\/`)} {
			if escaped != s {
				pairs = append(pairs, escaped, "[redacted]")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// safeError makes of any error of a stream what may be told: no key in it, one line,
// not too long, and the provider's host before it.
func (c *Client) safeError(err error, attempts int) *Error {
	told := Error{Message: err.Error()}
	var e *Error
	if errors.As(err, &e) {
		told = *e
	}
	told.Code = line(c.secrets.Replace(told.Code))
	told.Message = line(c.secrets.Replace(told.Message))
	if told.Message == "" {
		told.Message = told.Code
	}
	switch told.Status {
	case http.StatusOK, http.StatusMethodNotAllowed:
		told.add(c.hint)
	case http.StatusNotFound:
		told.add(c.hint)
		told.add(c.other)
	}
	if told.is == model.ErrKey {
		told.add(c.options.KeyHint)
	}
	if told.broke {
		told.add("there is no credit left: add some where the key is from, or choose another model")
	}
	told.host, told.attempts = c.url.Host, attempts
	return &told
}

// add puts a hint behind the message; it may be empty.
func (e *Error) add(hint string) {
	if hint != "" {
		e.Message = strings.TrimPrefix(strings.TrimSuffix(e.Message, ".")+"; "+hint, "; ")
	}
}

// line is a text as one line of bounded length.
func line(text string) string { return format.Clip(format.Line(text), maxMessage) }
