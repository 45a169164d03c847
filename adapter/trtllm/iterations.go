package trtllm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// Iterations are the statistics of /metrics: a list that each read empties.
type Iterations struct {
	Tracks  []*adapter.Track // a point an iteration, without times: the server's have no zone
	Count   int
	Overlap bool   // the overlap scheduler: an iteration's latency spans about two turns of the loop
	Last    string // the last one's time as the server writes it
}

// ErrNone says that a JSON document is no list of iterations.
var ErrNone = fmt.Errorf("no iteration statistics of TensorRT-LLM")

// ReadIterations reads the list. An empty one is no error and no zero: nothing ran since the last read, or somebody else read it.
func ReadIterations(target string, b []byte) (*Iterations, error) {
	list, ok := objects(b)
	if !ok {
		return nil, ErrNone
	}
	r := &Iterations{Count: len(list)}
	tracks := map[[2]string]*adapter.Track{}
	for _, it := range list {
		if it["iter"] == nil && it["iterLatencyMS"] == nil {
			return nil, ErrNone
		}
		var mode string
		if json.Unmarshal(it["schedulerMode"], &mode) == nil && mode == "overlap" {
			r.Overlap = true
		}
		_ = json.Unmarshal(it["timestamp"], &r.Last) // absent in some versions
		rank := string(it["attentionDpRank"])        // absent means the only one
		flatten("", it, func(name string, value float64) {
			t := tracks[[2]string{name, rank}]
			if t == nil {
				t = &adapter.Track{Target: target, Family: name, Type: exposition.Gauge}
				if rank != "" {
					t.Labels = exposition.Labels{{Name: "attentionDpRank", Value: rank}}
				}
				tracks[[2]string{name, rank}] = t
				r.Tracks = append(r.Tracks, t)
			}
			t.Points = append(t.Points, adapter.Point{Value: value})
		})
	}
	slices.SortFunc(r.Tracks, func(a, b *adapter.Track) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Labels.Key(), b.Labels.Key()))
	})
	return r, nil
}

// objects are those of a list, or of several lists and objects one behind the other, as who polls and appends saves them.
func objects(b []byte) (list []map[string]json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	for n := 0; ; n++ {
		var next json.RawMessage
		if err := d.Decode(&next); errors.Is(err, io.EOF) {
			return list, n > 0
		} else if err != nil {
			return nil, false
		}
		var one map[string]json.RawMessage
		var many []map[string]json.RawMessage
		switch {
		case json.Unmarshal(next, &many) == nil && many != nil:
			list = append(list, many...)
		case json.Unmarshal(next, &one) == nil && one != nil:
			list = append(list, one)
		default:
			return nil, false
		}
	}
}

// flatten gives the numbers of an object by their path.
func flatten(prefix string, object map[string]json.RawMessage, put func(string, float64)) {
	for name, raw := range object {
		var value float64
		var inner map[string]json.RawMessage
		if json.Unmarshal(raw, &value) == nil && string(raw) != "null" {
			put(prefix+name, value)
		} else if prefix == "" && json.Unmarshal(raw, &inner) == nil {
			flatten(name+".", inner, put)
		}
	}
}
