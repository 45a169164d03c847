package nvml

import (
	"fmt"

	"github.com/whylate/whylate/wire"
)

// code is what an NVML function returns.
type code int32

const (
	success           code = 0
	notSupported      code = 3
	noPermission      code = 4
	notFound          code = 6
	insufficientSize  code = 7
	driverNotLoaded   code = 9
	timedOut          code = 10
	functionNotFound  code = 13
	gpuIsLost         code = 15
	resetRequired     code = 16
	versionMismatch   code = 18
	argumentVersion   code = 25
	deprecated        code = 26
	unknown           code = 999
	mostProcessesRead      = 1024
)

// meanings say what a code is, and what to do about it.
var meanings = map[code][2]string{
	1:                {"the library is not initialised", ""},
	2:                {"invalid argument", "report it, with the driver's version"},
	notSupported:     {"not supported by this device", ""},
	noPermission:     {"not permitted", "run it with the rights that the driver asks for (NVreg_RestrictProfilingToAdminUsers, device files /dev/nvidia*)"},
	notFound:         {"not found", ""},
	insufficientSize: {"the answer does not fit", ""},
	8:                {"a GPU has not all its power cables", "plug them in"},
	driverNotLoaded:  {"the driver is not loaded", "load it (modprobe nvidia), or mount the device files /dev/nvidia* into the container"},
	timedOut:         {"the driver did not answer in time", "see dmesg for NVRM and Xid"},
	11:               {"an interrupt of the GPU does not come", "see dmesg"},
	12:               {"the library is not found", "install NVIDIA's driver, or have it mounted"},
	functionNotFound: {"this driver has no such function", "update the driver, if the signal is needed"},
	14:               {"the board's infoROM is damaged", "have the board looked at"},
	gpuIsLost:        {"the GPU has fallen off the bus, or is out of reach", "drain the host and reboot it; if it returns, have the board looked at"},
	resetRequired:    {"the GPU needs a reset", "stop what runs on it and reset it (nvidia-smi --gpu-reset), or reboot"},
	17:               {"the operating system or its control group refuses the device", "give the container the device (/dev/nvidia*)"},
	versionMismatch:  {"driver and library are of different versions: the driver was updated while it was loaded", "reload the driver or reboot; in a container, start it anew"},
	19:               {"the GPU is in use", ""},
	20:               {"out of memory", ""},
	21:               {"no data", ""},
	argumentVersion:  {"this driver has an older form of the question", ""},
	deprecated:       {"this driver has given the question up", ""},
	27:               {"not ready", "ask again"},
	28:               {"no GPU is there", "see lspci and dmesg"},
	unknown:          {"unknown error inside the driver", "see dmesg"},
}

func (c code) Error() string {
	m, known := meanings[c]
	switch {
	case !known:
		return fmt.Sprintf("NVML error %d", int32(c))
	case m[1] == "":
		return fmt.Sprintf("%s (NVML error %d)", m[0], int32(c))
	}
	return fmt.Sprintf("%s (NVML error %d); %s", m[0], int32(c), m[1])
}

// why is a code as the reason why a signal has no value.
func (c code) why() wire.AbsentReason {
	switch c {
	case notSupported, notFound:
		return wire.AbsentNotSupported
	case noPermission:
		return wire.AbsentNotPermitted
	case functionNotFound, argumentVersion, deprecated:
		return wire.AbsentOldDriver
	}
	return wire.AbsentReadError
}

// lost reports whether a device cannot be asked any more.
func (c code) lost() bool { return c == gpuIsLost || c == resetRequired }
