package server

import (
	"context"

	"github.com/whylate/whylate/api"
)

var _ api.Scraper = (*Server)(nil)

// Targets implements [api.Scraper].
func (s *Server) Targets(context.Context) (*api.TargetList, error) {
	if s.set.Targets == nil {
		return &api.TargetList{Targets: []api.Target{}}, nil
	}
	return s.set.Targets(), nil
}
