package genai

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Threshold is OpenTelemetry's rejection threshold (th) of a kept span: it was kept with probability (2^56 - T) / 2^56.
type Threshold struct {
	T     uint64
	Known bool // false: the span does not say with what probability it was kept, so nothing can be concluded about those that were not
}

// Weight is how many spans a kept one stands for: the exact inverse of its probability.
func (t Threshold) Weight() float64 { return float64(uint64(1)<<56) / float64(uint64(1)<<56-t.T) }

// ThresholdOf reads the threshold in a W3C tracestate. Nothing else of the tracestate is kept.
func ThresholdOf(tracestate string) Threshold {
	for member := range strings.SplitSeq(tracestate, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(member), "ot=")
		if !ok {
			continue
		}
		for part := range strings.SplitSeq(value, ";") {
			if th, ok := strings.CutPrefix(part, "th:"); ok && len(th) >= 1 && len(th) <= 14 {
				t, err := strconv.ParseUint(th+"00000000000000"[len(th):], 16, 64)
				return Threshold{t, err == nil}
			}
		}
	}
	return Threshold{}
}

// Denominator says how many calls the seen ones stand for.
type Denominator struct {
	Known    bool // every call says with what probability it was kept
	Weighted int  // calls that say it
	Of       int  // calls
	Total    float64
	Error    float64 // one standard error of Total
}

func (d *Denominator) add(t Threshold) {
	if t.Known {
		d.count(t.Weight())
	} else {
		d.count(0)
	}
}

// count adds a call that stands for w, 0 = it does not say.
func (d *Denominator) count(w float64) {
	d.Of++
	if w == 0 {
		return
	}
	d.Weighted++
	d.Total += w
	d.Error += w * (w - 1) // Horvitz-Thompson: Σ (1-p)/p²; the root at the end
}

// DenominatorOf says how many calls those of some weights stand for; 0 = one does not say.
func DenominatorOf(weights []float64) (d Denominator) {
	for _, w := range weights {
		d.count(w)
	}
	d.settle()
	return d
}

func (d *Denominator) settle() {
	d.Known = d.Of > 0 && d.Weighted == d.Of
	d.Error = math.Sqrt(d.Error)
}

// String is the sentence that every count and share of a view needs beside it.
func (d Denominator) String() string {
	switch {
	case d.Of == 0:
		return "no model call seen"
	case d.Known && d.Error == 0:
		return fmt.Sprintf("nothing was sampled away: the %s seen are all there were (th:0 in tracestate)", counted(d.Of, "request"))
	case d.Known:
		return fmt.Sprintf("sampled: the %s seen stand for %.0f ± %.0f (weights from th in tracestate; one standard error)", counted(d.Of, "request"), d.Total, d.Error)
	case d.Weighted == 0:
		return "denominator unknown: no span says with what probability it was kept (no th in tracestate), so rates and shares of all requests cannot be told"
	}
	return fmt.Sprintf("denominator unknown: %d of %d requests do not say with what probability they were kept; the other %d stand for %.0f", d.Of-d.Weighted, d.Of, d.Weighted, d.Total)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
