package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/ingest/stream"
)

// looksLikeSpans reports a file that cannot be a capture: JSON, gzip, or the first field of an OTLP request in protobuf.
func looksLikeSpans(in *bufio.Reader) bool {
	head, _ := in.Peek(64)
	plain := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	return bytes.HasPrefix(plain, []byte("{")) || bytes.HasPrefix(head, []byte{0x1f, 0x8b}) || bytes.HasPrefix(head, []byte{1<<3 | 2})
}

// importSpans takes in a file of OTLP traces, as fast as spans can be sealed.
func (s *Server) importSpans(ctx context.Context, name string, in *counting, file io.Reader) (*api.ImportResult, error) {
	r := &api.ImportResult{Name: name}
	var d otlp.Decoder
	var failed error
	out, err := d.File(file, func(list []genai.Span) {
		for len(list) > 0 && failed == nil {
			n := min(len(list), spanChunk)
			var fresh int
			if fresh, failed = s.acceptPatiently(ctx, list[:n]); failed == nil {
				r.Spans += uint64(n)
				r.New += uint64(fresh)
			}
			list = list[n:]
		}
	})
	if failed != nil {
		return nil, failed
	}
	r.Bytes, r.Sources, r.Duplicate = in.n, out.Requests, r.Spans-r.New
	r.Refused = uint64(out.Rejected + out.Refused)
	var refused *otlp.Refused
	if err == nil && out.Requests == 0 && out.Refused > 0 {
		err = &otlp.Refused{Cause: otlp.Malformed, Text: "no line of it can be read"}
	}
	if errors.As(err, &refused) {
		if r.Spans > 0 {
			return nil, &api.InvalidArgument{Argument: "file", Value: name, Problem: fmt.Sprintf("%v; the %d spans before were taken", err, r.Spans)}
		}
		return nil, &api.InvalidArgument{Argument: "file", Value: name, Problem: err.Error() + "; give a capture (.wlc) or OTLP traces"}
	}
	return r, err
}

// acceptPatiently waits while there is no room.
func (s *Server) acceptPatiently(ctx context.Context, list []genai.Span) (fresh int, err error) {
	for {
		fresh, err = s.spans.accept(ctx, list)
		if !errors.Is(err, stream.ErrOverloaded) {
			return fresh, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
