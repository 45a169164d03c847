package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// refusal is why a page was not taken, and what to do.
type refusal struct{ what, remedy string }

func (r *refusal) Error() string { return r.what }

// status is an answer other than a page.
type status struct {
	code int
	text string
}

func (s *status) Error() string { return "it answers " + s.text }

// explained says what an error means and which setting of the job helps.
func explained(err error) (what, remedy string) {
	var (
		own     *refusal
		answer  *status
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		dns     *net.DNSError
		dial    *net.OpError
		outer   *url.Error
	)
	if errors.As(err, &outer) {
		err = outer.Err // without the address, which stands beside it
	}
	text := err.Error()
	switch {
	case errors.As(err, &own):
		return own.what, own.remedy
	case errors.As(err, &answer):
		return answer.Error(), answer.remedy()
	case errors.Is(err, context.DeadlineExceeded):
		return "no whole page within scrape_timeout", "look whether the target hangs; else raise scrape_timeout of the job"
	case errors.As(err, &unknown):
		return "its certificate is signed by somebody unknown", "set tls_config.ca_file of the job to its authority's PEM file"
	case errors.As(err, &host):
		return "its certificate is for another name", "set tls_config.server_name of the job to the name in the certificate"
	case errors.As(err, &invalid):
		return "its certificate does not hold: " + text, "renew it at the target; look at both clocks"
	case errors.As(err, &record), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "it does not speak TLS", "set scheme: http"
	case strings.Contains(text, "malformed HTTP response"):
		return "it does not speak HTTP; perhaps TLS", "set scheme: https, or another port"
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"):
		return "it wants a certificate of the client", "set tls_config.cert_file and key_file of the job"
	case strings.Contains(text, "stopped after 10 redirects"):
		return "it redirects in a circle", "set metrics_path to where the metrics are, or follow_redirects: false to see where it leads"
	case strings.Contains(text, "unable to read"), strings.Contains(text, "no such file"), strings.Contains(text, "permission denied"):
		return "a file of the job cannot be read: " + text, "let the user that whylate runs as read it"
	case errors.As(err, &dns):
		return "its name is not known: " + dns.Name, "look at the target's spelling and at this machine's name server"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "nobody answers there: " + dial.Err.Error(), "is it running, and are address and port right, as seen from here?"
	case strings.Contains(text, "gzip"), strings.Contains(text, "unexpected EOF"):
		return "the page broke off: " + text, "look whether the target, or a proxy before it, ended meanwhile"
	case strings.Contains(text, "sample limit exceeded"):
		return "it has more samples than sample_limit of its job", "drop what you do not need with metric_relabel_configs, or raise sample_limit of the job (or scrape.sample_limit)"
	case strings.Contains(text, "_limit"), strings.Contains(text, "limit exceeded"):
		return text, "raise that limit of the job, or drop what exceeds it with metric_relabel_configs"
	}
	return text, "ask it by hand from this machine, with curl, and look at what comes"
}

func (s *status) remedy() string {
	switch {
	case s.code == http.StatusUnauthorized:
		return "it wants to know who asks: set authorization.credentials_file, or basic_auth with password_file, of the job"
	case s.code == http.StatusForbidden:
		return "it knows who asks and does not allow it: that token or user needs the right to read metrics"
	case s.code == http.StatusNotFound:
		return "set metrics_path: /metrics is usual, TensorRT-LLM has /prometheus/metrics"
	case s.code == http.StatusTooManyRequests:
		return "raise scrape_interval of the job, or see who else asks"
	case s.code == http.StatusNotAcceptable:
		return "set scrape_protocols of the job to what it can say"
	case s.code >= 300 && s.code < 400:
		return "set metrics_path and scheme to where that leads, or follow_redirects: true"
	case s.code >= 500:
		return "look into the target's own log for status " + strconv.Itoa(s.code)
	}
	return "look at the job's metrics_path and params"
}
