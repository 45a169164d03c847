package config

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "0B": 0, "1B": 1, "512MiB": 512 << 20, "2GB": 2e9, "1.5GiB": 3 << 29, "64 MiB": 64 << 20, "64mib": 64 << 20, "3kb": 3000} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"": "is not a size", "64": "has no unit", "-1B": "is not a size", "1XB": `has the unknown unit "XB"`, "9e9GB": `has the unknown unit "e9GB"`,
		"9999999999TiB": "is too large", "99999999999999999999999999B": "is too large", "1.2.3MB": "is not a size", ".MB": "is not a size", "NaNB": "is not a size"} {
		if n, err := ParseSize(in); err == nil || err.Error() != want {
			t.Errorf("%q: %d, %v; want %s", in, n, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"15m": 15 * time.Minute, "7d": 7 * day, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond, "0": 0, "1.5d": 36 * time.Hour, "1h30m": 90 * time.Minute} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"15": "has no unit", "": "is not a duration", "-1s": "is negative", "-0s": "is negative", "1d-1h": "is negative", "-1d": "is not a duration",
		"xd": "is not a duration", "1e9d": "is not a duration", "999999999999d": "is too long", "106751d24h": "is too long", "1w": "is not a duration", "infd": "is not a duration"} {
		if d, err := ParseDuration(in); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v; want %s", in, d, err, want)
		}
	}
}

// What is written is read as the same.
func TestFormatsRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		n := r.Int64() >> r.IntN(63)
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Fatalf("size %d: %q is %d, %v", n, FormatSize(n), got, err)
		}
		d := time.Duration(r.Int64() >> r.IntN(63))
		for _, d := range []time.Duration{d, d.Truncate(time.Minute), d.Truncate(time.Hour), d.Truncate(day)} {
			if got, err := parseRetention(FormatDuration(d)); err != nil || got != d {
				t.Fatalf("duration %d: %q is %v, %v", d, FormatDuration(d), got, err)
			}
		}
	}
	for n, want := range map[int64]string{64 << 20: "64MiB", 2e9: "2GB", 1 << 30: "1GiB", 1000: "1kB", 1023: "1023B", 0: "0"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{15 * time.Minute: "15m", time.Hour: "1h", 90 * time.Minute: "1h30m", 48 * time.Hour: "2d", Forever: "forever", 65 * time.Second: "1m5s"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%d is written %q, want %q", d, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{"off": "", "": "", ":7700": ":7700", "127.0.0.1:0": "127.0.0.1:0", "[::1]:7700": "[::1]:7700", "host.example:080": "host.example:80"} {
		if got, err := parseAddress(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"7700", "localhost", "localhost:http", "::1:7700", "a:70000", "a:-1", "http://a:80", "a b:80", "a:+1"} {
		if got, err := parseAddress(in); err == nil {
			t.Errorf("%q was taken as %q", in, got)
		}
	}
	for in, want := range map[string]string{"srv:7701": "tls://srv:7701", "127.0.0.1:1": "tcp://127.0.0.1:1", "tcp://srv:07701": "tcp://srv:7701", "unix:///run/w.sock": "unix:///run/w.sock"} {
		if got, err := parseTarget(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", ":7701", "srv", "srv:0", "https://srv:7701", "unix:", "unix://w.sock", "tls://srv", "tls://op:x@srv:1"} {
		if got, err := parseTarget(in); err == nil {
			t.Errorf("%q was taken as %q", in, got)
		}
	}
}
