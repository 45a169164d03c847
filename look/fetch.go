package look

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// Address is something to read over HTTP, with what it takes to be let in.
type Address struct {
	URL    string
	Client *http.Client // nil = http.DefaultClient
	Token  string       // bearer; "" = none
	User   string       // of basic authentication; "" = none
	Secret string       // its password
}

// Watching says how long addresses are watched.
type Watching struct {
	For     time.Duration // in all; 0 = one look
	Every   time.Duration // between two looks
	History time.Duration // how far back a Prometheus is read
	Most    int64         // bytes of one answer; 0 = 256 MiB
	Now     func() time.Time
	Sleep   func(context.Context, time.Duration) error
	Told    func(elapsed, all time.Duration) // progress; may be nil
}

// Watch reads addresses: a Prometheus gives its history at once, whatever else speaks metrics is read again and again. An address that cannot
// be read is an error that names what to change; the others are read all the same.
func Watch(ctx context.Context, addresses []Address, w Watching) (inputs []Input, err error) {
	var live []Address
	for _, a := range addresses {
		found, e := a.history(ctx, w)
		switch {
		case e == nil:
			inputs = append(inputs, found...)
		case errors.Is(e, errNoPrometheus):
			live = append(live, a)
		default:
			err = errors.Join(err, e)
		}
	}
	begun := w.Now()
	for n := int64(0); len(live) > 0; n++ {
		reading := live[:0:0]
		for _, a := range live {
			in, e := a.scrape(ctx, w, n)
			if e != nil {
				err = errors.Join(err, e)
				if n == 0 {
					continue // it would fail again
				}
			} else {
				inputs = append(inputs, in)
			}
			reading = append(reading, a)
		}
		live = reading
		elapsed := w.Now().Sub(begun)
		if w.Told != nil {
			w.Told(min(elapsed, w.For), w.For)
		}
		if elapsed+w.Every > w.For || len(live) == 0 {
			break
		}
		if e := w.Sleep(ctx, w.Every); e != nil {
			return inputs, e
		}
	}
	return inputs, err
}

// scrape reads a metrics page once. An address without a path means /metrics.
func (a Address) scrape(ctx context.Context, w Watching, n int64) (Input, error) {
	u, err := a.parse()
	if err != nil {
		return Input{}, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	at := w.Now()
	b, err := a.get(ctx, u.String(), w)
	if err != nil {
		return Input{}, err
	}
	return Input{Name: u.Redacted(), Target: u.Host, Order: n, At: at.UnixNano(), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}, nil
}

func (a Address) parse() (*url.URL, error) {
	text := a.URL
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("address %s: %w", exposition.Printable(a.URL, 100), errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("address %s: give http://HOST:PORT or https://HOST:PORT", exposition.Printable(a.URL, 100))
	}
	return u, nil
}

func (a Address) get(ctx context.Context, address string, w Watching) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1")
	switch {
	case a.Token != "":
		req.Header.Set("Authorization", "Bearer "+a.Token)
	case a.User != "":
		req.SetBasicAuth(a.User, a.Secret)
	}
	client := a.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, explained(req.URL, err)
	}
	defer resp.Body.Close()
	most := w.Most
	if most == 0 {
		most = 256 << 20
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: after %d bytes: %w", req.URL.Redacted(), len(b), err)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("%s: its answer is over %d MiB", req.URL.Redacted(), most>>20)
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s wants to know who asks (401): give --token-file FILE with a bearer token, or --user NAME and --password-file FILE", req.URL.Redacted())
	case resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s knows who asks and does not allow it (403): the token of --token-file, or the user of --user, needs the right to read metrics", req.URL.Redacted())
	case resp.StatusCode != http.StatusOK:
		return nil, &status{req.URL.Redacted(), resp.StatusCode, resp.Status}
	}
	return b, nil
}

// status is an answer that is none.
type status struct {
	url  string
	code int
	text string
}

