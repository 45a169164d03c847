// Package workload is where workloads come from: published traces and our own files, read as streams; generators; what a ledger
// holds of the requests that an engine was sent; and the changes that make one workload of another.
//
// Everything is a stream of requests in order of time, so ten million of them need no more memory than ten thousand. Whatever
// is drawn by chance is drawn from a seed: the same seed gives the same requests.
//
// Azure's trace of 2023 and BurstGPT know arrivals and lengths. Mooncake's trace also knows which prompts begin alike. None
// holds any content, and neither does what is made here.
package workload
