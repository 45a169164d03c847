package web

import (
	_ "embed"
	"net/http"
)

// Document describes the HTTP API (OpenAPI 3.1). `go test ./web -run OpenAPI -update` writes it; a test holds it against the handlers.
//
//go:embed openapi.json
var Document []byte

func (h *Handler) openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(Document)
}
