package remotewrite

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of one request.
const (
	mostBytes       = 32 << 20 // packed, and unpacked: Prometheus's own bound
	mostSeriesBytes = 4 << 20  // of one series with its samples: what is decoded takes a multiple of it
)

// refusal is why a whole request is not taken.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// spoken refuses what is no remote write 1.0: read as one, a request of 2.0 would be an empty one, and lost without a sound.
func spoken(head http.Header) error {
	kind, params, err := mime.ParseMediaType(head.Get("Content-Type"))
	switch proto := params["proto"]; {
	case err != nil && head.Get("Content-Type") != "", err == nil && kind != "application/x-protobuf":
		return &refusal{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type is %.60q: send application/x-protobuf", head.Get("Content-Type"))}
	case proto != "" && proto != "prometheus.WriteRequest", strings.HasPrefix(head.Get("X-Prometheus-Remote-Write-Version"), "2."):
		return &refusal{http.StatusUnsupportedMediaType, "remote write 2.0 is not taken here: set protobuf_message: prometheus.WriteRequest in the sender's remote_write"}
	}
	if e := head.Get("Content-Encoding"); e != "" && e != "snappy" {
		return &refusal{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Encoding is %.20q: send snappy, in its block format", e)}
	}
	return nil
}

// unpack reads and unpacks a body; how long it will be is known before it is unpacked.
func unpack(body io.Reader) ([]byte, error) {
	packed, err := io.ReadAll(io.LimitReader(body, mostBytes+1))
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "the body broke off: " + err.Error()}
	}
	if len(packed) > mostBytes {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes: send fewer samples at once (max_samples_per_send)", mostBytes)}
	}
	n, err := snappy.DecodedLen(packed)
	if err == nil && n > mostBytes {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has %d bytes unpacked, more than %d: send fewer samples at once (max_samples_per_send)", n, mostBytes)}
	}
	var b []byte
	if err == nil {
		b, err = snappy.Decode(nil, packed)
	}
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "the body is not in snappy's block format: " + err.Error()}
	}
	return b, nil
}

var errNoProtobuf = errors.New("it is no prometheus.WriteRequest")

// parts are what a prometheus.WriteRequest consists of, one after the other: never is more than one series decoded at once, which may take
// many times its bytes. They stop at the first error.
func parts(b []byte, series func(*prompb.TimeSeries) error, metadata func(*prompb.MetricMetadata)) error {
	var ts prompb.TimeSeries
	var md prompb.MetricMetadata
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errNoProtobuf
		}
		b = b[n:]
		if number != 1 && number != 3 {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return errNoProtobuf
			}
			b = b[n:]
			continue
		}
		field, n := protowire.ConsumeBytes(b)
		if n < 0 || kind != protowire.BytesType {
			return errNoProtobuf
		}
		b = b[n:]
		if len(field) > mostSeriesBytes {
			return fmt.Errorf("a series of %d bytes is longer than %d: send fewer of its samples at once", len(field), mostSeriesBytes)
		}
		if number == 3 {
			md.Reset()
			if md.Unmarshal(field) != nil {
				return errNoProtobuf
			}
			metadata(&md)
			continue
		}
		ts.Labels, ts.Samples, ts.Exemplars, ts.Histograms = ts.Labels[:0], ts.Samples[:0], ts.Exemplars[:0], ts.Histograms[:0]
		if ts.Unmarshal(field) != nil {
			return errNoProtobuf
		}
		if err := series(&ts); err != nil {
			return err
		}
	}
	return nil
}
