// Package objective holds requests against what was promised of them, and counts them in histograms that can see it: each objective is a bound
// of a bucket, so that the share within it is counted and never interpolated.
package objective

import (
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Objectives are what a request is promised; 0 promises nothing.
type Objectives struct {
	TTFT time.Duration // arrival to first token
	TPOT time.Duration // mean gap between tokens
	E2E  time.Duration // first seen to last byte
}

// promise is one of the objectives under its name.
type promise struct {
	name string
	most time.Duration
}

func (o Objectives) promises() [3]promise {
	return [3]promise{{"ttft", o.TTFT}, {"tpot", o.TPOT}, {"e2e", o.E2E}}
}

// Verdict is what became of a request.
type Verdict string

// Verdicts.
const (
	Good   Verdict = "good"   // it met every objective
	Late   Verdict = "late"   // it missed one
	Failed Verdict = "failed" // it got no whole answer, and not because its client left
	Left   Verdict = "left"   // its client left before the end: nobody knows whether it would have met them
)

// Judge says whether a request met its objectives, and which it missed. What was not measured of it (no second token: no TPOT) is not missed.
func (o Objectives) Judge(a *account.Account) (v Verdict, missed []string) {
	r := a.Request
	switch {
	case r.End == ledger.EndDisconnect:
		return Left, nil
	case r.End == ledger.EndError || r.Status >= 400 || a.Output == 0:
		return Failed, nil
	}
	for i, taken := range []int64{a.TTFT, a.TPOT, a.E2E()} {
		if p := o.promises()[i]; p.most > 0 && taken > int64(p.most) {
			missed = append(missed, p.name)
		}
	}
	if len(missed) > 0 {
		return Late, missed
	}
	return Good, nil
}
