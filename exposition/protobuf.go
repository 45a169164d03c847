package exposition

import (
	"bytes"
	"encoding/binary"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// FromProtobuf is a page in Prometheus's protobuf format as text; false where it is none. Of native histograms it keeps what text can say: their
// classic buckets, their sum and their count. What follows a family that cannot be decoded is lost.
func FromProtobuf(b []byte) (text []byte, ok bool) {
	var out bytes.Buffer
	for delimited(b) {
		size, n := binary.Uvarint(b)
		end := n + int(size)
		var f dto.MetricFamily
		if proto.Unmarshal(b[n:end], &f) != nil {
			break
		}
		b = b[end:]
		expfmt.MetricFamilyToText(&out, &f) // one without a metric is no text
	}
	return out.Bytes(), out.Len() > 0
}

// delimited reports whether a text begins with a length and a family of no more than it, which begins with its name.
func delimited(b []byte) bool {
	size, n := binary.Uvarint(b)
	if n <= 0 || size < 3 || size > uint64(len(b)-n) || b[n] != 1<<3|2 {
		return false
	}
	name, k := binary.Uvarint(b[n+1:])
	begin := n + 1 + k
	return k > 0 && name > 0 && name < size && uint64(len(b)-begin) >= name && model.UTF8Validation.IsValidMetricName(string(b[begin:begin+int(name)]))
}
