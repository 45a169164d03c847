package dialect

import (
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/wire"
)

// Play gives a recorder what stands in a capture: each source that says who it is, and each of its frames but the hello. It returns how many
// frames no recorder can take: of sources that do not say who they are, of unknown types, or damaged.
func Play(r *wire.CaptureReader, to world.Recorder) (left int, err error) {
	sources := map[uint16]int{}
	messages := map[wire.Type]wire.Message{}
	for {
		record, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return left, nil
		case err != nil:
			return left, err
		case record.Opened != nil:
			h, err := wire.ParseHello(record.Opened.Hello)
			if err != nil {
				delete(sources, record.Source)
				continue
			}
			if sources[record.Source], err = to.Source(&h); err != nil {
				return left, fmt.Errorf("source %s: %w", record.Opened.Name, err)
			}
			continue
		case record.Gap != nil || record.Frame.Type == wire.TypeHello:
			continue
		}
		source, known := sources[record.Source]
		m := messages[record.Frame.Type]
		if m == nil {
			m = wire.NewMessage(record.Frame.Type)
			messages[record.Frame.Type] = m
		}
		if !known || m == nil || wire.Decode(record.Frame, m) != nil {
			left++
			continue
		}
		if err := to.Record(source, m); err != nil {
			return left, err
		}
	}
}
