package replay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
)

// Options says where a workload is sent and how. Base is required; every other zero value has the meaning given.
type Options struct {
	Base        string      // the server, such as http://127.0.0.1:8000; a path is kept, and /v1/completions added to it
	Model       string      // the model to name; empty names none, which vLLM answers with the one that it serves
	Chat        bool        // send to /v1/chat/completions; prompts are then text within the model's chat template
	TextPrompt  bool        // send prompts as text, not as token ids: exact for byte-level tokenizers only
	Temperature float64     // of sampling; 0 is greedy, but 1 where several sequences are asked for, which vLLM refuses to make greedily
	Token       string      // bearer token; empty sends none
	Header      http.Header // more headers for every request

	Run    string                   // names this replay in its request ids, wl-<run>-<i>; empty takes the clock's time
	Seed   uint64                   // of trace ids and of the jitter of retries
	Prompt experiment.PromptOptions // which tokens prompts are made of, and their own seed
	Speed  float64                  // 2 sends in half the time; 0 stands for 1

	MaxInFlight   int           // most requests under way at once; 0 stands for 4096
	Timeout       time.Duration // for one attempt, from sending to the last byte; 0 stands for 10 minutes
	Retries       int           // more attempts after a refusal or a broken connection, if no output had come; 0 makes none
	RetryWait     time.Duration // before the second attempt, doubled before each further one; 0 stands for 100 ms
	MaxLine       int           // longest line of a response, bytes; 0 stands for 16 MiB
	NoTraceparent bool          // send no traceparent, unless the workload asks for it

	TLS  *tls.Config                                                          // nil is the default configuration
	Dial func(ctx context.Context, network, address string) (net.Conn, error) // nil dials TCP

	Clock    Clock        // nil is Monotonic
	Recorder func(Result) // gets every attempt when it has ended, one call at a time, and may keep it; nil records nothing
}

// withDefaults returns a copy with every zero value replaced by its meaning, or an error for one that has none.
func (o Options) withDefaults() (Options, error) {
	if o.Clock == nil {
		o.Clock = Monotonic{}
	}
	if o.Run == "" {
		o.Run = strconv.FormatInt(o.Clock.Now(), 36)
	}
	setDefault(&o.Speed, 1)
	setDefault(&o.MaxInFlight, 4096)
	setDefault(&o.Timeout, 10*time.Minute)
	setDefault(&o.RetryWait, 100*time.Millisecond)
	setDefault(&o.MaxLine, 16<<20)

	switch base, err := url.Parse(o.Base); {
	case err != nil:
		return o, fmt.Errorf("base URL: %w; give one such as http://127.0.0.1:8000", err)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return o, fmt.Errorf("base URL %q: give one such as http://127.0.0.1:8000", o.Base)
	case base.RawQuery != "" || base.Fragment != "":
		return o, fmt.Errorf("base URL %q: leave out what follows the path", o.Base)
	}
	switch {
	case !(o.Speed > 0) || math.IsInf(o.Speed, 1):
		return o, fmt.Errorf("speed %v: give a factor above 0, such as 1", o.Speed)
	case math.IsNaN(o.Temperature) || math.IsInf(o.Temperature, 0) || o.Temperature < 0:
		return o, fmt.Errorf("temperature %v: give 0 or more", o.Temperature)
	case o.MaxInFlight < 0:
		return o, fmt.Errorf("limit of requests in flight %d: give 1 or more", o.MaxInFlight)
	case o.Timeout < 0 || o.RetryWait < 0:
		return o, errors.New("timeout and wait before a retry: give 0 or more")
	case o.Retries < 0 || o.Retries > maxRetries:
		return o, fmt.Errorf("retries %d: give 0 to %d", o.Retries, maxRetries)
	case o.MaxLine < 0:
		return o, fmt.Errorf("longest line %d bytes: give 1 or more", o.MaxLine)
	case !validRun(o.Run):
		return o, fmt.Errorf("run %q: use 1 to 64 letters, digits, dots, dashes and underscores: it becomes part of every X-Request-Id", o.Run)
	}
	return o, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func validRun(run string) bool {
	allowed := func(r rune) bool {
		return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}
	return run != "" && len(run) <= 64 && strings.IndexFunc(run, func(r rune) bool { return !allowed(r) }) < 0
}

// endpoint returns the URL that requests are posted to. A base that ends in /v1 is taken as what other clients call theirs.
func (o *Options) endpoint() string {
	base := strings.TrimSuffix(strings.TrimRight(o.Base, "/"), "/v1")
	if o.Chat {
		return base + "/v1/chat/completions"
	}
	return base + "/v1/completions"
}
