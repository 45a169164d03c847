package wire

// Sizes of a capture file, in bytes.
const (
	captureHeader = 16 // of the file
	blockHeader   = 16 // of a block
	recordHeader  = 8  // of a record in a block

	blockTarget  = 256 << 10 // raw bytes after which a writer ends a block
	maxBlockRaw  = 4 << 20   // raw bytes that a block may hold
	maxBlockPack = maxBlockRaw + 64<<10
)

const (
	captureMagic = "WHYLATE\n"
	blockMagic   = "WLBK"
)

// Kinds of records in a block.
const (
	recordFrame  = 0
	recordSource = 1
	recordGap    = 2
)

// gapRecord is the JSON of a gap. The name is for people; the record's header says which source it is.
type gapRecord struct {
	Source string `json:"source"`
	Gap
}
