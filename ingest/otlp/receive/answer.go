package receive

import (
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/whylate/whylate/ingest/otlp"
)

// encode is an Export…ServiceResponse. The three have the same field numbers; in JSON the count has the signal's own name.
func (a answer) encode(s Signal, e otlp.Encoding) []byte {
	if e == otlp.JSON {
		if a.rejected == 0 {
			return []byte("{}")
		}
		name := [...]string{"rejectedSpans", "rejectedDataPoints", "rejectedLogRecords"}[s]
		b, _ := json.Marshal(map[string]any{"partialSuccess": map[string]string{name: strconv.FormatInt(a.rejected, 10), "errorMessage": a.message}})
		return b
	}
	if a.rejected == 0 {
		return nil
	}
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(a.rejected))
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), a.message)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
}

// status is a google.rpc.Status, with the time after which to send again.
func (f *failure) rpc() *status.Status {
	s := status.New(f.code, f.text)
	if f.retry > 0 {
		if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.retry.Round(time.Millisecond))}); err == nil {
			s = with
		}
	}
	return s
}

func (f *failure) encode(e otlp.Encoding) []byte {
	marshal := proto.Marshal
	if e == otlp.JSON {
		marshal = protojson.Marshal
	}
	b, _ := marshal(f.rpc().Proto())
	return b
}
