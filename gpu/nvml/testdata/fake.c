// A libnvidia-ml.so.1 for tests. FAKE_NVML names what is to be different, separated by commas. With -DOLD it lacks what older drivers lack.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int uint;
typedef struct { uint mark, index, part; } device;

static device gpus[8] = {{1, 0, 0}, {1, 1, 0}, {1, 2, 0}, {1, 3, 0}, {1, 4, 0}, {1, 5, 0}, {1, 6, 0}, {1, 7, 0}};
static device parts[2] = {{1, 0, 1}, {1, 0, 2}};
static int told;

static int is(const char *what) {
	const char *all = getenv("FAKE_NVML"), *at = all ? strstr(all, what) : 0;
	size_t n = strlen(what);
	return at && (at == all || at[-1] == ',') && (at[n] == 0 || at[n] == ',' || at[n] == '=');
}
static int number(const char *what, int otherwise) {
	const char *all = getenv("FAKE_NVML"), *at = all ? strstr(all, what) : 0;
	return at && at[strlen(what)] == '=' ? atoi(at + strlen(what) + 1) : otherwise;
}
// hung is how a call into a hung driver looks.
static void hung(device *d) { if (is("hang") && d->index == (uint)number("hang", 0)) for (;;) sleep(1000); }
static int lost(device *d) { return is("lost") && d->index == (uint)number("lost", 0); }
#define ENTER(d) do { if (((device *)(d))->mark != 1) return 2; hung(d); if (lost(d)) return 15; } while (0)

