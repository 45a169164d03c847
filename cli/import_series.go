package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/bundle"
)

// Scrapes and logs travel as zips of some of a bundle's members: a page by itself would be an import each, and a whole bundle may be large.
const (
	sentMembers = 2000
	sentBytes   = 64 << 20 // unpacked, but for a member that is larger
)

// seriesSender sends them to a server.
type seriesSender struct{ to api.Importer }

func (s *seriesSender) take(ctx context.Context, b *bundle.Bundle, members []bundle.Member, answer *imported) error {
	for len(members) > 0 {
		n, bytes := 1, members[0].Size
		for n < len(members) && n < sentMembers && alike(members[n-1], members[n]) && bytes+members[n].Size <= sentBytes {
			bytes += members[n].Size
			n++
		}
		if err := s.send(ctx, b, members[:n], answer); err != nil {
			return err
		}
		members = members[n:]
	}
	return nil
}

// alike reports whether two members may travel together: a log goes alone, since the zip's time gives its lines their year.
func alike(x, y bundle.Member) bool {
	_, _, a := bundle.ScrapeOf(x.Path)
	_, _, b := bundle.ScrapeOf(y.Path)
	return a && b
}

func (s *seriesSender) send(ctx context.Context, b *bundle.Bundle, members []bundle.Member, answer *imported) error {
	m := bundle.Manifest{Producer: "whylate " + Version}
	if m.Span.To = logTime(b, members[0]); b.Manifest != nil {
		m.Span, m.Engines = b.Manifest.Span, b.Manifest.Engines
	}
	var parts []bundle.Part
	for _, x := range members {
		f, err := b.Open(x) // one that cannot be read costs no other
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			f.Close()
		}
		if err != nil {
			answer.not(x.Path, err.Error())
			continue
		}
		parts = append(parts, bundle.Part{Path: x.Path, Open: func() (io.ReadCloser, error) { return b.Open(x) }})
	}
	if len(parts) == 0 {
		return nil
	}
	read, write := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		write.CloseWithError(bundle.WriteZip(write, m, parts))
	}()
	r, err := s.to.Import(ctx, api.ImportQuery{Name: filepath.Base(b.Name)}, read)
	read.Close()
	<-done
	if err != nil {
		return fmt.Errorf("%s and what follows: %w", members[0].Path, err)
	}
	for _, x := range r.Series {
		answer.of(x)
	}
	answer.Changes += r.Changes
	answer.NotTaken = append(answer.NotTaken, r.NotTaken...)
	return nil
}

// logTime is a time near which a member was written, in Unix ns; 0 = not known: zips may have none.
func logTime(b *bundle.Bundle, m bundle.Member) int64 {
	if b.Manifest != nil && b.Manifest.Span.To != 0 {
		return b.Manifest.Span.To
	}
	if m.Modified.After(time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)) {
		return m.Modified.UnixNano()
	}
	return 0
}
