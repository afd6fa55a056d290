package clock

import "time"

// Jitter returns a number from 0 to 1 that differs between names, times and clients, whose clocks
// begin at different moments. It is not random, so a simulation can repeat a run.
func Jitter(name string, now time.Duration) float64 {
	const offset, prime = 2166136261, 16777619 // FNV-1a: hash/fnv would cost two allocations
	h := uint32(offset)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * prime
	}
	x := uint64(h) ^ uint64(now)
	x = (x ^ x>>33) * 0xff51afd7ed558ccd // the last steps of MurmurHash3
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return float64((x^x>>33)>>11) / (1 << 53)
}
