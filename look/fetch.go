package look

import (
	"bytes"
	"cmp"
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
	"os"
	"strings"
	"time"

	"github.com/whylate/whylate/exposition"
)

// Address is something to read over HTTP, with what it takes to be let in.
type Address struct {
	URL    string
	Client *http.Client // nil = http.DefaultClient
	Token  string       // bearer; "" = none
	User   string       // of basic authentication; "" = none
	Secret string       // its password
	Header http.Header  // more, such as the tenant of a Mimir; not told to other hosts

	target string // whom its page speaks of, where its host is not enough
	doubt  string // why it was not asked for its history though it may be a Prometheus
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
			if not := (*status)(nil); errors.As(e, &not) {
				a.doubt = not.Error()
			}
			live = append(live, a)
		default:
			err = errors.Join(err, e)
		}
	}
	tellHosts(live)
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
				if n == 0 && a.doubt != "" {
					inputs = append(inputs, Input{Name: a.URL, Refused: a.doubt + "; what follows is of a page of metrics there, not of its history"})
				}
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

// tellHosts names addresses that share a host by their paths too: behind one gateway they are several targets.
func tellHosts(as []Address) {
	of := map[string]int{}
	for _, a := range as {
		if u, err := a.parse(); err == nil {
			of[u.Host]++
		}
	}
	for i, a := range as {
		if u, err := a.parse(); err == nil && of[u.Host] > 1 {
			as[i].target = u.Host + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/metrics")
		}
	}
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
	return Input{Name: u.Redacted(), Target: cmp.Or(a.target, u.Host), Order: n, At: at.UnixNano(), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}, nil
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
	for name, values := range a.Header {
		req.Header[name] = values
	}
	switch {
	case a.Token != "":
		req.Header.Set("Authorization", "Bearer "+a.Token)
	case a.User != "":
		req.SetBasicAuth(a.User, a.Secret)
	}
	client := *cmp.Or(a.Client, http.DefaultClient)
	client.CheckRedirect = a.redirected
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
	case resp.StatusCode == http.StatusUnauthorized && bytes.Contains(bytes.ToLower(b), []byte("org id")):
		return nil, fmt.Errorf("%s wants to know whose series are asked for (401, %s): give its tenant with --header 'X-Scope-OrgID: TENANT'", req.URL.Redacted(), excuse(b))
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s wants to know who asks (401): give --token-file FILE with a bearer token, or --user NAME and --password-file FILE", req.URL.Redacted())
	case resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s knows who asks and does not allow it (403): the token of --token-file, or the user of --user, needs the right to read metrics", req.URL.Redacted())
	case resp.StatusCode != http.StatusOK:
		return nil, &status{shown(req.URL), resp.StatusCode, resp.Status, excuse(b)}
	}
	return b, nil
}

// shown is an address without its query, which may be long.
func shown(u *url.URL) string {
	bare := *u
	bare.RawQuery = ""
	return bare.Redacted()
}

// redirected goes where an answer sends it, and tells another host nothing that was meant for this one.
func (a Address) redirected(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	if req.URL.Host != via[0].URL.Host {
		for name := range a.Header {
			req.Header.Del(name)
		}
	}
	return nil
}

// excuse is what an answer that is none gives as its reason: the error of Prometheus's API, or a line of text; "" where it is a page for people.
func excuse(b []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(b, &answer) == nil {
		return exposition.Printable(answer.Error, 200)
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	if len(line) == 0 || line[0] == '<' {
		return ""
	}
	return exposition.Printable(string(line), 200)
}

// status is an answer that is none.
type status struct {
	url  string
	code int
	text string
	said string // what it gives as its reason; "" = nothing
}

func (s *status) Error() string {
	text := fmt.Sprintf("%s answers %s", s.url, s.text)
	if s.said != "" {
		text += " (" + s.said + ")"
	}
	switch {
	case s.code == http.StatusNotFound:
		text += ": give the whole path of its metrics (/metrics is usual, TensorRT-LLM has /prometheus/metrics)"
	case strings.Contains(s.said, "HTTP request to an HTTPS server"):
		text += ": write https:// instead of http://"
	case strings.Contains(s.said, "org id"):
		text += ": give its tenant with --header 'X-Scope-OrgID: TENANT'"
	case s.code == http.StatusTooManyRequests:
		text += ": it is asked too often; try again later, or for less (--history 1h)"
	case s.code == http.StatusUnprocessableEntity, s.code == http.StatusGatewayTimeout:
		text += ": ask for less (--history 1h)"
	case s.busy():
		text += ": it, or what stands before it, is not well; try again later"
	}
	return text
}

// busy reports whether whoever answers might have said more at another time.
func (s *status) busy() bool { return s.code == http.StatusTooManyRequests || s.code >= 500 }

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
	case strings.Contains(err.Error(), `malformed HTTP response "\x15`):
		advice = "it speaks TLS: write https:// instead of http://"
	case os.IsTimeout(err):
		advice = "it takes too long to answer"
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
