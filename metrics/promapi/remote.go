package promapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Remote is a Prometheus, or whoever speaks its API, that is asked instead of the own store.
type Remote struct {
	URL     *url.URL           // what stands before /api/v1
	Token   func() string      // bearer, as of now; nil = none
	User    string             // of basic authentication; "" = none
	Secret  func() string      // its password, as of now
	TLS     func() *tls.Config // for the next connection; nil = the system's authorities
	Timeout time.Duration      // of one question
	Most    int64              // bytes of one answer; 0 = 256 MiB
	Log     *slog.Logger
}

// forwarded are the only questions that are passed on; those for values of a label come beside them.
var forwarded = map[string]bool{"/query": true, "/query_range": true, "/query_exemplars": true, "/format_query": true, "/parse_query": true, "/series": true, "/labels": true,
	"/metadata": true, "/targets": true, "/rules": true, "/alerts": true, "/status/buildinfo": true, "/status/runtimeinfo": true, "/status/flags": true, "/status/tsdb": true}

// Forward answers from elsewhere. Of a question its parameters go there and nothing else: no header, no cookie, no token of ours. Of the answer
// its status, its type and its body come back.
func Forward(to Remote) http.Handler {
	if to.Most == 0 {
		to.Most = 256 << 20
	}
	transport := &http.Transport{DialTLSContext: to.dialTLS(), ForceAttemptHTTP2: false, MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, Proxy: http.ProxyFromEnvironment}
	if to.TLS == nil {
		transport.DialTLSContext = nil
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { to.forward(client, w, r) })
}

// dialTLS shakes hands with the authorities of now: a file that is replaced counts for the next connection.
func (to Remote) dialTLS() func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: to.TLS()}).DialContext(ctx, network, address)
	}
}

func (to Remote) forward(client *http.Client, w http.ResponseWriter, r *http.Request) {
	path, ours := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	if !ours || !forwarded[path] && !isValues(path) {
		write(w, r, failed(notFound, fmt.Errorf("%.100q is not passed on to metrics.remote.url: docs/metrics.md lists what is", r.URL.Path)))
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		write(w, r, failed(badData, errors.New("only GET and POST are passed on")))
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	if err := r.ParseForm(); err != nil {
		write(w, r, failed(badData, fmt.Errorf("error parsing form values: %w", err)))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), to.Timeout)
	defer cancel()
	resp, err := client.Do(to.request(ctx, r, path))
	if err != nil {
		write(w, r, result{err: to.unreached(ctx, err)})
		return
	}
	defer resp.Body.Close()
	if f := to.turnedAway(resp); f != nil {
		write(w, r, result{err: f})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.StatusCode)
	n, err := io.Copy(w, io.LimitReader(resp.Body, to.Most+1))
	if err == nil && n > to.Most {
		err = fmt.Errorf("its answer is over %d MiB: ask for less", to.Most>>20)
	}
	if err != nil {
		to.Log.Warn("metrics.remote.url: an answer was cut off", "path", path, "bytes", n, "error", err)
		panic(http.ErrAbortHandler) // half an answer must not look whole
	}
}

// isValues reports whether a path is /label/NAME/values. A name with a slash or a dot-dot in it would lead elsewhere.
func isValues(path string) bool {
	name, ok := strings.CutPrefix(path, "/label/")
	name, ends := strings.CutSuffix(name, "/values")
	return ok && ends && name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/%\\?#")
}

// request asks the same, with our credentials for there. Posted parameters are posted: they may be longer than an address can be.
func (to Remote) request(ctx context.Context, r *http.Request, path string) *http.Request {
	u := to.URL.JoinPath("api/v1" + path)
	var body io.Reader
	if r.Method == http.MethodPost {
		body = strings.NewReader(r.Form.Encode())
	} else {
		u.RawQuery = r.Form.Encode()
	}
	req, _ := http.NewRequestWithContext(ctx, r.Method, u.String(), body) // method and address are known to be right
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "whylate")
	switch {
	case to.Token != nil:
		req.Header.Set("Authorization", "Bearer "+to.Token())
	case to.User != "":
		req.SetBasicAuth(to.User, to.Secret())
	}
	return req
}

// turnedAway says of an answer that is none which setting to change.
func (to Remote) turnedAway(resp *http.Response) *failure {
	where := to.URL.Redacted()
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return &failure{unavailable, fmt.Errorf("%s wants to know who asks (401): set metrics.remote.token_file, or metrics.remote.user and metrics.remote.password_file", where)}
	case resp.StatusCode == http.StatusForbidden:
		return &failure{unavailable, fmt.Errorf("%s knows who asks and does not allow it (403): the token of metrics.remote.token_file, or metrics.remote.user, needs the right to read", where)}
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return &failure{unavailable, fmt.Errorf("%s sends elsewhere (%d), and is not followed: set metrics.remote.url to where it answers", where, resp.StatusCode)}
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"):
		return &failure{unavailable, fmt.Errorf("%s answers %d without JSON: is metrics.remote.url what stands before /api/v1?", where, resp.StatusCode)}
	}
	return nil
}

var unavailable = kind{"unavailable", http.StatusBadGateway}

// unreached says why there was no answer, and which setting helps.
func (to Remote) unreached(ctx context.Context, err error) *failure {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &failure{canceled, ctx.Err()}
	}
	if ctx.Err() != nil {
		return &failure{timeout, fmt.Errorf("%s did not answer within %s (metrics.query.timeout)", to.URL.Redacted(), to.Timeout)}
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	advice := "is metrics.remote.url right, and reachable from here?"
	switch {
	case errors.As(err, &unknown):
		advice = "set metrics.remote.ca to a file with the authority that signed its certificate"
	case errors.As(err, &name):
		advice = "set metrics.remote.url to the name that its certificate is for"
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"), strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		advice = "it does not speak TLS: write http:// in metrics.remote.url"
	}
	return &failure{unavailable, fmt.Errorf("%s: %w; %s", to.URL.Redacted(), err, advice)}
}
