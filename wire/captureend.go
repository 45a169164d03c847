package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// CaptureEnd returns the offset after the last whole block of a capture: what lies beyond it is a torn tail. A capture whose
// header is cut has no block, and its end is 0. A newer major version is refused with [ErrNewerMajor].
func CaptureEnd(in io.Reader) (int64, error) {
	var header [captureHeader]byte
	if _, err := io.ReadFull(in, header[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("read capture: %w", err)
	}
	if string(header[:8]) != captureMagic {
		return 0, nil
	}
	if major := binary.LittleEndian.Uint16(header[8:]); major > Major {
		return 0, newerMajor("capture", major, binary.LittleEndian.Uint16(header[10:]))
	}
	blocks, err := newBlockReader(in)
	if err != nil {
		return 0, err
	}
	defer blocks.close()
	end := int64(captureHeader)
	for {
		_, _, err := blocks.next()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		end = captureHeader + blocks.read
	}
}
