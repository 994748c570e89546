//go:build !race

package cell

// slowdown is that of a build without the race detector: none.
const slowdown = 1
