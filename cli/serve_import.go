package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/logline"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/native"
	"github.com/whylate/whylate/server"
)

// imports is a server that takes in run bundles too: their captures, traces and changes as the server does, their scrapes and logs as series.
type imports struct {
	*server.Server
	db  *metrics.DB
	dir string // where a zip lies until it has been read
}

// newImports removes what a process left behind that died while it read a bundle.
func newImports(s *server.Server, db *metrics.DB, dir string) *imports {
	old, _ := filepath.Glob(filepath.Join(dir, importZips)) // the pattern is sound
	for _, path := range old {
		os.Remove(path)
	}
	return &imports{s, db, dir}
}

const importZips = "import-*.zip"

// importedBy is the way by which they come, and the job of their series.
const importedBy = "import"

// Import implements [api.Importer].
func (s *imports) Import(ctx context.Context, q api.ImportQuery, in io.Reader) (*api.ImportResult, error) {
	file := bufio.NewReader(in)
	if head, _ := file.Peek(4); !bytes.HasPrefix(head, []byte("PK\x03\x04")) && !bytes.HasPrefix(head, []byte("PK\x05\x06")) {
		return s.Server.Import(ctx, q, file)
	}
	f, err := os.CreateTemp(s.dir, importZips)
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	n, err := io.Copy(f, file)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	b, err := bundle.Open(f.Name(), bundle.Limits{})
	if err != nil {
		return nil, &api.InvalidArgument{Argument: "file", Value: q.Name, Problem: strings.ReplaceAll(err.Error(), f.Name(), "the zip")}
	}
	defer b.Close()
	a := imported{}
	asItIs := func(_ string, _ int64, f io.Reader) (io.Reader, func()) { return f, func() {} }
	i := importer{to: s.Server, series: s, answer: &a, watch: asItIs}
	if err := i.bundle(ctx, b); err != nil {
		return nil, err
	}
	return &api.ImportResult{Name: q.Name, Bytes: n, Captures: a.Captures, Series: a.Series, Changes: a.Changes, NotTaken: a.NotTaken}, nil
}

// take implements [seriesTaker]: by keeping them.
func (s *imports) take(ctx context.Context, b *bundle.Bundle, members []bundle.Member, answer *imported) error {
	to := s.db.Import(importedBy)
	for _, m := range members {
		if err := s.one(ctx, to, b, m, answer); err != nil {
			return errors.Join(err, to.Close(ctx))
		}
	}
	if err := to.Close(ctx); err != nil {
		return err
	}
	seen, err := s.changes(ctx, answer)
	answer.Changes += s.Seen(seen)
	return err
}

// one takes a member. What is wrong with it costs it alone; an error is the store's.
func (s *imports) one(ctx context.Context, to *metrics.Import, b *bundle.Bundle, m bundle.Member, answer *imported) error {
	f, err := b.Open(m)
	if err != nil {
		answer.not(m.Path, err.Error())
		return nil
	}
	defer f.Close()
	if target, ms, ok := bundle.ScrapeOf(m.Path); ok {
		return page(ctx, to, m, target, ms, f, answer)
	}
	return s.log(ctx, to, b, m, f, answer)
}

// mostPage bounds a page, in bytes.
const mostPage = 64 << 20

func page(ctx context.Context, to *metrics.Import, m bundle.Member, target string, ms int64, f io.Reader, answer *imported) error {
	text, err := io.ReadAll(io.LimitReader(f, mostPage+1))
	switch {
	case err != nil:
		answer.not(m.Path, err.Error())
		return nil
	case len(text) > mostPage:
		answer.not(m.Path, fmt.Sprintf("a page of more than %d bytes", mostPage))
		return nil
	}
	media := "text/plain"
	if exposition.IsOpenMetrics(text) {
		media = "application/openmetrics-text"
	}
	p := exposition.Mend(text, media)
	if p.Samples == 0 {
		why := "no line of it is a metric"
		if len(p.Problems) > 0 {
			why += "; the first is " + p.Problems[0].String()
		}
		answer.not(m.Path, why)
		return nil
	}
	var took metrics.Paged
	err = to.Append(ctx, time.UnixMilli(ms), func(app storage.AppenderV2) (int, error) {
		var err error
		took, err = metrics.AppendPage(app, p, labels.FromStrings("job", importedBy, "instance", target), ms)
		return took.Samples, err
	})
	var untimely *metrics.Untimely
	if errors.As(err, &untimely) {
		answer.not(m.Path, untimely.Why)
		return nil
	}
	s := api.ImportedSeries{Kind: "scrapes", Target: target, Files: 1, Samples: took.Samples, Guarded: took.Guarded, Late: took.Late, LeftOut: len(p.Problems)}
	s.From, s.To = ms*1e6, ms*1e6
	if took.Late > 0 {
		s.Note = "some samples are refused, the first: " + took.Why
	} else if len(p.Problems) > 0 {
		s.Note = "some lines are left out, the first: " + p.Problems[0].String()
	}
	answer.of(s)
	return err
}

