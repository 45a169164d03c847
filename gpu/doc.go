// Package gpu samples the GPUs of a host: what each does, how hot and how fast it is, what holds it down, who computes on it. It reads
// them through NVML, in a program of its own (package gpu/nvml), or through nvidia-smi. A driver that hangs, hangs that other program
// and nobody else; the sampler then says that the device does not answer, and starts no second one beside it.
package gpu
