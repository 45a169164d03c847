package fidelity

import (
	"os"
	"testing"
)

func TestTheDemoIsDecidedAgain(t *testing.T) {
	f, err := os.Open("../../../cli/demo.wlc")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := ReadCapture(f, "demo.wlc")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		t.Logf("%+v", r)
	}
}
