package metrics

import (
	"strings"
	"testing"
)

func TestQueriesThatPutTogetherLongLabels(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	nested := "up"
	for range 7 {
		nested = `label_replace(` + nested + `, "a", "$1$1", "a", "(.*)")`
	}
	for query, ok := range map[string]bool{
		`label_replace(up, "a", "$1-$2", "pod", "(.*)-(.*)")`:                                      true,
		`label_replace(label_replace(up, "a", "$1:$2", "b", "(.)(.)"), "c", "${1}x", "a", "(.*)")`: true,
		`label_join(up, "a", "/", "namespace", "pod", "container")`:                                true,
		`up{pod=~"` + long + `"}`:                                                      true,
		`label_replace(up, "a", "` + long + `", "", "")`:                               false,
		`label_replace(up, "a", (("` + long + `")), "", "")`:                           false,
		`sum(label_replace(up, "a", "` + strings.Repeat("$1", 40) + `", "b", "(.*)"))`: false,
		`label_join(up, "a", "` + long + `", "b", "c")`:                                false,
		`label_join(up, "a", "", ` + strings.Repeat(`"b",`, 40) + `"c")`:               false,
		`count_values("v", up)`:                                                        true,
		`count_values("` + long + `", up)`:                                             false,
		`label_join(up, "` + long + `", "", "b")`:                                      false,
		`1 + ` + nested: false,
	} {
		if _, err := Parser().ParseExpr(query); (err == nil) != ok {
			t.Errorf("%.100s: %v", query, err)
		}
	}
}
