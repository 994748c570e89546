//go:build !race

package master

// slowdown is 1 without the race detector.
const slowdown = 1
