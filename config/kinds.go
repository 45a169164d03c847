package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/whylate/whylate/ingest/stream"
)

// kind is a type of value: how it is read from text and written again.
type kind struct {
	name    string
	allowed string // what may be written, to end an error with
	secret  bool   // the value names a file that holds a secret
	parse   func(text string, in place) (any, error)
	format  func(any) string
}

// place is what a path depends on.
type place struct {
	dir  string // relative paths are below it
	home string // "" is not known
}

var (
	text = kind{name: "text", allowed: "text", format: asText,
		parse: func(s string, _ place) (any, error) { return s, nil }}
	word = kind{name: "word", allowed: "one of its words", format: asText,
		parse: func(s string, _ place) (any, error) { return s, nil }}
	words = kind{name: "words", allowed: "words with commas between", format: func(v any) string { return strings.Join(v.([]string), ", ") },
		parse: func(s string, _ place) (any, error) { return parseWords(s) }}
	boolean = kind{name: "true or false", allowed: "true or false", format: func(v any) string { return strconv.FormatBool(v.(bool)) },
		parse: func(s string, _ place) (any, error) { return parseBool(s) }}
	count = kind{name: "number", allowed: "a whole number", format: func(v any) string { return strconv.Itoa(v.(int)) },
		parse: func(s string, _ place) (any, error) { return parseCount(s) }}
	size = kind{name: "size", allowed: "a number with its unit, such as 512KiB, 64MiB or 2GB", format: func(v any) string { return FormatSize(v.(int64)) },
		parse: func(s string, _ place) (any, error) { return ParseSize(s) }}
	duration = kind{name: "duration", allowed: "a number with its unit, such as 500ms, 90s, 15m, 24h or 7d", format: func(v any) string { return FormatDuration(v.(time.Duration)) },
		parse: func(s string, _ place) (any, error) { return ParseDuration(s) }}
	retention = kind{name: "retention", allowed: "a number with its unit, such as 12h or 30d, or forever", format: func(v any) string { return FormatDuration(v.(time.Duration)) },
		parse: func(s string, _ place) (any, error) { return parseRetention(s) }}
	address = kind{name: "address", allowed: "host:port, such as 127.0.0.1:7700 or [::1]:7700; :7700 is every interface; off is none", format: asAddress,
		parse: func(s string, _ place) (any, error) { return parseAddress(s) }}
	target = kind{name: "target", allowed: "tls://host:port, tcp://host:port, or unix:///path/of/socket", format: asText,
		parse: func(s string, _ place) (any, error) { return parseTarget(s) }}
	path       = kind{name: "path", allowed: "the path of a file or directory", format: asText, parse: parsePath}
	secretPath = kind{name: "path of a secret", allowed: "the path of a file, beginning with /, ./, ../ or ~/", secret: true, format: asText, parse: parseSecretPath}
)

func asText(v any) string { return v.(string) }

func asAddress(v any) string {
	if v == "" {
		return "off"
	}
	return v.(string)
}

func parseWords(s string) (any, error) {
	var out []string
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w == "" {
			continue
		}
		if strings.ContainsFunc(w, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-:", r)
		}) {
			return nil, fmt.Errorf("holds %q, which is no word", w)
		}
		out = append(out, w)
	}
	return out, nil
}

func parseBool(s string) (any, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return nil, errors.New("is neither true nor false")
}

func parseCount(s string) (any, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return nil, errors.New("is not a whole number")
	}
	return n, nil
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// ParseSize reads a size in bytes: a number with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB). Zero needs none.
func ParseSize(s string) (int64, error) {
	if s == "0" {
		return 0, nil
	}
	number, unit := split(s)
	if number == "" {
		return 0, errors.New("is not a size")
	}
	if unit == "" {
		return 0, errors.New("has no unit")
	}
	for _, u := range sizeUnits {
		if !strings.EqualFold(unit, u.name) {
			continue
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || f < 0 {
			return 0, errors.New("is not a size")
		}
		if f*float64(u.bytes) >= math.MaxInt64 {
			return 0, errors.New("is too large")
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			return n * u.bytes, nil
		}
		return int64(math.Round(f * float64(u.bytes))), nil
	}
	return 0, fmt.Errorf("has the unknown unit %q", unit)
}

// FormatSize writes a size so that ParseSize reads the same number of bytes, in the unit that is shortest.
func FormatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	best := ""
	for _, u := range sizeUnits {
		if n%u.bytes != 0 {
			continue
		}
		if s := strconv.FormatInt(n/u.bytes, 10) + u.name; best == "" || len(s) < len(best) {
			best = s
		}
	}
	return best
}

