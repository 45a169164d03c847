// Package nvml reads GPUs through libnvidia-ml.so.1, the driver's own library, without cgo. It is what the program whylate-gpu does.
package nvml

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Name is the library as the driver installs it.
const Name = "libnvidia-ml.so.1"

// library is NVML, loaded. Its functions are looked up one by one: an older driver lacks some, and says so like any other refusal.
type library struct {
	symbols map[string]uintptr
}

// load opens the library and resolves what is ever called.
func load(path string) (*library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w; it comes with NVIDIA's driver: install it, or in a container have it mounted (NVIDIA_DRIVER_CAPABILITIES=utility)", err)
	}
	l := &library{symbols: map[string]uintptr{}}
	for _, s := range symbols {
		if at, err := purego.Dlsym(handle, s); err == nil {
			l.symbols[s] = at
		}
	}
	if l.symbols["nvmlInit_v2"] == 0 {
		return nil, fmt.Errorf("%s has no nvmlInit_v2: it is not NVML", path)
	}
	return l, nil
}

// symbols are all functions that are called; of several versions of one the newest comes first.
var symbols = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2",
	"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo",
	"nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTotalEnergyConsumption",
	"nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", "nvmlDeviceGetMarginTemperature",
	"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
	"nvmlDeviceGetPerformanceState", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRetiredPages", "nvmlDeviceGetRemappedRows",
	"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth",
	"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetFieldValues",
	"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetWait",
	"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessUtilization",
}

// has reports whether this driver has a function.
func (l *library) has(symbol string) bool { return l.symbols[symbol] != 0 }

// call calls a function; one that this driver lacks answers that it is not found, instead of ending the process.
func (l *library) call(symbol string, args ...uintptr) code {
	at := l.symbols[symbol]
	if at == 0 {
		return functionNotFound
	}
	r, _, _ := purego.SyscallN(at, args...)
	return code(int32(r))
}

// number calls a function that fills in one unsigned number behind some arguments.
func (l *library) number(symbol string, device uintptr, args ...uintptr) (uint32, code) {
	n := new(uint32)
	c := l.call(symbol, append(append([]uintptr{device}, args...), address(n))...)
	keep(n)
	return *n, c
}

// wide is number for 64 bits.
func (l *library) wide(symbol string, device uintptr, args ...uintptr) (uint64, code) {
	n := new(uint64)
	c := l.call(symbol, append(append([]uintptr{device}, args...), address(n))...)
	keep(n)
	return *n, c
}

// text calls a function that fills in a string.
func (l *library) text(symbol string, args ...uintptr) (string, code) {
	b := new([96]byte)
	c := l.call(symbol, append(args, address(b), uintptr(len(b)))...)
	keep(b)
	if c != success {
		return "", c
	}
	return cString(b[:]), success
}

// address is where a value lies. It must be on the heap, which does not move, and kept until the call is over (keep).
func address[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

// cString is the text up to the zero byte.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
