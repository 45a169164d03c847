package web

import (
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"time"
)

// Server is an HTTP server for h with limits on what a stranger can hold open: slow headers, huge headers, idle connections. A nil
// tlsConfig serves plain HTTP (and ServeTLS is then not to be called). Shutting it down ends event streams first.
func (h *Handler) Server(tlsConfig *tls.Config) *http.Server {
	s := &http.Server{
		Handler:           h,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(logWriter{h.opts.Log}, "", 0),
	}
	s.RegisterOnShutdown(h.Close)
	return s
}

// logWriter takes what net/http has to say of connections (bad handshakes and the like) into the structured log.
type logWriter struct{ l *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.l.Debug("http connection", "text", shown(string(b)))
	return len(b), nil
}
