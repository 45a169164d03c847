package dcgm

// xids are what the driver's error numbers mean, as far as one line can say it.
var xids = map[int]string{
	13:  "an exception in the compute engine; usually a kernel's fault",
	31:  "GPU memory page fault; usually the application's, also the driver's or hardware",
	32:  "corrupted push buffer; bus or driver",
	38:  "driver firmware error",
	43:  "a channel was reset; usually a consequence of an application's fault",
	45:  "channels cleaned up after another error, or on a kill; usually a consequence",
	48:  "double-bit memory error",
	61:  "internal micro-controller breakpoint; the GPU needs a reset",
	62:  "internal micro-controller halt; the GPU needs a reset",
	63:  "row remap recorded",
	64:  "recording a row remap failed",
	74:  "NVLink error",
	79:  "the GPU has fallen off the bus",
	92:  "high rate of single-bit memory errors",
	94:  "contained memory error; one process was killed",
	95:  "uncontained memory error; everything on the GPU is affected, it needs a reset",
	109: "timeout of a context switch",
	119: "timeout of the driver's firmware (GSP)",
	120: "error of the driver's firmware (GSP)",
	121: "C2C link error",
	136: "NVLink training failed",
	137: "NVLink privilege error",
	140: "memory error that was not recovered",
	143: "the GPU could not be initialised",
	144: "NVLink error (SAW)", 145: "NVLink error (RLW)", 146: "NVLink error (TLW)", 147: "NVLink error (TREX)",
	148: "NVLink error (NVLPW_CTRL)", 149: "NVLink error (NETIR)", 150: "NVLink error (MSE)", 155: "NVLink error, defined by software",
	154: "the recommended recovery action changed",
	156: "a resource was retired",
	157: "retiring a resource failed",
	158: "fatal timeout of the GPU",
	162: "power smoothing circuitry", 163: "power smoothing circuitry", 164: "power smoothing circuitry", 165: "power smoothing circuitry",
	167: "fatal PCIe timeout",
	168: "reduced memory capacity",
	171: "uncorrectable error in DRAM",
	172: "uncorrectable error in SRAM",
}

// XID is what an error number of the driver means.
func XID(n int) string {
	if text := xids[n]; text != "" {
		return text
	}
	return "not in the list of common ones"
}

// Severity is how bad an XID is: "broken" where the GPU is of no use until it is reset or replaced, "application" where it is usually the fault
// of what ran there, else "notice".
func Severity(n int) string {
	switch {
	case Devastating(n):
		return "broken"
	case n == 13 || n == 31 || n == 43 || n == 45 || n == 94:
		return "application"
	}
	return "notice"
}

// Remedy is what to do about an XID.
func Remedy(n int) string {
	switch Severity(n) {
	case "broken":
		return "Take the GPU out of service, and reset it; if the error returns, have the board looked at."
	case "application":
		return "Look at the log of the engine that used the GPU at that time, and restart it if it ended; if it returns with another program too, suspect the GPU."
	}
	return "Look at the kernel's log (dmesg) of that time for more about it."
}

// Devastating reports whether a GPU is of no use after an XID until it is reset, or replaced.
func Devastating(n int) bool {
	switch n {
	case 48, 61, 62, 64, 74, 79, 95, 119, 120, 140, 143, 158, 167, 171, 172:
		return true
	}
	return false
}
