package overhead

import (
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/wire"
)

// Recorded is what the probe itself wrote about a stretch of time. It is there only with the probe: nothing to compare, but a second source.
type Recorded struct {
	Gaps  int
	Gap   time.Duration // mean from a result to the next decision, while there is work
	Spent time.Duration // mean that the probe's own work took of an iteration, on the scheduler's thread
}

// readRecorded reads what the rings of a directory still hold between two times of CLOCK_MONOTONIC.
func readRecorded(dir string, from, to time.Duration) (r Recorded, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.ring"))
	if err != nil {
		return r, err
	}
	for _, path := range paths {
		ring, err := wire.OpenRing(path)
		if errors.Is(err, wire.ErrUnready) {
			continue
		}
		if err != nil {
			return r, err
		}
		err = r.add(ring, int64(from), int64(to))
		if err := errors.Join(err, ring.Close()); err != nil {
			return r, err
		}
	}
	if r.Gaps > 0 {
		r.Gap /= time.Duration(r.Gaps)
		r.Spent /= time.Duration(r.Gaps)
	}
	return r, nil
}

// add sums up one ring. An iteration counts if the one before it was seen to end, and somebody goes on in it.
func (r *Recorded) add(ring *wire.Ring, from, to int64) error {
	var scheduled wire.Scheduled
	var done wire.Done
	for {
		record, err := ring.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case record.Gap != nil || record.Opened != nil:
			done = wire.Done{}
		case record.Frame.Type == wire.TypeDone:
			if err := wire.Decode(record.Frame, &done); err != nil {
				return err
			}
		case record.Frame.Type == wire.TypeScheduled:
			if err := wire.Decode(record.Frame, &scheduled); err != nil {
				return err
			}
			if done.Iteration+1 != scheduled.Iteration || done.Iteration == 0 || scheduled.Time < from || scheduled.Time > to || noneGoesOn(&scheduled) {
				continue
			}
			r.Gaps++
			r.Gap += time.Duration(scheduled.Returned - done.Time)
			r.Spent += time.Duration(scheduled.Spent)
		}
	}
}

// noneGoesOn reports whether all members of an iteration are new ones: before it the engine may have been idle.
func noneGoesOn(s *wire.Scheduled) bool {
	for i := range s.Joins {
		if s.Joins[i].Kind == wire.JoinContinued {
			return false
		}
	}
	return int(s.Members) == len(s.Joins)
}
