package exposition

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

const openType = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// series reads a page as Prometheus's scraper does, and fails where it would refuse the page.
func series(page []byte, mediaType string) ([]string, error) {
	p, err := textparse.New(page, mediaType, labels.NewSymbolTable(), textparse.ParserOptions{FallbackContentType: "text/plain"})
	if p == nil {
		return nil, err
	}
	var out []string
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if entry == textparse.EntrySeries {
			var ls labels.Labels
			if p.Labels(&ls); !ls.Has(model.MetricNameLabel) {
				return nil, errNoName
			}
			out = append(out, ls.String())
		}
	}
}

func TestMend(t *testing.T) {
	for name, c := range map[string]struct {
		page, media string
		want        []string
		problems    int
	}{
		"whole":             {page: "a 1\nb 2\n", want: []string{`{__name__="a"}`, `{__name__="b"}`}},
		"no end of line":    {page: "a 1\nb 2", want: []string{`{__name__="a"}`, `{__name__="b"}`}},
		"minus NaN":         {page: "a 1\nb -nan\nc 2\n", want: []string{`{__name__="a"}`, `{__name__="b"}`, `{__name__="c"}`}, problems: 1},
		"a bad line":        {page: "a 1\nb{ 2\nc 2\n", want: []string{`{__name__="a"}`, `{__name__="c"}`}, problems: 1},
		"not UTF-8":         {page: "a 1\nb{x=\"\xff\"} 2\n", want: []string{`{__name__="a"}`}, problems: 1},
		"no name":           {page: "a 1\n{x=\"y\"} 2\n", want: []string{`{__name__="a"}`}, problems: 1},
		"quoted name":       {page: "{\"a.b\",x=\"y\"} 2\n", want: []string{`{__name__="a.b", x="y"}`}},
		"open":              {page: "a 1\n# EOF\n", media: openType, want: []string{`{__name__="a"}`}},
		"open, cut off":     {page: "a 1\nb 2\nc", media: openType, want: []string{`{__name__="a"}`, `{__name__="b"}`}, problems: 2},
		"open, a bad line":  {page: "a 1\nb x\nc 2\n# EOF\n", media: openType, want: []string{`{__name__="a"}`, `{__name__="c"}`}, problems: 1},
		"nothing":           {page: ""},
		"nothing readable":  {page: "Not Found\n<br>\n", problems: 2},
		"unknown mediatype": {page: "a 1\n", media: "application/json", want: []string{`{__name__="a"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			m := Mend([]byte(c.page), c.media)
			media := c.media
			if media != openType {
				media = "text/plain"
			}
			got, err := series(m.Page, media)
			if err != nil {
				t.Fatalf("still refused: %v\n%s", err, m.Page)
			}
			if !slices.Equal(got, c.want) || m.Samples != len(c.want) || len(m.Problems) != c.problems {
				t.Errorf("%q, %d samples, %v", got, m.Samples, m.Problems)
			}
		})
	}
}

// Of every page of the field cases Prometheus then takes what Read finds.
func TestMendedCasesAreTaken(t *testing.T) {
	files, err := filepath.Glob("../testdata/cases/*.prom")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, f := range files {
		page, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		m := Mend(page, "text/plain")
		got, err := series(m.Page, "text/plain")
		if err != nil || len(got) != m.Samples {
			t.Errorf("%s: %v, %d of %d samples", filepath.Base(f), err, len(got), m.Samples)
		}
	}
}

// Whatever comes, what Mend makes of it is taken.
// Prometheus's labels end the process where a name or a value has 16 MiB.
func TestWhatIsTooLongIsLeftOut(t *testing.T) {
	long := strings.Repeat("x", 17<<20)
	for name, c := range map[string]struct{ page, media string }{
		"a value":                  {page: "a 1\nb{x=\"" + long + "\"} 1\nc 1\n"},
		"a name":                   {page: "a 1\n" + long + " 1\nc 1\n"},
		"a value of many lines":    {page: "a 1\nc 1\nb{x=\"" + strings.Repeat("x\n", 9<<20) + "\"} 1\n"},
		"a value in OpenMetrics":   {page: "a 1\nb{x=\"" + long + "\"} 1\nc 1\n# EOF\n", media: openType},
		"an exemplar":              {page: "a 1\nb_total 1 # {x=\"" + long + "\"} 1\nc 1\n# EOF\n", media: openType},
		"many values, in one line": {page: "a 1\nb{" + strings.Repeat("x=\"yyyyyyyyy\",", 1<<17) + "} 1\nc 1\n"},
	} {
		m := Mend([]byte(c.page), c.media)
		got, err := series(m.Page, m.MediaType)
		if err != nil || !slices.Equal(got, []string{`{__name__="a"}`, `{__name__="c"}`}) || len(m.Problems) == 0 || len(m.Problems[0].String()) > 300 {
			t.Errorf("%s: %.200q, %v, %d problems", name, got, err, len(m.Problems))
		}
		p := Read([]byte(c.page))
		if p.Family("a") == nil || p.Family("c") == nil || p.Family("b") != nil || len(p.Problems) == 0 {
			t.Errorf("%s: read as %d families, %d problems", name, len(p.Families), len(p.Problems))
		}
	}
	if m := Mend([]byte("a 1\n"+strings.Repeat("x\n", 9<<20)), ""); m.Samples != 1 || len(m.Problems) != mostProblems+1 {
		t.Errorf("%d samples, %d problems", m.Samples, len(m.Problems))
	}
	family := append(binary.AppendUvarint(nil, 3), "\x0a\x01a"...)
	if m := Mend(family, "application/vnd.google.protobuf"); len(m.Page) != 4 || len(m.Problems) != 0 {
		t.Errorf("%+v", m)
	}
	family = append(binary.AppendUvarint(family, 17<<20), long...)
	if m := Mend(family, "application/vnd.google.protobuf; proto=other"); m.Page != nil || len(m.Problems) != 1 {
		t.Errorf("%d bytes, %v", len(m.Page), m.Problems)
	}
}

func FuzzMend(f *testing.F) {
	for _, page := range []string{"a 1\n", "a{b=\"c\"} -nan 3\n", "# TYPE a counter\na_total 1 # {x=\"y\"} 1\n# EOF\n", "{\"a\"} 1\n", "a 1\n# EOF\nb 2\n"} {
		f.Add([]byte(page), true)
		f.Add([]byte(page), false)
	}
	f.Fuzz(func(t *testing.T, page []byte, open bool) {
		media := "text/plain"
		if open {
			media = openType
		}
		m := Mend(page, media)
		got, err := series(m.Page, media)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		if len(got) != m.Samples {
			t.Errorf("%d of %d samples", len(got), m.Samples)
		}
		for _, p := range m.Problems {
			if strings.ContainsAny(p.String(), "\x00\x1b\n") {
				t.Errorf("%q is no text for a terminal", p)
			}
		}
	})
}
