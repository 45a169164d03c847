package server

import (
	"context"

	"github.com/whylate/whylate/api"
)

var _ api.Scraper = (*Server)(nil)

// Targets implements [api.Scraper].
func (s *Server) Targets(ctx context.Context) (*api.TargetList, error) {
	if s.set.Targets == nil {
		return &api.TargetList{Targets: []api.Target{}}, nil
	}
	list := s.set.Targets()
	if !s.ready.Load() || len(list.Targets) == 0 {
		return list, nil
	}
	if who, err := s.joined(ctx); err == nil { // what is not known of engines is no reason to say nothing of targets
		for i := range list.Targets {
			list.Targets[i].Engines = who.engines[list.Targets[i].Labels["instance"]]
		}
	}
	return list, nil
}
