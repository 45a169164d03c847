package stream

import (
	"cmp"
	"time"
)

// Settings are a server's limits. A value of 0 means the default, which is said with each.
type Settings struct {
	// MaxConnections is how many senders may be connected at once. Default 1,024.
	MaxConnections int
	// MaxHandshakes is how many of them may be strangers, who have not shown a token yet. Default 128.
	MaxHandshakes int
	// MaxSources is how many sources one connection may have open at once. Default 8,192.
	MaxSources int
	// QueueBytes is how much, unpacked, may wait to be made durable, all connections together. Beyond it senders are told that
	// the server is busy. Default 256 MiB.
	QueueBytes int64
	// ConnectionBytes is the same for one connection. Default 8 MiB.
	ConnectionBytes int64
	// HandshakeTimeout is how long a stranger has, TLS included. Default 10 s.
	HandshakeTimeout time.Duration
	// MessageTimeout is how long a message may take from its first byte to its last. Default 30 s.
	MessageTimeout time.Duration
	// IdleTimeout is how long a connection may be silent. Agents send a ping every third of it. Default 60 s.
	IdleTimeout time.Duration
	// WriteTimeout is how long a sender may take to read an answer. Default 10 s.
	WriteTimeout time.Duration
	// RetryAfter is when a sender that found no room should try again. Default 500 ms.
	RetryAfter time.Duration
	// MaxAhead is how far a sender's clock may be ahead of the server's. Default 1 h.
	MaxAhead time.Duration
}

// withDefaults fills in what is not set.
func (s Settings) withDefaults() Settings {
	return Settings{
		MaxConnections:   cmp.Or(s.MaxConnections, 1_024),
		MaxHandshakes:    cmp.Or(s.MaxHandshakes, 128),
		MaxSources:       cmp.Or(s.MaxSources, 8_192),
		QueueBytes:       cmp.Or(s.QueueBytes, 256<<20),
		ConnectionBytes:  cmp.Or(s.ConnectionBytes, 8<<20),
		HandshakeTimeout: cmp.Or(s.HandshakeTimeout, 10*time.Second),
		MessageTimeout:   cmp.Or(s.MessageTimeout, 30*time.Second),
		IdleTimeout:      cmp.Or(s.IdleTimeout, time.Minute),
		WriteTimeout:     cmp.Or(s.WriteTimeout, 10*time.Second),
		RetryAfter:       cmp.Or(s.RetryAfter, 500*time.Millisecond),
		MaxAhead:         cmp.Or(s.MaxAhead, time.Hour),
	}
}
