package web

import "github.com/whylate/whylate/api"

// observer is the service's sight of what arrives.
func observer(s api.Service) (api.Observer, error) {
	if x, ok := s.(api.Observer); ok {
		return x, nil
	}
	return nil, &api.Unsupported{What: "this server answers from what it read at its start, and nothing arrives at it", Remedy: "ask a server that takes in series ('whylate serve')"}
}
