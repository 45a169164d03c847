package look

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// begun is when the first scrape of a case was taken, where a dress says it: Unix ms.
const begun = 1773219000000

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(\{.*\})?[ \t]+(\S+)$`)

// dressed are ways in which one page reaches us. What is said of it must not depend on them.
var dressed = []struct {
	name string
	page func(page []byte, in Input, at int64) []byte
}{
	{"labelled", func(page []byte, _ Input, _ int64) []byte { // by who scrapes
		return eachSample(page, func(name, labels, value string) string {
			return name + joined(labels, `cluster="eu-1",exported_job="engine",job="serving"`) + " " + value
		})
	}},
	{"with times", func(page []byte, _ Input, at int64) []byte { // as /federate writes them
		return eachSample(page, func(name, labels, value string) string { return fmt.Sprintf("%s%s %s %d", name, labels, value, at) })
	}},
	{"OpenMetrics", func(page []byte, _ Input, at int64) []byte {
		counter := regexp.MustCompile(`(?m)^# (TYPE|HELP) (\S+)_total `)
		page = eachSample(page, func(name, labels, value string) string {
			return fmt.Sprintf("%s%s %s %d.0", name, labels, value, at/1000)
		})
		return append(counter.ReplaceAll(page, []byte("# $1 $2 ")), "# EOF\n"...)
	}},
	{"without a word of it", func(page []byte, _ Input, _ int64) []byte {
		return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAll(page, nil)
	}},
	{"from Windows", func(page []byte, _ Input, _ int64) []byte {
		return append([]byte("\ufeff"), bytes.ReplaceAll(page, []byte("\n"), []byte("\r\n"))...)
	}},
	{"packed", func(page []byte, _ Input, _ int64) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(page)
		w.Close()
		return b.Bytes()
	}},
	{"as an answer of Prometheus", func(page []byte, in Input, at int64) []byte {
		var result []map[string]any
		eachSample(page, func(name, labels, value string) string {
			metric := map[string]string{"__name__": name, "instance": in.Target, "job": "serving"}
			for _, m := range regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(labels, -1) {
				metric[m[1]] = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(m[2])
			}
			if _, ok := number(strings.TrimPrefix(strings.TrimPrefix(value, "-"), "+")); !ok {
				value = "NaN"
			}
			result = append(result, map[string]any{"metric": metric, "values": [][2]any{{float64(at) / 1e3, value}}})
			return ""
		})
		b, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
		if err != nil {
			panic(err)
		}
		return b
	}},
}

func eachSample(page []byte, write func(name, labels, value string) string) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(page)) {
		if m := sampleLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			line = write(m[1], m[2], m[3]) + "\n"
		}
		b.WriteString(line)
	}
	return b.Bytes()
}

func joined(labels, more string) string {
	if inner := strings.TrimSuffix(strings.TrimPrefix(labels, "{"), "}"); inner != "" {
		return "{" + inner + "," + more + "}"
	}
	return "{" + more + "}"
}

// TestDressedCases reads every case's pages in other dresses: what must be said, and what must not, stays the same.
func TestDressedCases(t *testing.T) {
	for _, c := range cases {
		for _, d := range dressed {
			if slices.Contains(undressed[c.name], d.name) {
				continue
			}
			t.Run(c.name+" "+d.name, func(t *testing.T) {
				inputs := inputsOf(t, c.name)
				some := false
				for i, in := range inputs {
					if !strings.HasSuffix(in.Name, ".prom") {
						continue
					}
					some = true
					f, err := in.Open()
					if err != nil {
						t.Fatal(err)
					}
					b, err := io.ReadAll(f)
					f.Close()
					if err != nil {
						t.Fatal(err)
					}
					b = d.page(b, in, begun+in.Order*max(c.interval, time.Minute).Milliseconds())
					inputs[i].Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
				}
				if !some {
					t.Skip("no page")
				}
				scene, err := Read(context.Background(), inputs, Options{Interval: c.interval})
				if err != nil {
					t.Fatal(err)
				}
				var b bytes.Buffer
				if err := Judge(scene).Text(&b, 110); err != nil {
					t.Fatal(err)
				}
				text := strings.Join(strings.Fields(b.String()), " ")
				for _, want := range c.says {
					if !regexp.MustCompile(want).MatchString(text) {
						t.Errorf("it does not say %q:\n%s", want, b.String())
					}
				}
				for _, bad := range c.never {
					if m := regexp.MustCompile(bad).FindString(text); m != "" {
						t.Errorf("it says %q", m)
					}
				}
			})
		}
	}
}

// undressed are the dresses that take from a case what it is about.
var undressed = map[string][]string{
	"C28": {"without a word of it", "as an answer of Prometheus"},                              // the line's number
	"C70": {"with times", "OpenMetrics", "without a word of it", "as an answer of Prometheus"}, // what its page declares, beside an answer that has times
}