// logEvery is how much of a log is written at once.
const logEvery = 1000

// log makes series and changes of the lines of an engine's log, as of a console that a collector sends.
func (s *imports) log(ctx context.Context, to *metrics.Import, b *bundle.Bundle, m bundle.Member, f io.Reader, answer *imported) error {
	base := path.Base(m.Path)
	target := strings.TrimSuffix(base, path.Ext(base))
	l := importedLog{to: to, series: api.ImportedSeries{Kind: "log", Target: target, Files: 1}}
	l.from.Resource = &genai.Resource{Service: importedBy, Instance: target}
	o := logline.Options{Zone: time.UTC}
	if at := logTime(b, m); at != 0 {
		o.Near = time.Unix(0, at)
	}
	understood := 0
	for line, err := range logline.Read(f, o) {
		if err != nil {
			l.series.Note = err.Error()
			break
		}
		took, err := l.line(ctx, line)
		if err != nil {
			return err
		}
		if took {
			understood++
		}
	}
	if err := l.write(ctx); err != nil {
		return err
	}
	if understood == 0 {
		answer.not(m.Path, cmp.Or(l.series.Note, "no line of it is one of vLLM or SGLang that tells of load or of a start"))
		return nil
	}
	l.series.Changes = s.Seen(l.changes)
	if l.zoneless && l.series.Note == "" {
		l.series.Note = "its times carry no zone: taken as UTC"
	}
	answer.of(l.series)
	return nil
}

// importedLog is a log that is being taken in.
type importedLog struct {
	to       *metrics.Import
	from     otlp.Origin
	console  console
	changes  []ledger.Change
	series   api.ImportedSeries
	zoneless bool
}

// line takes a line whose date is known.
func (l *importedLog) line(ctx context.Context, line logline.Line) (took bool, err error) {
	l.series.Lines++
	rv, rs := vllm.ParseLine(line.Text), sglang.ParseLine(line.Text)
	if line.Time.Date != logline.DateTold && line.Time.Date != logline.YearGuessed {
		l.series.LeftOut++
		return false, nil
	}
	l.zoneless = l.zoneless || line.Time.Zone == logline.ZoneGiven
	if took = l.console.record(&l.from, line.Time.At.UnixNano(), line.Tags.Get("DP"), rv, rs); took && len(l.console.points) >= logEvery {
		err = l.write(ctx)
	}
	return took, err
}

// write writes what was taken, minute by minute.
func (l *importedLog) write(ctx context.Context) error {
	points := l.console.points
	l.changes = append(l.changes, l.console.changes...)
	l.console.points, l.console.changes = nil, nil
	slices.SortStableFunc(points, func(a, b consolePoint) int { return int(a.at - b.at) })
	for len(points) > 0 {
		minute := points[0].at / 60_000
		n := 1
		for n < len(points) && points[n].at/60_000 == minute {
			n++
		}
		err := l.to.Append(ctx, time.UnixMilli(points[0].at), func(app storage.AppenderV2) (int, error) { return l.append(app, points[:n]) })
		var untimely *metrics.Untimely
		switch {
		case errors.As(err, &untimely):
			l.series.Late += n
			l.series.Note = untimely.Why
		case err != nil:
			return err
		}
		points = points[n:]
	}
	return nil
}

func (l *importedLog) append(app storage.AppenderV2, points []consolePoint) (samples int, err error) {
	for _, p := range points {
		ref, err := app.Append(0, p.labels, 0, p.at, p.value, nil, nil, storage.AppendV2Options{})
		switch {
		case metrics.IsUntimely(err):
			l.series.Late++
			continue
		case err != nil:
			return samples, err
		case ref == 0:
			l.series.Guarded++
			continue
		}
		samples++
		if at := p.at * 1e6; l.series.From == 0 || at < l.series.From {
			l.series.From = at
		}
		l.series.To = max(l.series.To, p.at*1e6)
	}
	l.series.Samples += samples
	return samples, nil
}

// changes are those that the scrapes that were taken in tell between one and the next.
func (s *imports) changes(ctx context.Context, answer *imported) ([]ledger.Change, error) {
	from, to, targets := int64(0), int64(0), map[string]bool{}
	for _, x := range answer.Series {
		if x.Kind != "scrapes" || x.Samples == 0 {
			continue
		}
		targets[x.Target] = true
		if to = max(to, x.To); from == 0 || x.From < from {
			from = x.From
		}
	}
	if len(targets) == 0 {
		return nil, nil
	}
	ours := labels.MustNewMatcher(labels.MatchEqual, "job", importedBy)
	tracks, err := native.Matching(ctx, s.db.Detail(), time.Unix(0, from), time.Unix(0, to), changesNeed, ours)
	if err != nil {
		return nil, fmt.Errorf("changes of %s: %w", strings.Join(slices.Sorted(maps.Keys(targets)), ", "), err)
	}
	return look.ChangesOf(tracks), nil
}