int nvmlInit_v2(void) {
	if (is("init-hangs")) for (;;) sleep(1000);
	return number("init", 0);
}
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *b, uint n) { snprintf(b, n, "580.65.06"); return 0; }
int nvmlDeviceGetCount_v2(uint *n) { *n = number("gpus", 2); return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint i, void **d) { if (i >= 8) return 2; *d = &gpus[i]; return 0; }
int nvmlDeviceGetUUID(device *d, char *b, uint n) {
	if (d->part) snprintf(b, n, "MIG-%08u-0000-0000-0000-%012u", d->index, d->part);
	else snprintf(b, n, "GPU-%08u-2222-3333-4444-555555555555", d->index);
	return 0;
}
int nvmlDeviceGetName(device *d, char *b, uint n) {
	if (d->part) snprintf(b, n, "NVIDIA H100 80GB HBM3 MIG %s", d->part == 1 ? "3g.40gb" : "1g.10gb");
	else snprintf(b, n, "NVIDIA H100 80GB HBM3");
	return 0;
}
typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; } pci;
int nvmlDeviceGetPciInfo_v3(device *d, pci *p) {
	memset(p, 0, sizeof *p);
	snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", 0x1b + d->index);
	return 0;
}
typedef struct { uint gpu, memory; } rates;
int nvmlDeviceGetUtilizationRates(device *d, rates *r) {
	ENTER(d);
	if (is("corrupt")) { r->gpu = 131072; r->memory = 12; return 0; }
	r->gpu = 97; r->memory = 41;
	return 0;
}
typedef struct { unsigned long long time, value; } sample;
int nvmlDeviceGetSamples(device *d, uint type, unsigned long long seen, uint *kind, uint *n, sample *s) {
	ENTER(d);
	if (type != 1) return 3;
	if (!s) { *n = 8; return 0; }
	*kind = 1;
	for (uint i = 0; i < *n; i++) {
		s[i].time = i < 2 ? 0 : 1700000000000000ull + i * 166667ull; // the first are empty, as the library leaves them
		s[i].value = 97;
	}
	return 0;
}
typedef struct { unsigned long long total, free, used; } memory1;
int nvmlDeviceGetMemoryInfo(device *d, memory1 *m) { ENTER(d); m->total = 85520809984ull; m->free = 11048845312ull; m->used = 74471964672ull; return 0; }
int nvmlDeviceGetPowerUsage(device *d, uint *mw) { ENTER(d); *mw = 512400; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(device *d, uint *mw) { ENTER(d); *mw = 700000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj) { ENTER(d); *mj = is("blank") ? ~0ull : 918273645000ull; return 0; }
int nvmlDeviceGetTemperature(device *d, uint sensor, uint *t) { ENTER(d); *t = 61; return sensor ? 2 : 0; }
int nvmlDeviceGetClockInfo(device *d, uint which, uint *mhz) { ENTER(d); *mhz = which == 1 ? 1245 : which == 2 ? 2619 : 0; return 0; }
int nvmlDeviceGetMaxClockInfo(device *d, uint which, uint *mhz) { ENTER(d); *mhz = which == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *mask) { ENTER(d); *mask = number("mask", 4); return 0; }
int nvmlDeviceGetPerformanceState(device *d, uint *p) { ENTER(d); *p = is("blank") ? 32 : 0; return 0; }
int nvmlDeviceGetTotalEccErrors(device *d, uint kind, uint counter, unsigned long long *n) {
	ENTER(d);
	if (is("no-ecc")) return 3;
	*n = kind ? 1 : 17;
	return counter ? 2 : 0;
}
int nvmlDeviceGetRetiredPages(device *d, uint cause, uint *n, unsigned long long *addresses) { ENTER(d); if (addresses) return 2; *n = cause + 1; return 7; }
int nvmlDeviceGetCurrPcieLinkGeneration(device *d, uint *n) { ENTER(d); *n = 4; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(device *d, uint *n) { ENTER(d); *n = 8; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(device *d, uint *n) { ENTER(d); *n = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(device *d, uint *n) { ENTER(d); *n = 16; return 0; }
int nvmlDeviceGetPcieThroughput(device *d, uint which, uint *kb) { ENTER(d); usleep(20000); *kb = which ? 250000 : 125000; return is("no-permission") ? 4 : 0; }
int nvmlDeviceGetNvLinkState(device *d, uint link, uint *up) { ENTER(d); if (link >= 6) return 2; *up = link != 5; return 0; }
typedef struct { uint id, scope; long long time, latency; uint type; int code; union { double d; uint ui; unsigned long ul; unsigned long long ull; long long sll; } v; } field;
int nvmlDeviceGetFieldValues(device *d, int n, field *f) {
	ENTER(d);
	for (int i = 0; i < n; i++) {
		f[i].code = 0;
		f[i].type = 3;
		f[i].v.ull = 0;
		switch (f[i].id) {
		case 74: f[i].v.ull = 2500000000ull; break;
		case 75: f[i].v.ull = 183400000000ull; break;
		case 82: f[i].type = 1; f[i].v.ui = 72; break;
		case 94: f[i].type = 1; f[i].v.ui = 3; break;
		case 138: f[i].v.ull = f[i].scope == 0xffffffff ? 1000000 : 0; break;
		case 139: f[i].v.ull = 2000000; break;
#ifndef OLD
		case 185: f[i].type = 1; f[i].v.ui = 510000; break;
		case 186: f[i].type = 1; f[i].v.ui = 530000; break;
		case 269: f[i].v.ull = 1000000000ull; break;
		case 270: case 271: break;
#endif
		default: f[i].code = 3;
		}
	}
	return 0;
}
typedef struct { uint pid; unsigned long long used; } process1;
int nvmlDeviceGetComputeRunningProcesses(device *d, uint *n, process1 *p) { ENTER(d); *n = 1; p[0].pid = 4242; p[0].used = 74000000000ull; return 0; }
#ifndef OLD
typedef struct { uint version; unsigned long long total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(device *d, memory2 *m) {
	ENTER(d);
	if (m->version != 0x02000028) return 25;
	m->total = 85520809984ull; m->reserved = 500000000ull; m->free = 11048845312ull; m->used = 73971964672ull;
	return 0;
}
typedef struct { uint version, sensor; int degrees; } temperature;
int nvmlDeviceGetTemperatureV(device *d, temperature *t) { ENTER(d); if (t->version != 0x0100000c) return 25; t->degrees = 62; return 0; }
typedef struct { uint version; int degrees; } margin;
int nvmlDeviceGetMarginTemperature(device *d, margin *m) { ENTER(d); if (m->version != 0x01000008) return 25; m->degrees = 25; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *mask) { return nvmlDeviceGetCurrentClocksThrottleReasons(d, mask); }
int nvmlDeviceGetRemappedRows(device *d, uint *corrected, uint *uncorrected, uint *pending, uint *failure) { ENTER(d); *corrected = 2; *uncorrected = 1; *pending = 1; *failure = 0; return 0; }
typedef struct { uint pid; unsigned long long used; uint gi, ci; } process3;
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, uint *n, process3 *p) {
	ENTER(d);
	uint none = 0xffffffff;
	if (*n < 2) return 7;
	*n = 1;
	p[0] = (process3){4242, is("blank") ? ~0ull : 73000000000ull, none, none};
	if (d->part) { p[0].pid = 4242 + d->part; p[0].gi = d->part == 1 ? 2 : 9; p[0].ci = 0; }
	else if (is("shared")) { *n = 2; p[1] = (process3){4243, 1000000000ull, none, none}; }
	return 0;
}
typedef struct { uint pid; unsigned long long time; uint sm, memory, encoder, decoder; } share;
int nvmlDeviceGetProcessUtilization(device *d, share *s, uint *n, unsigned long long seen) {
	ENTER(d);
	if (seen) return 6;
	*n = 3;
	s[0] = (share){4242, 1700000000000000ull, 60, 20, 0, 0};
	s[1] = (share){4242, 1700000000166667ull, 70, 20, 0, 0};
	s[2] = (share){4243, 1700000000166667ull, 30, 10, 0, 0};
	return 0;
}
int nvmlEventSetCreate(void **set) { *set = &told; return 0; }
int nvmlDeviceGetSupportedEventTypes(device *d, unsigned long long *kinds) { *kinds = 0x1b; return 0; }
int nvmlDeviceRegisterEvents(device *d, unsigned long long kinds, void *set) { return set == &told && kinds == 8 ? 0 : 2; }
typedef struct { device *d; unsigned long long kind, data; uint gi, ci; } event;
int nvmlEventSetWait_v2(void *set, event *e, uint ms) {
	if (!is("xid") || told) { usleep(ms * 1000); return 10; }
	told = 1;
	e->d = &gpus[1]; e->kind = 8; e->data = number("xid", 94); e->gi = e->ci = 0xffffffff;
	return 0;
}
int nvmlDeviceGetMigMode(device *d, uint *now, uint *later) { ENTER(d); if (!is("mig")) return 3; *now = *later = d->index == 0; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(device *d, uint *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, uint i, void **part) { if (i != 0 && i != 3) return 6; *part = &parts[i == 3]; return 0; }
int nvmlDeviceGetGpuInstanceId(device *d, uint *n) { *n = d->part == 1 ? 2 : 9; return 0; }
int nvmlDeviceGetComputeInstanceId(device *d, uint *n) { *n = 0; return 0; }
#endif
