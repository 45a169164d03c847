package overhead

import (
	"github.com/whylate/whylate/experiment/replay"
)

// played is all that one run gave.
type played struct {
	steady, burst replay.Summary // burst is zero without one
	before, after Usage          // around both
	log           []byte         // of the server, meanwhile
	recorded      Recorded       // by the probe, meanwhile
}

// measure is one thing that is compared.
type measure struct {
	name, title, unit string
	moreIsBetter      bool
	of                func(*played) (float64, bool) // false: not measured
}

// measures in the order in which they are shown. Names are part of what -o json promises.
var measures = []measure{
	{name: "capacity", title: "output tokens/s, burst", unit: "tokens/s", moreIsBetter: true, of: rate(func(p *played) *replay.Summary { return &p.burst })},
	{name: "throughput", title: "output tokens/s, load", unit: "tokens/s", moreIsBetter: true, of: rate(func(p *played) *replay.Summary { return &p.steady })},
	{name: "ttft_p50", title: "TTFT p50", unit: "ms", of: quantile(func(s *replay.Summary) replay.Quantiles { return s.TTFTFromPlanned }, p50)},
	{name: "ttft_p99", title: "TTFT p99", unit: "ms", of: quantile(func(s *replay.Summary) replay.Quantiles { return s.TTFTFromPlanned }, p99)},
	{name: "itl_p50", title: "ITL p50", unit: "ms", of: quantile(func(s *replay.Summary) replay.Quantiles { return s.ITL }, p50)},
	{name: "itl_p99", title: "ITL p99", unit: "ms", of: quantile(func(s *replay.Summary) replay.Quantiles { return s.ITL }, p99)},
	{name: "e2e_p50", title: "E2E p50", unit: "ms", of: quantile(func(s *replay.Summary) replay.Quantiles { return s.E2EFromPlanned }, p50)},
	{name: "host_gap", title: "gap between iterations", unit: "µs", of: func(p *played) (float64, bool) {
		gap, ok := hostGap(p.log)
		return float64(gap) / 1e3, ok
	}},
	{name: "recorded_gap", title: "the same, by the probe", unit: "µs", of: func(p *played) (float64, bool) {
		return float64(p.recorded.Gap) / 1e3, p.recorded.Gaps > 0
	}},
	{name: "probe_spent", title: "probe, by itself", unit: "µs/iteration", of: func(p *played) (float64, bool) {
		return float64(p.recorded.Spent) / 1e3, p.recorded.Gaps > 0
	}},
	{name: "cpu_engine", title: "CPU, engine and worker", unit: "s/1000tok", of: cpu(Engine)},
	{name: "cpu_frontend", title: "CPU, API server", unit: "s/1000tok", of: cpu(Frontend)},
	{name: "cpu_reader", title: "CPU, reader", unit: "s/1000tok", of: cpu(Reader)},
	{name: "cpu_all", title: "CPU, all of these", unit: "s/1000tok", of: cpu(Engine, Frontend, Reader)},
	{name: "reader_core", title: "reader, of one core", unit: "%", of: func(p *played) (float64, bool) {
		spent, ok := spent(p, Reader)
		return 100 * spent / p.seconds(), ok
	}},
	{name: "ring_bytes", title: "into the rings", unit: "B/s", of: func(p *played) (float64, bool) {
		if p.before.Rings == nil || p.after.Rings == nil || p.after.Rings.Files == 0 {
			return 0, false
		}
		return (float64(p.after.Rings.Bytes) - float64(p.before.Rings.Bytes)) / p.seconds(), true
	}},
	{name: "network_bytes", title: "network, reader", unit: "B/s", of: growth(func(u *Usage) *int64 { return u.Network })},
	{name: "capture_bytes", title: "disk, reader", unit: "B/s", of: growth(func(u *Usage) *int64 { return u.Capture })},
	{name: "log_bytes", title: "disk, server's log", unit: "B/s", of: growth(func(u *Usage) *int64 { return u.Log })},
}

// seconds between the two readings.
func (p *played) seconds() float64 { return (p.after.At - p.before.At).Seconds() }

func rate(of func(*played) *replay.Summary) func(*played) (float64, bool) {
	return func(p *played) (float64, bool) {
		s := of(p)
		return s.OutputRate, s.Requests > 0
	}
}

func p50(q replay.Quantiles) int64 { return q.P50 }
func p99(q replay.Quantiles) int64 { return q.P99 }

// quantile in ms, of the load.
func quantile(of func(*replay.Summary) replay.Quantiles, at func(replay.Quantiles) int64) func(*played) (float64, bool) {
	return func(p *played) (float64, bool) {
		q := of(&p.steady)
		return float64(at(q)) / 1e6, q.Count > 0
	}
}

// spent is the processor time of a role between the readings, s.
func spent(p *played, r Role) (float64, bool) {
	before, ok1 := p.before.CPU[r]
	after, ok2 := p.after.CPU[r]
	return (after - before).Seconds(), ok1 && ok2
}

// cpu is the seconds of the roles together for 1,000 output tokens. The reader may be absent beside others, the engine not.
func cpu(roles ...Role) func(*played) (float64, bool) {
	return func(p *played) (float64, bool) {
		var sum float64
		for _, r := range roles {
			s, ok := spent(p, r)
			if !ok && (r != Reader || len(roles) == 1) {
				return 0, false
			}
			sum += s
		}
		tokens := float64(p.steady.OutputTokens + p.burst.OutputTokens)
		return 1000 * sum / tokens, tokens > 0
	}
}

func growth(of func(*Usage) *int64) func(*played) (float64, bool) {
	return func(p *played) (float64, bool) {
		before, after := of(&p.before), of(&p.after)
		if before == nil || after == nil {
			return 0, false
		}
		return float64(*after-*before) / p.seconds(), true
	}
}
