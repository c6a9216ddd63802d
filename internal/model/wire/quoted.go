package wire

import "github.com/go-json-experiment/json/jsontext"

// Quoted is a text that becomes a JSON string, without a copy of it before. It must not
// be changed.
type Quoted []byte

// MarshalJSONTo is json.MarshalerTo. A byte that is no UTF-8 is mended.
func (q Quoted) MarshalJSONTo(out *jsontext.Encoder) error {
	text, _ := jsontext.AppendQuote(out.AvailableBuffer(), []byte(q)) // its error is of what is mended
	return out.WriteValue(text)
}
