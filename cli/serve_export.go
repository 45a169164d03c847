package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/export"
	"github.com/whylate/whylate/internal/renew"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/server"
)

// spansOut sends finished requests as spans. Nil sends none.
type spansOut struct {
	client *export.Client
	e      *export.Exporter
}

// openSpansOut makes what section export asks for, and lets the server tell it of requests that are over.
func openSpansOut(ctx context.Context, c *config.Config, set *server.Settings, log *slog.Logger) (*spansOut, error) {
	x := &c.Export
	if x.Endpoint == "" {
		return nil, nil
	}
	target, err := exportTarget(x, nil)
	if err != nil {
		return nil, err
	}
	client, err := export.Dial(ctx, target)
	if err != nil {
		return nil, err
	}
	place, err := export.OpenPlace(vfs.OS{}, c.DataDir, time.Now().UnixNano())
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	e := export.New(export.Settings{Options: export.Options{IDs: x.IDs, Version: Version}, SpansPerSecond: x.SpansPerSecond, Queue: x.QueueSpans,
		Sampling: export.Sampling{OneIn: x.SampleOneIn, TailTTFT: x.TailTTFT, TailE2E: x.TailE2E}, Send: client.Send, Place: place, Log: log})
	set.Outlets = append(set.Outlets, &server.Outlet{After: place.Through(), Offer: e.Offer})
	log.Info("requests leave as spans", "endpoint", x.Endpoint, "one_in", x.SampleOneIn)
	return &spansOut{client, e}, nil
}

// exportTarget is where spans go, with what its files say. setting names a setting for a person, nil as the file does.
func exportTarget(x *config.Export, setting func(string) string) (t export.Target, err error) {
	t = export.Target{Endpoint: x.Endpoint, Compression: x.Compression, Timeout: x.Timeout, Setting: setting}
	if t.Headers, err = export.ReadHeaders(x.HeadersFile); err != nil {
		return t, err
	}
	tls, err := (renew.TLS{Cert: x.TLS.Cert, Key: x.TLS.Key, CA: x.TLS.CA}).Client(renew.NewGroup(slog.New(slog.DiscardHandler), nil), x.TLS.Name)
	if err != nil {
		return t, fmt.Errorf("export: %w", err)
	}
	t.TLS = tls()
	return t, nil
}

func (o *spansOut) run(ctx context.Context) error {
	if o == nil {
		return nil
	}
	return errors.Join(o.e.Run(ctx), o.client.Close())
}

// metrics adds the exporter's figures to others.
func (o *spansOut) metrics(others prometheus.Gatherer) prometheus.Gatherer {
	if o == nil {
		return others
	}
	return prometheus.Gatherers{others, o.e.Metrics()}
}

// faults tells of a receiver that does not take what it is sent, as long as that is so.
func (o *spansOut) faults() []api.Fault {
	if o == nil {
		return nil
	}
	s := o.e.Stats()
	if s.LastFailure == nil {
		return nil
	}
	return []api.Fault{{What: "export spans", Count: s.Failures, Last: s.LastFailure.Error(), At: s.FailedAt.UnixNano()}}
}
