package incident

import (
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/world"
)

// ofClients are incidents of clients, and of what lies between them and the service.
var ofClients = []Incident{
	{
		Name: "slow-client", Mechanism: "M19",
		What:  "Some clients read their answers slowly: the engine is done long before them.",
		Needs: "the front end's records, or the clients'",
		Moves: up(Unread), Keeps: []string{Step, Arrivals, Preemptions, Residual, Clock},
		Cure:  &Intervention{"client", "class far", "a local client", "The same requests from nearby are read at once."},
		stage: func(s *stage) { s.add(ordinary(3)); s.readers("far", s.between(30, 90)) },
	},
	{
		Name: "slow-batch-reader", TwinOf: "slow-client",
		What:  "A job reads its answers slowly; nobody looks at them meanwhile.",
		Moves: up(Unread), Keeps: []string{TTFT, ITL, ITLTail, TPOT, Step, Preemptions, Residual, Clock},
		stage: func(s *stage) { s.add(ordinary(3)); s.readers(batch, s.between(30, 90)) },
	},
	{
		Name: "retry-storm", Mechanism: "M21",
		What:  "A short stall lets clients time out; they try again, and their attempts keep the queue full.",
		Needs: "the clients' records with their attempts",
		Moves: up(Attempts, Failures, Queue, TTFTTail), Keeps: []string{Arrivals, Residual, Clock, HeldHeat},
		Cure: &Intervention{"client", "retries", "0", "Who timed out does not come again at once."},
		stage: func(s *stage) {
			s.config.Client.Timeout, s.config.Client.Retries, s.config.Client.Backoff = 2500*time.Millisecond, 3, 200*time.Millisecond
			s.add(ordinary(s.between(8, 11)))
			s.at(s.Onset, func(w *world.World) {
				w.Engine(s.Scope, 0).Stall(time.Duration(s.between(2.5, 5) * float64(time.Second)))
			})
			s.blame("class", chat)
			s.blameEngine()
		},
	},
	{
		Name: "retries-absorbed", TwinOf: "retry-storm",
		What:  "A front end refuses for a moment, its clients come again at once and are served.",
		Moves: up(Attempts), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.config.Client.Retries, s.config.Client.Backoff = 5, 50*time.Millisecond
			s.add(ordinary(4))
			s.every(2*time.Second, func(w *world.World) {
				w.Replica(s.Scope).Refuse(503)
				w.At(w.Now()+time.Duration(s.between(100, 200)*float64(time.Millisecond)), func(w *world.World) { w.Replica(s.Scope).Refuse(0) })
			})
			s.blameReplica()
		},
	},
	{
		Name: "buffering-proxy", Mechanism: "M30",
		What:  "A proxy collects chunks before it passes them on: for the client nothing comes, then all at once.",
		Needs: "the front end's records and the clients'",
		Moves: up(Unbuffered, TTFT), Keeps: []string{Step, Arrivals, Frontend, Preemptions, Residual, Clock},
		Cure:  &Intervention{"route", "proxy", "past it", "The same request without the proxy streams."},
		stage: func(s *stage) { s.proxied(chat, s.between(0.3, 1.5)) },
	},
	{
		Name: "buffered-batch", TwinOf: "buffering-proxy",
		What:  "A proxy collects the chunks of a job that wants whole answers anyhow.",
		Moves: up(Unbuffered), Keeps: []string{TTFT, ITL, ITLTail, TPOT, Step, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(2))
			s.proxied(batch, s.between(0.3, 1.5))
		},
	},
}

// readers are requests whose clients take so many milliseconds for each chunk with the fault.
func (s *stage) readers(class string, each float64) {
	s.add(load{class: class, rate: 1, prompt: [2]int{100, 200}, output: [2]int{100, 200}, traits: func(r *experiment.Request) (t world.Traits) {
		if s.faulty(r.At) {
			c := s.config.Client
			c.Read, c.Buffer = time.Duration(each*float64(time.Millisecond)), 4
			t.Client = &c
		}
		return t
	}})
	s.blame("class", class)
}

// proxied are ordinary requests of a class, whose chunks are passed on every so many seconds with the fault.
func (s *stage) proxied(class string, every float64) {
	l := ordinary(3)
	l.class = class
	l.traits = func(r *experiment.Request) (t world.Traits) {
		if s.faulty(r.At) {
			c := s.config.Client
			c.Collect = time.Duration(every * float64(time.Second))
			t.Client = &c
		}
		return t
	}
	s.add(l)
	s.blame("class", class)
}
