package incident

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/bundle"
)

// spoil changes a bundle that is written: what a fault of telemetry does to pages that were right when they were made.
type spoil func(dir string, t *Truth) error

// page is one metrics page of a target.
type page struct {
	file string
	ms   int64
}

// pages are a bundle's metrics pages by target, in order of time.
func pages(dir string) (map[string][]page, error) {
	files, err := filepath.Glob(filepath.Join(dir, "scrape", "*", "*.prom"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	of := map[string][]page{}
	for _, f := range files {
		name, err := filepath.Rel(dir, f)
		if err != nil {
			return nil, err
		}
		if target, ms, ok := bundle.ScrapeOf(filepath.ToSlash(name)); ok {
			of[target] = append(of[target], page{f, ms})
		}
	}
	return of, nil
}

// each changes the pages from the onset on, up to a time in Unix ms, given the last one before it.
func each(dir string, t *Truth, until int64, change func(before, now []byte) ([]byte, error)) error {
	all, err := pages(dir)
	if err != nil {
		return err
	}
	for _, of := range all {
		var before []byte
		for _, p := range of {
			text, err := os.ReadFile(p.file)
			if err != nil {
				return err
			}
			switch {
			case p.ms < t.Onset/1e6:
				before = text
			case p.ms >= until || before == nil:
			default:
				changed, err := change(before, text)
				if err != nil {
					return fmt.Errorf("%s: %w", p.file, err)
				}
				if err := os.WriteFile(p.file, changed, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// stale lets pages during the fault be the last one before it.
func stale(dir string, t *Truth) error {
	return each(dir, t, t.End/1e6, func(before, _ []byte) ([]byte, error) { return before, nil })
}

// reset lets counters and histograms begin at zero with the fault, for good.
func reset(dir string, t *Truth) error {
	return each(dir, t, 1<<62, func(before, now []byte) ([]byte, error) {
		had := samples(before)
		var out bytes.Buffer
		counting := false
		for line := range bytes.Lines(now) {
			text := string(line)
			if kind, ok := strings.CutPrefix(text, "# TYPE "); ok {
				counting = strings.Contains(kind, " counter") || strings.Contains(kind, " histogram")
			}
			series, value, ok := sample(text)
			if !ok || !counting || strings.Contains(series, "_created") {
				out.WriteString(text)
				continue
			}
			fmt.Fprintf(&out, "%s %s\n", series, strconv.FormatFloat(value-had[series], 'g', -1, 64))
		}
		return out.Bytes(), nil
	})
}

// samples are a page's values by series.
func samples(page []byte) map[string]float64 {
	of := map[string]float64{}
	for line := range bytes.Lines(page) {
		if series, value, ok := sample(string(line)); ok {
			of[series] = value
		}
	}
	return of
}

// sample takes a line of a page apart.
func sample(line string) (series string, value float64, ok bool) {
	line = strings.TrimRight(line, "\n")
	k := strings.LastIndexByte(line, ' ')
	if k < 0 || line[0] == '#' {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(line[k+1:], 64)
	return line[:k], value, err == nil
}
