package api

import (
	"encoding/json"
	"io"
)

// WriteJSON writes an answer as every answer is written, by `-o json` and over HTTP alike: two spaces a level, no HTML escapes, a
// line feed at the end.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// ReadJSON reads what [WriteJSON] wrote. Numbers in fields without a type stay as they were written, so that writing the answer
// again gives the same text.
func ReadJSON(r io.Reader, v any) error {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	return dec.Decode(v)
}