// split divides a number from the letters after it; a space between them is allowed.
func split(s string) (number, unit string) {
	i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimSpace(s[i:])
}

const day = 24 * time.Hour

// ParseDuration reads what time.ParseDuration reads, and days: "7d", "1d12h". It is never negative.
func ParseDuration(s string) (time.Duration, error) {
	var days time.Duration
	rest := s
	if number, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || n < 0 || strings.ContainsAny(number, "eExXpP_+-NnIi"):
			return 0, errors.New("is not a duration")
		case n*float64(day) >= math.MaxInt64:
			return 0, errors.New("is too long")
		}
		days, rest = time.Duration(math.Round(n*float64(day))), after
		if rest == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil && strings.Contains(err.Error(), "missing unit"):
		return 0, errors.New("has no unit")
	case err != nil:
		return 0, errors.New("is not a duration")
	case d < 0 || strings.HasPrefix(rest, "-"):
		return 0, errors.New("is negative")
	case days+d < 0 || days+d == Forever:
		return 0, errors.New("is too long")
	}
	return days + d, nil
}

// FormatDuration writes a duration so that ParseDuration reads the same: in days where it is whole days.
func FormatDuration(d time.Duration) string {
	switch {
	case d == Forever:
		return "forever"
	case d > 0 && d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseRetention(s string) (any, error) {
	if s == "forever" {
		return Forever, nil
	}
	return ParseDuration(s)
}

func parseAddress(s string) (any, error) {
	if s == "off" || s == "" {
		return "", nil
	}
	return hostPort(s, 0)
}

// hostPort checks host:port; the port is a number of at least the given one.
func hostPort(s string, least int) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", errors.New("is not host:port")
	}
	if strings.ContainsAny(host, "/@?# \t") {
		return "", errors.New("has a host that cannot be one")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < least || n > 65535 || port[0] == '+' {
		return "", fmt.Errorf("has a port that is not a number from %d to 65535", least)
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// parseTarget reads what the agent's side of a stream reads, and asks for the port to be written.
func parseTarget(s string) (any, error) {
	t, err := stream.ParseTarget(s)
	if err != nil {
		return nil, errors.New("is not where a server is")
	}
	if t.Network == "unix" {
		return t.String(), nil
	}
	_, rest, found := strings.Cut(s, "://")
	if !found {
		rest = s
	}
	hp, err := hostPort(rest, 1)
	if err != nil {
		return nil, err
	}
	t.Address = hp
	return t.String(), nil
}

func parsePath(s string, in place) (any, error) {
	switch {
	case s == "":
		return "", nil
	case s == "~" || strings.HasPrefix(s, "~/"):
		if in.home == "" {
			return nil, errors.New("begins with ~ and HOME is not set")
		}
		return filepath.Join(in.home, s[1:]), nil
	case filepath.IsAbs(s):
		return filepath.Clean(s), nil
	}
	return filepath.Join(in.dir, s), nil
}

// parseSecretPath asks for a value that looks like a path, so that a secret put there by mistake is refused, and is not printed.
func parseSecretPath(s string, in place) (any, error) {
	if s == "" || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || strings.HasPrefix(s, "~/") {
		return parsePath(s, in)
	}
	return nil, errors.New("does not look like a path; the secret itself must not stand here")
}

// printable refuses what would break a log line or a path.
func printable(s string) error {
	if len(s) > 4096 {
		return errors.New("is longer than 4096 bytes")
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return errors.New("has a control character or is not UTF-8")
		}
	}
	return nil
}
