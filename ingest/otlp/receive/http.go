package receive

import (
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/whylate/whylate/ingest/otlp"
)

// Paths are those of OTLP over HTTP.
var Paths = map[string]Signal{"/v1/traces": Traces, "/v1/metrics": Metrics, "/v1/logs": Logs}

// Allow says whether who shows this Authorization header (or none: "") may send; the error's text is for the sender. A nil Allow lets everybody.
type Allow func(authorization string) error

// Handler serves the paths of OTLP over HTTP.
func (r *Receiver) Handler(allow Allow) http.Handler {
	mux := http.NewServeMux()
	for path, s := range Paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, q *http.Request) { r.serve(w, q, s, allow) })
	}
	return mux
}

// statusOf is the HTTP status of a failure. Of these 429 and 503 are retried.
func (f *failure) status() int {
	switch f.code {
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.Internal:
		return http.StatusInternalServerError
	case codes.ResourceExhausted:
		if f.retry > 0 {
			return http.StatusTooManyRequests
		}
		return http.StatusRequestEntityTooLarge
	}
	if f.cause == causeType || f.cause == causeEncoding {
		return http.StatusUnsupportedMediaType
	}
	return http.StatusBadRequest
}

func (r *Receiver) serve(w http.ResponseWriter, q *http.Request, s Signal, allow Allow) {
	e, known := otlp.EncodingOf(mediaType(q.Header.Get("Content-Type")))
	w.Header().Set("Content-Type", [...]string{"application/x-protobuf", "application/json"}[e])
	if q.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	a, f := r.request(w, q, s, e, known, allow)
	if f == nil {
		_, _ = w.Write(a.encode(s, e))
		return
	}
	r.stats.refuse(s, HTTP, f, r.set.Now())
	if f.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.retry.Seconds()))))
	}
	if f.code == codes.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(f.status())
	_, _ = w.Write(f.encode(e))
}

func mediaType(header string) string {
	t, _, err := mime.ParseMediaType(header)
	if err != nil {
		return ""
	}
	return t
}

func (r *Receiver) request(w http.ResponseWriter, q *http.Request, s Signal, e otlp.Encoding, known bool, allow Allow) (_ answer, f *failure) {
	defer r.survive(s, HTTP, &f)
	if allow != nil {
		if err := allow(q.Header.Get("Authorization")); err != nil {
			return answer{}, &failure{code: codes.Unauthenticated, cause: causeToken, text: err.Error()}
		}
	}
	if f := r.ready(s); f != nil {
		return answer{}, f
	}
	if !known {
		return answer{}, &failure{code: codes.InvalidArgument, cause: causeType, text: "the Content-Type is neither application/x-protobuf nor application/json"}
	}
	b := body{encoding: e}
	switch strings.ToLower(q.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip":
		b.gzipped = true
	default:
		return answer{}, &failure{code: codes.InvalidArgument, cause: causeEncoding, text: "the Content-Encoding is neither gzip nor identity"}
	}
	leave, f := r.enter()
	if f != nil {
		return answer{}, f
	}
	defer leave()
	var held int64
	defer func() { r.release(held) }()
	if b.bytes, held, f = r.read(w, q); f != nil {
		return answer{}, f
	}
	return r.take(q.Context(), s, HTTP, b)
}

const (
	piece    = 64 << 10 // how much of a body of unknown length is reserved at first
	believed = 1 << 20  // how much of what is announced: who announces much and sends nothing takes no room from others
)

// read takes in a body, and reserves what it holds as it comes.
func (r *Receiver) read(w http.ResponseWriter, q *http.Request) (b []byte, held int64, f *failure) {
	most := int64(r.set.Limits.Body)
	if q.ContentLength > most {
		return nil, 0, tooLarge(most)
	}
	in := http.MaxBytesReader(w, q.Body, most)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // not every connection has deadlines
	room := max(1, min(q.ContentLength, believed))
	for {
		if f := r.reserve(room); f != nil {
			return nil, held, f
		}
		held += room
		b = append(make([]byte, 0, held), b...)
		for len(b) < cap(b) {
			n, err := in.Read(b[len(b):cap(b)])
			b = b[:len(b)+n]
			switch {
			case errors.Is(err, io.EOF):
				return b, held, nil
			case errors.As(err, new(*http.MaxBytesError)):
				return nil, held, tooLarge(most)
			case err != nil:
				return nil, held, &failure{code: codes.InvalidArgument, cause: string(otlp.Truncated), text: "the body ends before its length, or did not come in time"}
			}
		}
		if int64(len(b)) == q.ContentLength {
			return b, held, nil
		}
		room = max(held, piece) // twice as much
		if q.ContentLength > held {
			room = min(room, q.ContentLength-held)
		}
	}
}

// readTimeout is how long a body may take.
const readTimeout = 30 * time.Second

func tooLarge(most int64) *failure {
	return &failure{code: codes.ResourceExhausted, cause: string(otlp.TooLarge), text: "the request has more than " + strconv.FormatInt(most, 10) + " bytes: send smaller batches"}
}
