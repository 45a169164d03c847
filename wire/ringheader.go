package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Sizes of a ring file, in bytes.
const (
	DefaultRingSize = 15 << 20 // of the data area

	ringHeaderSize = 16_384
	ringHelloMax   = ringHeaderSize - ringHelloAt
)

const ringMagic = "WLRING\r\n"

// Offsets of the fields in a ring's header.
const (
	ringMajor       = 8
	ringMinor       = 10
	ringHeaderAt    = 12
	ringDataSize    = 16
	ringPID         = 24
	ringHelloLength = 28
	ringStart       = 32
	ringHead        = 64
	ringWritten     = 72
	ringDropped     = 80
	ringErrors      = 88
	ringLaunched    = 96
	ringLaunchedAt  = 104
	ringCompleted   = 112
	ringCompletedAt = 120
	ringClock       = 128
	ringRunning     = 152
	ringWaiting     = 156
	ringFieldsEnd   = 160
	ringHelloAt     = 1_024
)

// ringHeader is the part of a ring's header that has fields.
type ringHeader [ringFieldsEnd]byte

func (h *ringHeader) u16(at int) uint16 { return binary.LittleEndian.Uint16(h[at:]) }
func (h *ringHeader) u32(at int) uint32 { return binary.LittleEndian.Uint32(h[at:]) }
func (h *ringHeader) u64(at int) uint64 { return binary.LittleEndian.Uint64(h[at:]) }
func (h *ringHeader) i64(at int) int64  { return int64(h.u64(at)) }

func (h *ringHeader) setU16(at int, v uint16) { binary.LittleEndian.PutUint16(h[at:], v) }
func (h *ringHeader) setU32(at int, v uint32) { binary.LittleEndian.PutUint32(h[at:], v) }
func (h *ringHeader) setU64(at int, v uint64) { binary.LittleEndian.PutUint64(h[at:], v) }
func (h *ringHeader) setI64(at int, v int64)  { h.setU64(at, uint64(v)) }

// check refuses a header that no reader of this version can use, for a file of fileSize bytes.
func (h *ringHeader) check(fileSize int64) error {
	refuse := func(sentinel error, field string, value any, remedy string) error {
		return &Error{Err: sentinel, Message: "ring header", Field: field, Value: fmt.Sprint(value), Remedy: remedy}
	}
	const restart = "restart the process that writes it, or remove the file"
	dataSize := h.u64(ringDataSize)
	switch {
	case h.u64(0) == 0:
		return refuse(ErrUnready, "magic", "still zero", "if it stays so, remove the file")
	case string(h[:ringMajor]) != ringMagic:
		return refuse(ErrMagic, "magic", fmt.Sprintf("%q", h[:ringMajor]), "this is no ring; move it out of the ring directory")
	case h.u16(ringMajor) > Major:
		return newerMajor("ring", h.u16(ringMajor), h.u16(ringMinor))
	case h.u32(ringHeaderAt) != ringHeaderSize:
		return refuse(ErrLength, "header size", h.u32(ringHeaderAt), restart)
	case dataSize == 0 || dataSize%frameAlign != 0:
		return refuse(ErrLength, "data size", dataSize, restart)
	case fileSize < ringHeaderSize || dataSize > uint64(fileSize-ringHeaderSize):
		return refuse(ErrTruncated, "data size", fmt.Sprintf("%d + %d bytes in a file of %d", ringHeaderSize, dataSize, fileSize), restart)
	case h.u32(ringHelloLength) > ringHelloMax:
		return refuse(ErrLength, "hello length", h.u32(ringHelloLength), restart)
	}
	return h.checkHead()
}

// checkHead refuses a head that no writer can have stored. Below 2⁶³ no position overflows, and no writer gets there.
func (h *ringHeader) checkHead() error {
	if head := h.u64(ringHead); head%frameAlign != 0 || head >= 1<<63 {
		return &Error{Err: ErrValue, Message: "ring header", Field: "head", Value: fmt.Sprint(head),
			Remedy: "something else writes to this file; restart the process that owns it"}
	}
	return nil
}

// RingName is the file name of the ring that the thread of this hello writes: <boot>-<pid>-<start>-<role>-<thread>.ring.
func RingName(h *Hello) string {
	plain := strings.NewReplacer("/", "_", "\x00", "_")
	boot := strings.ReplaceAll(h.Boot, "-", "")
	return plain.Replace(fmt.Sprintf("%.8s-%d-%d-%s-%s.ring", boot, h.PID, h.Start, h.Role, h.Thread))
}

// RingStatus is what a ring's header says about its writer at one moment.
type RingStatus struct {
	PID         uint32
	Start       uint64 // of the process, clock ticks since boot
	Alive       bool   // the writer still holds the file's lock
	Head        uint64 // bytes ever written to the data area
	Written     uint64 // frames
	Dropped     uint64 // frames that the writer could not build or fit
	Errors      uint64 // caught inside hooks
	Launched    uint64 // last iteration launched, 0 = none
	LaunchedAt  int64  // ns of CLOCK_MONOTONIC
	Completed   uint64 // last iteration completed, 0 = none
	CompletedAt int64
	Clock       Clock  // the latest pair of readings
	Running     uint32 // at the last launch
	Waiting     uint32
}

func (h *ringHeader) status() RingStatus {
	return RingStatus{
		PID: h.u32(ringPID), Start: h.u64(ringStart),
		Head: h.u64(ringHead), Written: h.u64(ringWritten), Dropped: h.u64(ringDropped), Errors: h.u64(ringErrors),
		Launched: h.u64(ringLaunched), LaunchedAt: h.i64(ringLaunchedAt),
		Completed: h.u64(ringCompleted), CompletedAt: h.i64(ringCompletedAt),
		Clock: Clock{Time: h.i64(ringClock + 16), MonoBefore: h.i64(ringClock), Realtime: h.i64(ringClock + 8),
			MonoAfter: h.i64(ringClock + 16)},
		Running: h.u32(ringRunning), Waiting: h.u32(ringWaiting),
	}
}