func (s *status) Error() string {
	advice := ""
	if s.code == http.StatusNotFound {
		advice = ": give the whole path of its metrics (/metrics is usual, TensorRT-LLM has /prometheus/metrics)"
	}
	return fmt.Sprintf("%s answers %s%s", s.url, s.text, advice)
}

// explained says which setting helps against an error of the connection.
func explained(u *url.URL, err error) error {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var dial *net.OpError
	advice := ""
	switch {
	case errors.As(err, &unknown):
		advice = "its certificate is signed by somebody unknown: give --ca-file FILE with its authority"
	case errors.As(err, &host):
		advice = "its certificate is for another name: ask it by the name in the certificate"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		advice = "it does not speak TLS: write http:// instead of https://"
	case strings.Contains(err.Error(), "certificate required"), strings.Contains(err.Error(), "bad certificate"):
		advice = "it wants a certificate of the client: give --cert-file and --key-file"
	case errors.As(err, &dial) && dial.Op == "dial":
		advice = "nobody answers there: is the port right, and reachable from here?"
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	if advice == "" {
		return fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	return fmt.Errorf("%s: %s (%w)", u.Redacted(), advice, err)
}

var errNoPrometheus = errors.New("no Prometheus")

// steps of history that are asked for: of counts and gauges so many, of histograms, which are many series each, fewer.
const (
	fineSteps   = 288
	coarseSteps = 24
)

// ErrNothingKnown says that a Prometheus answers and has no metric of the registry.
var ErrNothingKnown = errors.New("none of an engine, a gateway or a GPU that is known")

// below is where whylate and others keep Prometheus's API, if not at the root.
const below = "/prometheus"

// history reads what a Prometheus, or whoever speaks its API there or [below], has of the registered signals. It is errNoPrometheus where there is
// none.
func (a Address) history(ctx context.Context, w Watching) ([]Input, error) {
	u, err := a.parse()
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(u.Path, "/metrics") || w.History == 0 {
		return nil, errNoPrometheus
	}
	base := strings.TrimSuffix(u.String(), "/")
	var answer struct {
		Status string   `json:"status"`
		Data   []string `json:"data"`
	}
	b, err := a.get(ctx, base+"/api/v1/label/__name__/values", w)
	var not *status
	if errors.As(err, &not) && not.code == http.StatusNotFound && !strings.HasSuffix(base, below) {
		base += below
		b, err = a.get(ctx, base+"/api/v1/label/__name__/values", w)
	}
	switch {
	case errors.As(err, &not):
		return nil, errNoPrometheus
	case err != nil:
		return nil, err
	case json.Unmarshal(b, &answer) != nil || answer.Status != "success":
		return nil, errNoPrometheus
	}
	end := w.Now()
	var inputs []Input
	for _, name := range answer.Data {
		family := trim(name)
		hist := family != name && dialects.IsHistogram(family)
		if producerOf(family) == "" || !hist && producerOf(name) == "" || !registered(family) && !registered(name) {
			continue
		}
		n := fineSteps
		if hist {
			n = coarseSteps
		}
		step := max(w.History/time.Duration(n), 15*time.Second).Truncate(time.Second)
		q := url.Values{"query": {fmt.Sprintf("{__name__=%q}", name)}, "start": {stamp(end.Add(-w.History))}, "end": {stamp(end)}, "step": {fmt.Sprintf("%.0f", step.Seconds())}}
		b, err := a.get(ctx, base+"/api/v1/query_range?"+q.Encode(), w)
		if err != nil {
			return inputs, err
		}
		inputs = append(inputs, Input{Name: name + " at " + u.Host, Target: u.Host, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }})
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%s has %d metrics, %w", u.Redacted(), len(answer.Data), ErrNothingKnown)
	}
	return inputs, nil
}

func stamp(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1e3) }

// registered reports whether a family is one of the registry's, whoever sends it.
func registered(family string) bool {
	p := producerOf(family)
	return p != "" && len(signals.Named(p, family)) > 0
}
